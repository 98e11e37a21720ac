// What every test program of the pure parts needs: named checks, random numbers from a seed, arguments, and
// an end for a run that hangs.
#ifndef STRATA_CHECK_H
#define STRATA_CHECK_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

struct check_args {
    uint64_t seed;
    uint64_t steps;
};

static struct check_args check_args;

// A check that fails names itself, the seed and the place, and ends the process.
#define CHECK(name, condition)                                                                                    \
    do {                                                                                                          \
        if (!(condition)) {                                                                                       \
            fprintf(stderr, "check failed: %s: %s (%s:%d, seed %llu, steps %llu)\n", name, #condition, __FILE__, \
                    __LINE__, (unsigned long long) check_args.seed, (unsigned long long) check_args.steps);      \
            abort();                                                                                              \
        }                                                                                                         \
    } while (0)

static inline uint64_t mix(uint64_t z) {  // the output function of splitmix64
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static inline uint64_t draw(uint64_t * state) {
    return mix(*state += UINT64_C(0x9E3779B97F4A7C15));
}

static inline int below(uint64_t * state, int n) {  // 0 .. n-1
    return (int) (draw(state) % (uint64_t) n);
}

static inline bool one_in(uint64_t * state, int n) {
    return below(state, n) == 0;
}

static void check_hangs(int signal) {
    (void) signal;
    static const char text[] = "check failed: hang: the program did not end\n";
    (void) !write(2, text, sizeof text - 1);
    _exit(3);
}

// usage: PROGRAM SEED STEPS [SECONDS UNTIL IT COUNTS AS HANGING]
static inline void check_start(int argc, char ** argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: %s SEED STEPS [SECONDS]\n", argv[0]);
        exit(2);
    }
    check_args = (struct check_args) { strtoull(argv[1], NULL, 10), strtoull(argv[2], NULL, 10) };
    setrlimit(RLIMIT_CORE, &(struct rlimit) { 0, 0 });  // mutants abort by the dozen
    signal(SIGALRM, check_hangs);
    alarm(argc > 3 ? (unsigned) strtoul(argv[3], NULL, 10) : 100);
}

#endif
