// The stager with 0 to 8 threads that take part, changing while jobs run, jobs of 1 to 6 pieces, and failures; then
// with as many threads as it finds useful.
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
static _Atomic uint64_t fills, total, asked;  // of all rounds of one stager
static pthread_t collector;
static _Atomic int outside;  // pieces that another thread than the collector filled
static _Thread_local struct piece * last;
static _Thread_local uint64_t last_round;
static _Thread_local uint64_t thread_rng;

static struct st_pace_options chosen(int threads) {
    return (struct st_pace_options) { .wanted = ST_PROFILE_RAM, .first = { 0, threads, threads }, .most = { 0, ST_STAGER_MAX_THREADS, ST_STAGER_MAX_THREADS } };
}

static int init(struct st_stager * s, st_fill_fn fill_piece, void * ctx) {
    const struct st_pace_options options = chosen(0);
    return st_stager_init(s, fill_piece, ctx, &options);
}

static int set_threads(struct st_stager * s, int n) {
    const struct st_pace_options options = chosen(n);
    return st_stager_set(s, &options);
}

static void back_again(void) {  // this thread has accounted for its last piece
    if (last && last_round == atomic_load(&round_now)) {
        atomic_store(&last->known, ++clock_now);
    }
    last = NULL;
}

static int fill(void * ctx, const struct st_job * job, int piece, struct st_filled * filled) {
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
    *filled = (struct st_filled) { PIECE, one_in(&thread_rng, 3) ? -1 : p->fails };
    asked += filled->cached >= 0;
    total += PIECE;
    fills++;
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
            *active = set_threads(s, wanted);
            CHECK("stager-threads as asked", *active == wanted);
            changed = true;
        } else if (what < 9 && submitted < n) {
            submit(s, submitted++);
        } else if (what == 9) {
            CHECK("stager-open", st_stager_open(s) == submitted - done);
        } else {
            const bool poll = one_in(&rng, 4);
            struct st_job * job = poll ? st_stager_poll(s) : st_stager_collect(s);
            back_again();
            CHECK("stager-NULL only when no job is open", poll ? !job || submitted > done : (job != NULL) == (submitted > done));
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

static int fill_meeting(void * ctx, const struct st_job * job, int piece, struct st_filled * filled) {
    (void) ctx;
    (void) filled;
    (void) job;
    (void) piece;
    pthread_barrier_wait(&meeting);
    return 0;
}

static void all_take_part(void) {
    struct st_stager s;
    CHECK("stager-init", init(&s, fill_meeting, NULL) == 0);
    for (int n = 0; n <= MAX_THREADS; n++) {
        for (int i = 0; i < 3; i++) {
            const int threads = i == 2 ? MAX_THREADS - n : n;  // also after fewer were wanted
            CHECK("stager-threads as asked", set_threads(&s, threads) == threads);
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

static int fill_gated(void * ctx, const struct st_job * job, int piece, struct st_filled * filled) {
    (void) ctx;
    (void) filled;
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
    CHECK("stager-init", init(&s, fill_gated, NULL) == 0 && sem_init(&gate, 0, 0) == 0);
    CHECK("stager-threads as asked", set_threads(&s, 4) == 4);
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
    CHECK("stager-threads as asked", set_threads(&s, 1) == 1);
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
static int n_refused;
int __real_pthread_create(pthread_t * thread, const pthread_attr_t * attr, void * (*start)(void *), void * arg);
int __wrap_pthread_create(pthread_t * thread, const pthread_attr_t * attr, void * (*start)(void *), void * arg);

int __wrap_pthread_create(pthread_t * thread, const pthread_attr_t * attr, void * (*start)(void *), void * arg) {
    if (threads_granted == 0) {
        n_refused++;
        return 11;
    }
    threads_granted -= threads_granted > 0;
    return __real_pthread_create(thread, attr, start, arg);
}

static void threads_refused(void) {
    struct st_stager s;
    CHECK("stager-init", init(&s, fill, jobs) == 0);
    threads_granted = 3;
    CHECK("stager-tells how many it got", set_threads(&s, 5) == 3 && set_threads(&s, 8) == 3);
    CHECK("stager-fewer are fine", set_threads(&s, 2) == 2);
    int active = 2;
    round_now++;
    submit(&s, 0);
    const struct st_job * job = st_stager_collect(&s);
    back_again();
    CHECK("stager-works with fewer", job == &jobs[0]);
    collected(job);
    threads_granted = -1;
    CHECK("stager-asks again", set_threads(&s, 5) == 5);
    active = 5;
    for (int i = 0; i < 20; i++) {
        one_round(&s, &active);
    }
    CHECK("stager-clamps", set_threads(&s, 1000) == ST_STAGER_MAX_THREADS);
    active = ST_STAGER_MAX_THREADS;
    one_round(&s, &active);
    st_stager_free(&s);
}

// ---- as many threads as are useful: fills that sleep, as reads from a disk do

#define SLOW_JOBS 24
#define SLOW_PIECES 4

static _Atomic int cached_now;  // what fills answer

static int fill_slowly(void * ctx, const struct st_job * job, int piece, struct st_filled * filled) {
    (void) ctx;
    (void) job;
    (void) piece;
    usleep(400);
    *filled = (struct st_filled) { 1000, cached_now };
    return 0;
}

// A prompt's worth of jobs, never more than a few open.
static void slow_prompt(struct st_stager * s) {
    struct st_job slow[SLOW_JOBS];
    int submitted = 0, open = 0;
    while (submitted < SLOW_JOBS || open > 0) {
        if (submitted < SLOW_JOBS && open < 12) {
            slow[submitted] = (struct st_job) { .n_pieces = SLOW_PIECES };
            st_stager_submit(s, &slow[submitted++]);
            open++;
        } else {
            CHECK("stager-slow jobs end", st_stager_collect(s) != NULL);
            open--;
        }
    }
}

static void as_many_as_useful(void) {
    struct st_stager s;
    struct st_stager_report r;
    const struct st_pace_options options = { .wanted = ST_PROFILE_AUTO, .first = { 0, 1, 2 }, .most = { 0, 4, 16 } };
    CHECK("stager-init", st_stager_init(&s, fill_slowly, NULL, &options) == 0);
    CHECK("stager-begins with the first profile", st_stager_set(&s, &options) == 1 && st_stager_profile(&s) == ST_PROFILE_RAM);
    st_stager_sampled(&s, 20, 0);
    st_stager_report(&s, &r);
    CHECK("stager-samples choose the profile and its threads", st_stager_profile(&s) == ST_PROFILE_SSD && r.n_active == 2 && r.pace.changes == 1);
    cached_now = 0;
    do {  // else it hangs
        slow_prompt(&s);
        st_stager_report(&s, &r);
        CHECK("stager-within its bounds", r.n_active >= 1 && r.n_active <= 16);
    } while (r.pace.sides[ST_PROFILE_SSD].level < 3);
    cached_now = 1;
    slow_prompt(&s);
    st_stager_report(&s, &r);
    CHECK("stager-fills choose the profile, and fewer threads take part", st_stager_profile(&s) == ST_PROFILE_RAM && r.pace.changes == 2 && r.n_active <= 4);
    st_stager_free(&s);
}

static void as_many_as_there_are(void) {
    struct st_stager s;
    struct st_stager_report r;
    const struct st_pace_options options = { .wanted = ST_PROFILE_AUTO, .first = { 0, 1, 16 }, .most = { 0, 4, 16 } };
    CHECK("stager-init", st_stager_init(&s, fill_slowly, NULL, &options) == 0);
    threads_granted = 3;
    n_refused       = 0;
    cached_now      = 0;
    for (int i = 0; i < 10; i++) {
        slow_prompt(&s);
    }
    st_stager_report(&s, &r);
    CHECK("stager-goes on with the threads it has", st_stager_profile(&s) == ST_PROFILE_SSD && r.n_active == 3);
    CHECK("stager-a refused thread is not asked for with each job", n_refused <= 2);
    threads_granted = -1;
    CHECK("stager-asks again", st_stager_set(&s, &options) == st_pace_threads(&s.pace));
    st_stager_free(&s);
}

// Fills without failures; what the report adds up to.
static void adds_up(struct st_stager * s) {
    struct st_stager_report r;
    st_stager_report(s, &r);
    CHECK("stager-what was filled is counted", r.pieces == fills && r.bytes == total);
    CHECK("stager-answers are passed on", asked >= ST_PACE_ANSWERS ? r.pace.n_answers == ST_PACE_ANSWERS : (uint64_t) r.pace.n_answers == asked);
}

int main(int argc, char ** argv) {
    check_start(argc, argv);
    rng       = check_args.seed;
    collector = pthread_self();
    threads_sleep();
    all_take_part();
    threads_refused();
    as_many_as_useful();
    as_many_as_there_are();
    for (uint64_t done = 0; done < check_args.steps;) {
        struct st_stager s;
        CHECK("stager-init", init(&s, fill, jobs) == 0);
        fills = total = asked = 0;
        int active = set_threads(&s, below(&rng, MAX_THREADS + 1));
        for (int i = 0; i < 200 && done < check_args.steps; i++) {
            done += one_round(&s, &active);
        }
        adds_up(&s);
        st_stager_free(&s);
    }
    printf("ok: %llu steps\n", (unsigned long long) check_args.steps);
    return 0;
}
