// A transport to a CUDA device, under ggml: a copy stream of its own, beside the streams of ggml's backends.
#ifndef STRATA_TRANSPORT_GGML_H
#define STRATA_TRANSPORT_GGML_H

#include <stdbool.h>
#include <stddef.h>

#include "ggml-backend.h"
#include "transport.h"

// `why` receives one sentence on failure. The compute streams passed to the transport are inner backends
// (ggml_backend_t) of the same device.
struct st_transport * st_transport_ggml_new(ggml_backend_dev_t dev, char * why, size_t why_size);

// For benches: events that are made from now on can be measured (which costs the copy stream a little), or not.
void st_transport_ggml_timed(struct st_transport * t, bool timed);

// For tests: after so many more allocations of pinned memory the driver "refuses"; -1: it is asked again.
void st_transport_ggml_refuse(struct st_transport * t, int after);

// For benches: copies complete no faster than a link of this many GB/s (10^9 bytes) would carry them, on the
// copy stream; 0 takes the limit away. While nothing is queued.
void st_transport_ggml_limit(struct st_transport * t, double gigabytes_per_second);

// Microseconds between two completed events that can be measured, or -1.
double st_transport_ggml_elapsed_us(struct st_transport * t, void * start, void * end);

#endif
