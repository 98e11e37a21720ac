// The few names of ggml that tier.h mentions, with just enough behind them for the parts under test to run on the
// simulated transport; what is only declared stands in the test program. Nothing here computes; the real headers are used everywhere else.
#ifndef STRATA_SHIM_GGML_IMPL_H
#define STRATA_SHIM_GGML_IMPL_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum ggml_type { GGML_TYPE_I8 = 24 };
enum ggml_status { GGML_STATUS_FAILED = -1, GGML_STATUS_SUCCESS = 0, GGML_STATUS_ABORTED = 1 };

struct ggml_backend_buffer {
    void * base;
};
struct ggml_tensor {
    enum ggml_type type;
    void * data;
};
struct ggml_backend_device {
    void * context;
};
struct ggml_backend_reg {
    void * context;
};
struct ggml_backend_buffer_type {
    void * context;
};
struct ggml_cgraph;

typedef void * ggml_backend_t;  // what a transport calls a compute stream
typedef struct ggml_backend_buffer * ggml_backend_buffer_t;
typedef struct ggml_backend_device * ggml_backend_dev_t;

static inline size_t ggml_row_size(enum ggml_type type, int64_t ne) {
    (void) type;
    return (size_t) ne;  // one byte an element
}

static inline void * ggml_backend_buffer_get_base(ggml_backend_buffer_t buffer) {
    return buffer->base;
}

void ggml_backend_synchronize(ggml_backend_t backend);
void ggml_backend_buffer_free(ggml_backend_buffer_t buffer);
void ggml_backend_tensor_get(const struct ggml_tensor * tensor, void * data, size_t offset, size_t size);

#endif
