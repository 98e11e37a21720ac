// Measurements of the transport and the stage pool, for `strata-tui bench stage`. On a CUDA device only.
#ifndef STRATA_PROBE_H
#define STRATA_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ggml-backend.h"

struct st_probe {
    // in
    size_t size;     // bytes a copy
    int ring;        // buffers
    int copies;
    bool pin;
    bool fill;       // a fresh blob is written into the buffer right before its copy
    bool pooled;     // through the stage pool's states; else bare copies
    bool pipelined;  // no wait after each copy: the pool's back-pressure alone
    double limit;    // GB/s, 0: none
    // out
    double * host_us;    // [copies] time of the calling thread to queue one copy (without the fill)
    double * device_us;  // [copies] on the copy stream, from before to after the copy; not when pipelined
    double total_s;      // from the first to the end of the last
    double wait_wall_s, wait_cpu_s;  // of the waits of the calling thread
    bool pinned;         // what the driver granted
    bool equal;          // the last copy's bytes were read back and compared
    char error[160];
};

// 0, or -1 with `error`.
int st_probe_run(ggml_backend_dev_t dev, struct st_probe * p);

#endif
