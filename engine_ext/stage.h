// The stage pool: host buffers in which blobs are put together from the file before their copy.
// Pure: it sees the world through transport.h alone.
//
//   FREE -> FILLING -> READY -> IN_FLIGHT(event) -> FREE
//
// A buffer is filled again only when its copy was queued *and* its event completed. Age and distance never
// count. The pool has a hard cap: when nothing is free the claimer waits on the oldest event. A ticket is
// the right to one buffer; it ends when its copy's event has completed (or when it is given up before a
// copy was queued). A pageable buffer follows the same states.
//
// One thread claims, queues and waits (the thread that decodes); other threads only write into the data of
// buffers that are FILLING. No lock is held while waiting, so nothing that a completion needs is blocked.
#ifndef STRATA_STAGE_H
#define STRATA_STAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transport.h"

enum st_stage_state { ST_STAGE_FREE = 0, ST_STAGE_FILLING, ST_STAGE_READY, ST_STAGE_IN_FLIGHT };

struct st_stage_buffer {
    uint8_t * data;
    void * event;
    enum st_stage_state state;
    uint64_t queued;  // order of queueing among the buffers in flight
    bool recorded;    // an event that was never recorded would count as complete on CUDA
};

struct st_stage_pool {
    struct st_transport * transport;
    struct st_stage_buffer * buffers;
    int n_buffers;
    size_t buffer_size;
    // A few large allocations, because pinning has a cost per call. When the driver refuses one, it and the
    // later ones are pageable; pinning is tried again when the pool is built anew.
    struct st_memory * slabs;
    int n_slabs;
    size_t pinned, pageable, refused;  // bytes; what was refused is pageable, too
    uint64_t n_queued;
};

struct st_copy {  // one piece of a blob: from an offset in the buffer to a place in the arena
    size_t src_offset;
    void * dst;
    size_t size;
};

// Memory for `n` buffers of `size` bytes in slabs of at most `slab_size` bytes (at least one buffer each),
// page-locked if `pin` and as far as the driver agrees. Returns 0, or -1 when memory is short or the transport
// failed.
int st_stage_init(struct st_stage_pool * p, struct st_transport * t, int n, size_t size, size_t slab_size, bool pin);
// Waits for the copies in flight, then frees. No buffer may be FILLING.
void st_stage_free(struct st_stage_pool * p);

// FREE -> FILLING. Returns a buffer, or -1 when none is free now, or -2 when the transport failed.
int st_stage_try_claim(struct st_stage_pool * p);
// Sleeps until the oldest copy in flight has completed and frees its buffer. Returns 1, 0 when nothing is in
// flight, or -2 when the transport failed.
int st_stage_wait_oldest(struct st_stage_pool * p);
// FILLING -> READY: the bytes are all there.
void st_stage_ready(struct st_stage_pool * p, int b);
// READY -> IN_FLIGHT: queues the copies and records the buffer's event. On failure (-2) the buffer is IN_FLIGHT
// too, since some copies may have been queued: it becomes free when its event, recorded behind them, has
// completed, or never, where even that could not be recorded.
int st_stage_queue(struct st_stage_pool * p, int b, const struct st_copy * copies, int n);
// FILLING or READY -> FREE: nothing was queued from it (a failed read, a cancel).
void st_stage_give_up(struct st_stage_pool * p, int b);
// Waits until nothing is in flight. Returns 0 or -2.
int st_stage_drain(struct st_stage_pool * p);

#endif
