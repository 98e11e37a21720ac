// The stager: threads that fill stage buffers. Pure: what filling means is the caller's function.
//
// A job is one blob; it is cut into pieces so that several threads (and the thread that waits) share one
// blob, which is what a decode miss waits for. Threads sleep on a condition variable when there is nothing
// to do. The number of threads that take part can change at any time.
#ifndef STRATA_STAGER_H
#define STRATA_STAGER_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ST_STAGER_MAX_THREADS 32

struct st_job {
    int32_t key;     // the expert
    void * dst;      // where its blob is put together
    int tag;         // the caller's, for example the stage buffer
    int class_index; // the caller's
    int slice;       // the caller's: one slice of `count` experts from `key` on, or -1: the whole blob of `key`
    int32_t count;
    bool mapped;     // the caller's: copy from the mapping, or read
    int n_pieces;    // set by the caller, at least 1
    // Below: the stager's, under its lock.
    int next_piece;
    int left;
    bool failed;
    struct st_job * next;
};

// Fills piece `piece` of the job. Called from any thread, never twice for the same piece. Returns 0, or
// a negative number when bytes are missing.
typedef int (*st_fill_fn)(void * ctx, const struct st_job * job, int piece);

struct st_stager {
    pthread_mutex_t lock;
    pthread_cond_t work;   // there are pieces to take, or the number of threads changed, or the end
    pthread_cond_t done;   // a job was finished
    pthread_t threads[ST_STAGER_MAX_THREADS];
    int n_threads;         // that exist
    int n_active;          // that take part
    bool stop;
    st_fill_fn fill;
    void * fill_ctx;
    struct st_job * todo_head, * todo_tail;  // jobs with pieces nobody took yet
    struct st_job * done_head, * done_tail;
    int n_open;            // submitted and not yet collected
};

int st_stager_init(struct st_stager * s, st_fill_fn fill, void * ctx);
void st_stager_free(struct st_stager * s);  // no job may be open
// Creates threads as needed (0 to ST_STAGER_MAX_THREADS take part). Returns the number that take part: it is
// smaller when the system refuses threads. One thread at a time may call it.
int st_stager_set_threads(struct st_stager * s, int n);
void st_stager_submit(struct st_stager * s, struct st_job * job);
// The next finished job, in order of completion; the caller fills pieces itself while there are some, then
// sleeps. NULL when no job is open. `job->failed` tells whether a piece failed.
struct st_job * st_stager_collect(struct st_stager * s);
int st_stager_open(struct st_stager * s);

#endif
