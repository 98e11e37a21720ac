// The stager: threads that fill stage buffers. Pure: what filling means is the caller's function.
//
// A job is one blob; it is cut into pieces so that several threads (and the thread that waits) share one
// blob, which is what a decode miss waits for. Threads that have nothing to do, or are not to take part, sleep on
// condition variables. How many take part follows pace.h, by what the fills said and how long they took.
#ifndef STRATA_STAGER_H
#define STRATA_STAGER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pace.h"

#define ST_STAGER_MAX_THREADS 32

struct st_job {
    int32_t key;     // the expert
    void * dst;      // where its blob is put together
    int tag;         // the caller's, for example the stage buffer
    int class_index; // the caller's
    int slice;       // the caller's: one slice of `count` experts from `key` on, or -1: the whole blob of `key`
    int32_t count;
    bool counted;    // the caller's: the fill is part of a reply
    int n_pieces;    // set by the caller, at least 1
    // Below: the stager's, under its lock.
    int next_piece;
    int left;
    bool failed;
    struct st_job * next;
};

struct st_filled {  // what filling one piece found out
    size_t bytes;
    int cached;  // 1: the page cache held all of it; 0: not; -1: it was not asked
};

// Fills piece `piece` of the job. Called from any thread, never twice for the same piece. Returns 0, or
// a negative number when bytes are missing.
typedef int (*st_fill_fn)(void * ctx, const struct st_job * job, int piece, struct st_filled * filled);

struct st_stager {
    pthread_mutex_t lock;
    pthread_cond_t work;   // there are pieces to take
    pthread_cond_t parked; // the number of threads that take part changed, or the end
    pthread_cond_t done;   // a job was finished, or a thread is there
    pthread_t threads[ST_STAGER_MAX_THREADS];
    int n_threads;         // that exist
    int n_active;          // that take part
    int n_idle;            // that wait for work
    int granted;           // as many threads the system agreed to when it last refused one
    bool stop;
    st_fill_fn fill;
    void * fill_ctx;
    struct st_job * todo_head, * todo_tail;  // jobs with pieces nobody took yet
    struct st_job * done_head, * done_tail;
    int n_todo;            // pieces nobody took yet
    int n_open;            // jobs submitted and not yet collected
    int n_unfinished;      // jobs submitted and not yet finished
    struct st_pace pace;
    _Atomic int profile;   // the pace's, to be read without the lock
    // Since the stager was made; times in nanoseconds.
    uint64_t bytes, pieces, fill_ns;  // fill_ns: of all threads together
    uint64_t busy_ns, busy_since;     // at least one job was unfinished; since when, while one is
    uint64_t waited_ns;               // the collecting thread waited, or filled pieces itself
    struct { uint64_t bytes, pieces, busy_ns, waited_ns, at; } window;  // the same at the last window's end
};

struct st_stager_report {
    struct st_pace pace;
    int n_active;
    uint64_t bytes, pieces, fill_ns, waited_ns;
};

int st_stager_init(struct st_stager * s, st_fill_fn fill, void * ctx, const struct st_pace_options * options);
void st_stager_free(struct st_stager * s);  // no job may be open
// Sets profile and threads anew: as wanted, or to be found. Creates threads as needed. Returns the number that take
// part now: it is smaller when the system refuses threads. One thread at a time may call it and what follows, except
// where it says any thread.
int st_stager_set(struct st_stager * s, const struct st_pace_options * options);
// Before a prompt: so many of `n` samples were in the page cache.
void st_stager_sampled(struct st_stager * s, int n, int cached);
void st_stager_submit(struct st_stager * s, struct st_job * job);
// The next finished job, in order of completion; the caller fills pieces itself while there are some, then
// sleeps. NULL when no job is open. `job->failed` tells whether a piece failed.
struct st_job * st_stager_collect(struct st_stager * s);
// The next finished job if there is one now, else NULL: neither fills nor waits.
struct st_job * st_stager_poll(struct st_stager * s);
int st_stager_open(struct st_stager * s);                                     // any thread
enum st_profile st_stager_profile(struct st_stager * s);                      // any thread
void st_stager_report(struct st_stager * s, struct st_stager_report * report);  // any thread

#endif
