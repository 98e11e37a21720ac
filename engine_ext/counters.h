// The engine's counters: one struct per phase, each field defined here and nowhere else.
//
// Written by the thread that decodes and the stager's, read by any thread: relaxed atomics, because a reader wants recent
// numbers and no ordering between them.
#ifndef STRATA_COUNTERS_H
#define STRATA_COUNTERS_H

#include <stdatomic.h>
#include <stdint.h>

// X(field): the same names stand in strata_tui/engine/counters.py (PhaseCounters).
#define ST_COUNTERS(X)                                                                                  \
    X(picks)        /* routed picks: one per token, layer and used expert */                            \
    X(hits)         /* picks whose expert was resident when its layer (or its part of a batch) ran */   \
    X(misses)       /* picks - hits */                                                                  \
    X(loads)        /* blobs brought to the device */                                                   \
    X(loads_mirror) /* ... of these, copied straight from the mirror */                                 \
    X(loads_staged) /* ... of these, put together in a stage buffer from the file */                    \
    X(evictions)    /* residents that lost their slot to another expert */                              \
    X(bytes_copied) /* bytes queued to the device */                                                    \
    X(streamed)     /* blobs that passed through the ring, once for each batch */                       \
    X(moved)        /* ... of these, copied from their own slots */                                     \
    X(rounds)       /* graphs computed that hold expert operations */                                   \
    X(cuts)         /* places where a graph was cut to read expert ids */                               \
    X(split_passes) /* passes beyond the first of an operation that was run in several token windows */ \
    X(wait_ns)      /* host time spent waiting for stage buffers, fills and copies */                   \
    X(bytes_filled) /* bytes read from the file into stage buffers */                                   \
    X(bytes_direct) /* ... of these, past the page cache */                                             \
    X(asks)         /* reads and samples that were asked whether the page cache holds them */           \
    X(asks_cached)  /* ... of these, those that it held */                                              \
    X(ask_ns)       /* time of samples, and of asking where the answer was no (that may begin the read) */

struct st_phase_counters {
#define ST_FIELD(name) _Atomic uint64_t name;
    ST_COUNTERS(ST_FIELD)
#undef ST_FIELD
};

struct st_layer_counters {  // picks and hits of one layer alone
    _Atomic uint64_t picks, hits;
};

enum st_phase { ST_PHASE_PROMPT = 0, ST_PHASE_DECODE = 1, ST_PHASES = 2 };

#define ST_COUNT(phase_counters, field, n) \
    atomic_fetch_add_explicit(&(phase_counters)->field, (uint64_t) (n), memory_order_relaxed)

#endif
