// A SIMULATION of a transport, for tests of the pure parts; never part of the extension. It moves bytes, but
// no device is there, and it measures nothing.
//
// Copies run in the order in which they were queued, as transport.h says, but when they run is random: each
// call lets a random number of steps happen on the copy stream and on the compute streams, and each stream
// is at times quick, slow or stalled. A copy has two steps: at its start the destination is poisoned, at its
// end the bytes are copied. A compute stream holds reads, which look at the bytes at their start and at
// their end. So a missing order between a copy, its source, its destination and a read becomes a violation
// on some seed, with the name of what was missed. The same seed and calls give the same run.
//
// One thread calls it (the thread that decodes); it has no lock.
#ifndef STRATA_TRANSPORT_SIM_H
#define STRATA_TRANSPORT_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transport.h"

enum st_sim_violation {
    ST_SIM_SOURCE_CHANGED = 0,    // between the queueing and the end of a copy
    ST_SIM_SOURCE_UNKNOWN,        // a copy from memory that is not from memory_new
    ST_SIM_READ_TOO_EARLY,        // a read ran before a copy to its bytes that was queued earlier (RAW)
    ST_SIM_OVERWRITTEN_TOO_EARLY, // a copy started before a read of its destination that was queued earlier (WAR)
    ST_SIM_WRONG_BYTES,           // a read did not find what it was said to find
    ST_SIM_EVENT_NOT_RECORDED,    // query, wait, compute_waits or copies_after on an event that was never recorded
    ST_SIM_FREED_IN_FLIGHT,       // memory was freed while a copy from it was queued
    ST_SIM_DEADLOCK,              // nothing can run, and somebody waits
    ST_SIM_LEAK,                  // memory, events or compute streams are left at the end
    ST_SIM_NO_ORDER,              // a copy or set and a move to the same bytes, with no record between them
    ST_SIM_VIOLATIONS
};

enum st_sim_call {  // where a failure can be put
    ST_SIM_COPY = 0,  // it may or may not be queued all the same
    ST_SIM_RECORD,
    ST_SIM_QUERY,
    ST_SIM_WAIT,
    ST_SIM_COMPUTE_WAITS,
    ST_SIM_COPIES_WAIT,
    ST_SIM_MARK,
    ST_SIM_COPIES_AFTER,
    ST_SIM_MOVE,
    ST_SIM_SET,
    ST_SIM_EVENT_NEW,
    ST_SIM_MEMORY,  // memory_new returns -1
    ST_SIM_PIN,     // memory_new gives pageable memory
    ST_SIM_REFUSE,  // a copy; it may or may not be queued all the same, and the transport goes on
    ST_SIM_REFUSE_RECORD,  // a record; nothing is recorded, and the transport goes on
    ST_SIM_CALLS
};

struct st_sim_options {
    uint64_t seed;
    bool can_pin;
    // Called at a violation; NULL: the name is printed and the process aborts.
    void (*violated)(void * ctx, enum st_sim_violation what);
    // Called first in each of the calls that may fail but memory_new and event_new; may be NULL.
    void (*called)(void * ctx);
    void * ctx;
};

// NULL when memory is short.
struct st_transport * st_sim_new(const struct st_sim_options * options);
const char * st_sim_violation_name(enum st_sim_violation what);

// The `k`-th call of this kind from now on fails (1: the next one; 0: none). Events, memory, pins and
// ST_SIM_REFUSE... say no once; a failure of another kind fails the transport for good, while what was queued may
// still run.
void st_sim_fail_at(struct st_transport * t, enum st_sim_call call, uint64_t k);
bool st_sim_failed(const struct st_transport * t);

#define ST_SIM_USER_BYTES 64
// A compute stream, as compute_waits and copies_wait want it. Freeing it runs what is queued. Its first
// ST_SIM_USER_BYTES are the caller's: a ggml backend, where a part under test looks into it.
void * st_sim_compute_new(struct st_transport * t);
void st_sim_compute_free(struct st_transport * t, void * compute);
// Says whether `bytes` are what the read should find.
typedef bool (*st_sim_expect_fn)(void * ctx, uint64_t tag, const uint8_t * bytes, size_t size);
// Queues a read on the compute stream.
void st_sim_read(struct st_transport * t, void * compute, const void * src, size_t size, st_sim_expect_fn expect, void * ctx, uint64_t tag);
// Runs what is queued on the compute stream, and what that waits for.
void st_sim_synchronize(struct st_transport * t, void * compute);
// Lets a random number of steps happen.
void st_sim_advance(struct st_transport * t);
// How many queued copies still read from these host bytes.
int st_sim_reading(const struct st_transport * t, const void * host, size_t size);
// How many queued copies still write to these bytes.
int st_sim_writing(const struct st_transport * t, const void * dst, size_t size);
// Copies and reads that ran to their end.
uint64_t st_sim_n_copied(const struct st_transport * t);
uint64_t st_sim_n_read(const struct st_transport * t);

#endif
