// The few names of ggml that the parts under test mention, with just enough behind them to run on the simulated
// transport; what is only declared stands in the test program. Nothing here computes; the real headers are used everywhere else.
#ifndef STRATA_SHIM_GGML_IMPL_H
#define STRATA_SHIM_GGML_IMPL_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum ggml_type { GGML_TYPE_I8 = 24, GGML_TYPE_I32 = 26 };
enum ggml_op { GGML_OP_NONE = 0, GGML_OP_MUL_MAT_ID, GGML_OP_VIEW, GGML_OP_RESHAPE, GGML_OP_PERMUTE, GGML_OP_TRANSPOSE };
enum ggml_status { GGML_STATUS_FAILED = -1, GGML_STATUS_SUCCESS = 0, GGML_STATUS_ABORTED = 1 };
enum ggml_backend_buffer_usage { GGML_BACKEND_BUFFER_USAGE_WEIGHTS = 1 };

typedef struct ggml_backend * ggml_backend_t;  // what a transport calls a compute stream
typedef struct ggml_backend_buffer * ggml_backend_buffer_t;
typedef struct ggml_backend_buffer_type * ggml_backend_buffer_type_t;
typedef struct ggml_backend_device * ggml_backend_dev_t;

struct ggml_backend_buffer_type {
    void * context;
};
struct ggml_backend_buffer {
    void * base;
    ggml_backend_buffer_type_t buft;
};
struct ggml_tensor {
    enum ggml_type type;
    ggml_backend_buffer_t buffer;
    int64_t ne[4];
    size_t nb[4];
    enum ggml_op op;
    struct ggml_tensor * src[3];
    void * data;
    void * extra;
    char name[16];
};
struct ggml_cgraph {
    int n_nodes;
    struct ggml_tensor ** nodes;
};
struct ggml_backend {  // in the simulation's stream, see ST_SIM_USER_BYTES
    struct {
        void (*get_tensor_async)(ggml_backend_t backend, const struct ggml_tensor * tensor, void * data, size_t offset, size_t size);
    } iface;
};
struct ggml_backend_device {
    void * context;
};
struct ggml_backend_reg {
    void * context;
};

static inline size_t ggml_type_size(enum ggml_type type) {
    return type == GGML_TYPE_I32 ? 4 : 1;
}

static inline size_t ggml_row_size(enum ggml_type type, int64_t ne) {
    return ggml_type_size(type) * (size_t) ne;
}

static inline size_t ggml_nbytes(const struct ggml_tensor * t) {  // whole rows
    return t->nb[1] * (size_t) t->ne[1];
}

static inline const char * ggml_op_name(enum ggml_op op) {
    return op == GGML_OP_MUL_MAT_ID ? "MUL_MAT_ID" : "another";
}

static inline void * ggml_backend_buffer_get_base(ggml_backend_buffer_t buffer) {
    return buffer->base;
}

static inline void ggml_backend_buffer_set_usage(ggml_backend_buffer_t buffer, enum ggml_backend_buffer_usage usage) {
    (void) buffer, (void) usage;
}

static inline const char * ggml_backend_dev_name(ggml_backend_dev_t device) {
    (void) device;
    return "the device";
}

static inline ggml_backend_buffer_type_t ggml_backend_dev_buffer_type(ggml_backend_dev_t device) {
    (void) device;
    return NULL;
}

ggml_backend_buffer_t ggml_backend_buft_alloc_buffer(ggml_backend_buffer_type_t type, size_t size);
void ggml_backend_synchronize(ggml_backend_t backend);
void ggml_backend_buffer_free(ggml_backend_buffer_t buffer);
void ggml_backend_tensor_get(const struct ggml_tensor * tensor, void * data, size_t offset, size_t size);

#endif
