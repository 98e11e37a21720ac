// The stager's profile and the number of its threads, by what was seen: answers (did a read come from the page
// cache?) and windows (bytes filled in so much time). Pure: numbers in, numbers out.
//
// The profile follows the last ST_PACE_ANSWERS answers. For each profile the number of threads is found by trial:
// now and then one window is run with twice or half as many, between two with the usual number. What that was
// worth is remembered for each step from one number to the next, and the usual number changes when the mean is
// clear of its own error. The clearer a step is, the more rarely it is tried.
#ifndef STRATA_PACE_H
#define STRATA_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define ST_PACE_ANSWERS 32

enum st_profile { ST_PROFILE_AUTO = 0, ST_PROFILE_RAM, ST_PROFILE_SSD, ST_PROFILES };

struct st_pace_options {
    enum st_profile wanted;
    int threads;  // 0: measured, or (with a chosen profile) the profile's first number
    int first[ST_PROFILES], most[ST_PROFILES];  // of ram and ssd; at least 1
};

struct st_pace_window {  // what was filled since the last one
    uint64_t bytes;
    uint64_t busy_ns;    // in which at least one blob was being filled
    uint64_t waited_ns;  // in which the collecting thread waited for a blob, or filled one itself
    uint64_t passed_ns;
};

#define ST_PACE_STEPS 5  // 1, 2, 4, ... 32 threads

struct st_pace_step {  // from one number of threads to twice as many
    double gain;   // mean share by which the rate grew, of the rates' mean
    double spread; // mean of the squares of their deviations from it
    int n;         // of how many trials; old ones fade
    bool odd;      // the last trial was far from what was known
    int pause;     // windows between trials
    int left;      // ... until the next one
};

struct st_pace_side {  // one profile's number of threads
    int level;         // 1 << level of them
    bool up;           // the direction of the next trial, where both are due
    struct st_pace_step steps[ST_PACE_STEPS];
};

struct st_pace {
    struct st_pace_options options;
    enum st_profile profile;  // in force: ram or ssd
    uint32_t answers;         // the last ones, the newest in bit 0; 1: from the page cache
    int n_answers;
    uint64_t changes;         // of the profile
    struct st_pace_side sides[ST_PROFILES];
    int trial;                // its windows seen so far (usual, tried, usual); 0: none runs
    bool up;                  // the trial's direction
    bool enough[2];           // nobody waited in those windows
    double rate[2];           // of those windows, bytes a nanosecond
};

void st_pace_init(struct st_pace * p, const struct st_pace_options * options);
// What is known is kept, as far as the options allow it.
void st_pace_set(struct st_pace * p, const struct st_pace_options * options);
void st_pace_answer(struct st_pace * p, bool cached);
// How many of the last answers said yes.
int st_pace_cached(const struct st_pace * p);
// A window has ended in which `st_pace_threads` did not change.
void st_pace_seen(struct st_pace * p, const struct st_pace_window * w);
// Threads that are to take part now.
int st_pace_threads(const struct st_pace * p);

#endif
