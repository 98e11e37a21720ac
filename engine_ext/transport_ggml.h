// A transport over a ggml device with its own streams (CUDA): a second backend of the same device is the
// copy stream.
#ifndef STRATA_TRANSPORT_GGML_H
#define STRATA_TRANSPORT_GGML_H

#include "ggml-backend.h"
#include "transport.h"

// `why` receives one sentence on failure. The compute streams passed to the transport are inner backends
// (ggml_backend_t) of the same device.
struct st_transport * st_transport_ggml_new(ggml_backend_dev_t dev, char * why, size_t why_size);

// Copies go to a place inside the buffer that holds `dst`; the transport is told about it once.
int st_transport_ggml_add_buffer(struct st_transport * t, ggml_backend_buffer_t buffer);

#endif
