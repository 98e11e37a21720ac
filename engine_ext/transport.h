// The only door to asynchronous copies and their events.
//
// A transport has one copy stream: copies run in the order in which they were queued, beside the compute
// streams. An event recorded on it completes when everything queued before it has completed. A compute
// stream is named by an opaque pointer (a ggml backend in the real transports).
//
// Copies within device memory ("moves") may run beside the copy stream's own, so that the link does not idle:
// the order of a move and of what else writes there is given across a record only. So between two records no
// copy or set may go to bytes that a move reads or writes. An event recorded after a move covers it, too.
//
// Every function that returns int returns 0 (or what it says) on success and a negative number on failure.
// A copy may be refused without harm to those queued before it; after any other failure the transport is of
// no use, and what was queued on it is unknown.
#ifndef STRATA_TRANSPORT_H
#define STRATA_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>

struct st_memory {  // host memory that copies read from
    void * data;
    size_t size;
    bool pinned;
    void * handle;  // the transport's
};

struct st_transport;

struct st_transport_i {
    const char * name;
    bool can_pin;
    // Queues a copy of `size` host bytes to `dst` in slot memory. `src` must stay unchanged, and `dst` unread,
    // until an event recorded after this call has completed.
    int (*copy)(struct st_transport * t, void * dst, const void * src, size_t size);
    void * (*event_new)(struct st_transport * t);  // NULL on failure
    void (*event_free)(struct st_transport * t, void * event);
    int (*record)(struct st_transport * t, void * event);
    int (*query)(struct st_transport * t, void * event);  // 1 completed, 0 not yet. Only after record or mark.
    int (*wait)(struct st_transport * t, void * event);   // the calling thread sleeps until it completed
    // Work queued on the compute stream after this call starts only when the event has completed (RAW).
    int (*compute_waits)(struct st_transport * t, void * compute, void * event);
    // Copies queued after this call start only when all work queued so far on the compute stream is done (WAR).
    int (*copies_wait)(struct st_transport * t, void * compute);
    // Records an event on the compute stream: it completes when all work queued there so far is done.
    int (*mark)(struct st_transport * t, void * compute, void * event);
    // Copies, moves and sets queued after this call start only when the event has completed.
    int (*copies_after)(struct st_transport * t, void * event);
    // Queues a move of `size` bytes from slot memory to slot memory; see above.
    int (*move)(struct st_transport * t, void * dst, const void * src, size_t size);
    // Queues, as a copy, that `size` bytes of slot memory become `value`.
    int (*set)(struct st_transport * t, void * dst, unsigned char value, size_t size);
    // Queues work of the CPU on the compute stream, where that is the transport's (else NULL: the device has its
    // own). What `arg` points to must live until an event marked after this call has completed.
    int (*post)(struct st_transport * t, void (*work)(void * arg), void * arg);
    // Host memory, page-locked if `pin` and the driver agrees; `m->pinned` tells. Negative: no memory at all.
    int (*memory_new)(struct st_transport * t, size_t size, bool pin, struct st_memory * m);
    void (*memory_free)(struct st_transport * t, struct st_memory * m);
    void (*free)(struct st_transport * t);  // drains first
};

struct st_transport {
    const struct st_transport_i * iface;
};

#endif
