// The stager with 0 to 8 threads that take part, changing while jobs run, jobs of 1 to 6 pieces, and failures.
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "check.h"
#include "stager.h"

#define MAX_THREADS 8
#define MAX_JOBS 24
#define MAX_PIECES 6
#define PIECE 32

// One piece as it was filled. `ended` and `known` are times on one clock for all threads: its fill ended, and
// the thread that filled it was seen to be back in the stager after accounting for it.
struct piece {
    _Atomic int fills;
    _Atomic uint64_t ended, known;
    bool fails;
};

static uint64_t rng;
static struct st_job jobs[MAX_JOBS];
static struct piece pieces[MAX_JOBS][MAX_PIECES];
static uint8_t bytes[MAX_JOBS][MAX_PIECES * PIECE];
static _Atomic uint64_t clock_now;
static _Atomic uint64_t round_now;
static _Atomic int running, most_running;
static pthread_t collector;
static _Atomic int outside;  // pieces that another thread than the collector filled
static _Thread_local struct piece * last;
static _Thread_local uint64_t last_round;
static _Thread_local uint64_t thread_rng;

static void back_again(void) {  // this thread has accounted for its last piece
    if (last && last_round == atomic_load(&round_now)) {
        atomic_store(&last->known, ++clock_now);
    }
    last = NULL;
}

static int fill(void * ctx, const struct st_job * job, int piece) {
    CHECK("stager-context", ctx == jobs);
    back_again();
    const int j = (int) (job - jobs);
    struct piece * p = &pieces[j][piece];
    CHECK("stager-piece in range", piece >= 0 && piece < job->n_pieces);
    const int now = ++running;
    for (int most = atomic_load(&most_running); now > most && !atomic_compare_exchange_weak(&most_running, &most, now);) {
    }
    outside += !pthread_equal(pthread_self(), collector);
    CHECK("stager-each piece once", p->fills++ == 0);
    for (int i = 0; i < PIECE; i++) {
        bytes[j][piece * PIECE + i] = (uint8_t) (job->key + piece + i);
    }
    if (thread_rng == 0) {
        thread_rng = mix(check_args.seed + (uint64_t) (uintptr_t) &thread_rng) | 1;
    }
    if (one_in(&thread_rng, 8)) {
        sched_yield();
    }
    running--;
    last       = p;
    last_round = atomic_load(&round_now);
    const int result = p->fails ? -1 : 0;
    atomic_store(&p->ended, ++clock_now);
    return result;
}

static void submit(struct st_stager * s, int j) {
    bool fails = one_in(&rng, 6);
    jobs[j]    = (struct st_job) { .key = below(&rng, 100), .n_pieces = 1 + (one_in(&rng, 3) ? 0 : below(&rng, MAX_PIECES)), .tag = j,
                                   .failed = true, .left = 99, .next_piece = 99 };  // the last three are the stager's to set
    for (int i = 0; i < jobs[j].n_pieces; i++) {
        pieces[j][i] = (struct piece) { .fails = fails && one_in(&rng, 2) };
    }
    memset(bytes[j], 0, sizeof bytes[j]);
    st_stager_submit(s, &jobs[j]);
}

static void collected(const struct st_job * job) {
    const int j = (int) (job - jobs);
    bool fails = false;
    CHECK("stager-caller's fields", job->tag == j);
    for (int i = 0; i < job->n_pieces; i++) {
        CHECK("stager-all pieces filled", pieces[j][i].fills == 1 && pieces[j][i].ended > 0);
        fails = fails || pieces[j][i].fails;
        for (int k = 0; k < PIECE; k++) {  // seen without a lock: the stager's ordered the writes
            CHECK("stager-bytes", bytes[j][i * PIECE + k] == (uint8_t) (job->key + i + k));
        }
    }
    CHECK("stager-failed", job->failed == fails);
}

// A job that was certainly finished before another one's last fill ended was collected before it.
static void check_order(const int * order, int n) {
    uint64_t end[MAX_JOBS], known[MAX_JOBS];
    for (int i = 0; i < n; i++) {
        end[i] = known[i] = 0;
        for (int k = 0; k < jobs[order[i]].n_pieces; k++) {
            const struct piece * p = &pieces[order[i]][k];
            end[i]   = p->ended > end[i] ? p->ended : end[i];
            known[i] = p->known == 0 ? UINT64_MAX : p->known > known[i] ? p->known : known[i];
        }
    }
    for (int i = 0; i < n; i++) {
        for (int k = i + 1; k < n; k++) {
            CHECK("stager-collects in order of completion", !(known[k] < end[i]));
        }
    }
}

// Up to MAX_JOBS jobs, submitted and collected in a random interleaving.
static uint64_t one_round(struct st_stager * s, int * active) {
    const int n = 1 + below(&rng, MAX_JOBS);
    int submitted = 0, done = 0, order[MAX_JOBS];
    bool changed = false;
    uint64_t steps = 0;
    most_running = outside = 0;
    round_now++;
    while (done < n) {
        const int what = below(&rng, 16);
        steps++;
        if (what == 0 && one_in(&rng, 4)) {
            const int wanted = below(&rng, MAX_THREADS + 1);
            *active = st_stager_set_threads(s, wanted);
            CHECK("stager-threads as asked", *active == wanted);
            changed = true;
        } else if (what < 9 && submitted < n) {
            submit(s, submitted++);
        } else if (what == 9) {
            CHECK("stager-open", st_stager_open(s) == submitted - done);
        } else {
            struct st_job * job = st_stager_collect(s);
            back_again();
            CHECK("stager-NULL only when no job is open", (job != NULL) == (submitted > done));
            if (job) {
                collected(job);
                order[done++] = (int) (job - jobs);
            }
        }
    }
    CHECK("stager-nothing is left", st_stager_collect(s) == NULL && st_stager_open(s) == 0);
    for (int i = 0; i < n; i++) {
        bool seen = false;
        for (int k = 0; k < n; k++) {
            seen = seen || order[k] == i;
        }
        CHECK("stager-each job once", seen);
    }
    check_order(order, n);
    if (!changed) {
        CHECK("stager-not more threads than take part", most_running <= *active + 1);
        CHECK("stager-without threads the collector fills", *active > 0 || outside == 0);
    }
    for (int i = 0; i < n && *active == 0 && !changed; i++) {
        CHECK("stager-first in, first out without threads", order[i] == i);
    }
    return steps;
}

// ---- all take part: a job whose pieces wait for each other

static pthread_barrier_t meeting;

static int fill_meeting(void * ctx, const struct st_job * job, int piece) {
    (void) ctx;
    (void) job;
    (void) piece;
    pthread_barrier_wait(&meeting);
    return 0;
}

static void all_take_part(void) {
    struct st_stager s;
    CHECK("stager-init", st_stager_init(&s, fill_meeting, NULL) == 0);
    for (int n = 0; n <= MAX_THREADS; n++) {
        for (int i = 0; i < 3; i++) {
            const int threads = i == 2 ? MAX_THREADS - n : n;  // also after fewer were wanted
            CHECK("stager-threads as asked", st_stager_set_threads(&s, threads) == threads);
            CHECK("stager-barrier", pthread_barrier_init(&meeting, NULL, (unsigned) threads + 1) == 0);
            struct st_job job = { .n_pieces = threads + 1 };
            st_stager_submit(&s, &job);
            CHECK("stager-pieces are shared", st_stager_collect(&s) == &job && !job.failed);  // else it hangs
            pthread_barrier_destroy(&meeting);
        }
    }
    st_stager_free(&s);
}

// ---- threads sleep: asked of the kernel, not of a clock

struct task {
    long id;
    unsigned long switches;  // how often it went to sleep
    char state;
};

static struct task look(long id) {
    struct task task = { .id = id };
    char path[64], line[128];
    snprintf(path, sizeof path, "/proc/self/task/%ld/status", id);
    FILE * f = fopen(path, "r");
    CHECK("stager-/proc", f);
    while (fgets(line, sizeof line, f)) {
        (void) sscanf(line, "State: %c", &task.state);
        (void) sscanf(line, "voluntary_ctxt_switches: %lu", &task.switches);
    }
    fclose(f);
    return task;
}

static int list_tasks(long * ids, int most) {
    DIR * d = opendir("/proc/self/task");
    int n   = 0;
    CHECK("stager-/proc", d);
    for (const struct dirent * e = readdir(d); e && n < most; e = readdir(d)) {
        if (e->d_name[0] != '.') {
            ids[n++] = strtol(e->d_name, NULL, 10);
        }
    }
    closedir(d);
    return n;
}

// Waits until the thread sleeps and has not woken between two looks; a thread that polls never gets there.
static void until_it_sleeps(long id) {
    for (;;) {
        const struct task before = look(id);
        usleep(20000);
        const struct task after = look(id);
        if (before.state == 'S' && after.state == 'S' && before.switches == after.switches) {
            return;
        }
    }
}

static sem_t gate;
static long collector_id;

static int fill_gated(void * ctx, const struct st_job * job, int piece) {
    (void) ctx;
    (void) job;
    if (piece == 0) {  // whoever takes the other piece has nothing more to do
        while (sem_wait(&gate) != 0) {
        }
    }
    return 0;
}

static void * opens_the_gate(void * arg) {
    until_it_sleeps(collector_id);
    until_it_sleeps(*(const long *) arg);
    sem_post(&gate);
    return NULL;
}

static void threads_sleep(void) {
    struct st_stager s;
    long before[64], after[64], news[64];
    const int n_before = list_tasks(before, 64);
    CHECK("stager-init", st_stager_init(&s, fill_gated, NULL) == 0 && sem_init(&gate, 0, 0) == 0);
    CHECK("stager-threads as asked", st_stager_set_threads(&s, 4) == 4);
    const int n_after = list_tasks(after, 64);
    int n = 0;
    for (int i = 0; i < n_after; i++) {
        bool old = false;
        for (int k = 0; k < n_before; k++) {
            old = old || before[k] == after[i];
        }
        if (!old) {
            news[n++] = after[i];
        }
    }
    CHECK("stager-threads exist", n >= 4);
    for (int i = 0; i < n; i++) {
        until_it_sleeps(news[i]);  // nothing to do
    }
    CHECK("stager-threads as asked", st_stager_set_threads(&s, 1) == 1);
    collector_id = gettid();
    struct st_job job = { .n_pieces = 2 };
    pthread_t helper;
    CHECK("stager-helper", pthread_create(&helper, NULL, opens_the_gate, &news[n - 1]) == 0);
    st_stager_submit(&s, &job);
    CHECK("stager-sleeping collector is woken", st_stager_collect(&s) == &job);
    pthread_join(helper, NULL);
    for (int i = 0; i < n; i++) {
        until_it_sleeps(news[i]);
    }
    st_stager_free(&s);
    sem_destroy(&gate);
}

// ---- the system refuses a thread (linked with --wrap=pthread_create)

static int threads_granted = -1;  // -1: all
int __real_pthread_create(pthread_t * thread, const pthread_attr_t * attr, void * (*start)(void *), void * arg);
int __wrap_pthread_create(pthread_t * thread, const pthread_attr_t * attr, void * (*start)(void *), void * arg);

int __wrap_pthread_create(pthread_t * thread, const pthread_attr_t * attr, void * (*start)(void *), void * arg) {
    if (threads_granted == 0) {
        return 11;
    }
    threads_granted -= threads_granted > 0;
    return __real_pthread_create(thread, attr, start, arg);
}

static void threads_refused(void) {
    struct st_stager s;
    CHECK("stager-init", st_stager_init(&s, fill, jobs) == 0);
    threads_granted = 3;
    CHECK("stager-tells how many it got", st_stager_set_threads(&s, 5) == 3 && st_stager_set_threads(&s, 8) == 3);
    CHECK("stager-fewer are fine", st_stager_set_threads(&s, 2) == 2);
    int active = 2;
    round_now++;
    submit(&s, 0);
    const struct st_job * job = st_stager_collect(&s);
    back_again();
    CHECK("stager-works with fewer", job == &jobs[0]);
    collected(job);
    threads_granted = -1;
    CHECK("stager-asks again", st_stager_set_threads(&s, 5) == 5);
    active = 5;
    for (int i = 0; i < 20; i++) {
        one_round(&s, &active);
    }
    CHECK("stager-clamps", st_stager_set_threads(&s, -7) == 0 && st_stager_set_threads(&s, 1000) == ST_STAGER_MAX_THREADS);
    active = ST_STAGER_MAX_THREADS;
    one_round(&s, &active);
    st_stager_free(&s);
}

int main(int argc, char ** argv) {
    check_start(argc, argv);
    rng       = check_args.seed;
    collector = pthread_self();
    threads_sleep();
    all_take_part();
    threads_refused();
    for (uint64_t done = 0; done < check_args.steps;) {
        struct st_stager s;
        CHECK("stager-init", st_stager_init(&s, fill, jobs) == 0);
        int active = st_stager_set_threads(&s, below(&rng, MAX_THREADS + 1));
        for (int i = 0; i < 200 && done < check_args.steps; i++) {
            done += one_round(&s, &active);
        }
        st_stager_free(&s);
    }
    printf("ok: %llu steps\n", (unsigned long long) check_args.steps);
    return 0;
}
