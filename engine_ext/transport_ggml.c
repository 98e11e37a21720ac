#include "transport_ggml.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ggml-backend-impl.h"
#include "ggml-impl.h"

// ggml's events can be recorded and waited for by a stream, but not queried, and the host's synchronise spins
// a core. An event's handle is a CUDA event, so events are made here by the driver itself, with blocking
// synchronisation, and wrapped in ggml's struct; recording and stream waits stay ggml's.
typedef void * cu_context;
typedef void * cu_event;
enum { CU_EVENT_BLOCKING_SYNC = 1, CU_EVENT_DISABLE_TIMING = 2, CUDA_ERROR_NOT_READY = 600 };

struct driver {
    void * library;
    int (*device_by_pci)(int * device, const char * id);
    int (*retain)(cu_context * context, int device);
    int (*release)(int device);
    int (*push)(cu_context context);
    int (*pop)(cu_context * context);
    int (*event_create)(cu_event * event, unsigned flags);
    int (*event_destroy)(cu_event event);
    int (*event_query)(cu_event event);
    int (*event_synchronize)(cu_event event);
};

#define MAX_BUFFERS 16

struct ggml_transport {
    struct st_transport base;
    ggml_backend_dev_t dev;
    ggml_backend_t copies;  // the copy stream
    struct driver cu;
    int device;
    cu_context context;
    struct ggml_backend_event * compute_mark;  // recorded on a compute stream, waited for by the copy stream
    struct ggml_tensor buffers[MAX_BUFFERS];   // one flat tensor over each arena
    int n_buffers;
};

#define GT(base) ((struct ggml_transport *) (base))

static bool load(void * library, const char * name, void * out) {
    void * symbol = dlsym(library, name);
    memcpy(out, &symbol, sizeof symbol);
    return symbol != NULL;
}

static bool driver_open(struct driver * cu) {
    cu->library = dlopen("libcuda.so.1", RTLD_NOW);
    return cu->library && load(cu->library, "cuDeviceGetByPCIBusId", &cu->device_by_pci) &&
           load(cu->library, "cuDevicePrimaryCtxRetain", &cu->retain) &&
           load(cu->library, "cuDevicePrimaryCtxRelease_v2", &cu->release) &&
           load(cu->library, "cuCtxPushCurrent_v2", &cu->push) && load(cu->library, "cuCtxPopCurrent_v2", &cu->pop) &&
           load(cu->library, "cuEventCreate", &cu->event_create) &&
           load(cu->library, "cuEventDestroy_v2", &cu->event_destroy) &&
           load(cu->library, "cuEventQuery", &cu->event_query) &&
           load(cu->library, "cuEventSynchronize", &cu->event_synchronize);
}

static struct ggml_tensor * find_buffer(struct ggml_transport * t, const void * dst, size_t size) {
    for (int i = 0; i < t->n_buffers; i++) {
        const char * base = t->buffers[i].data;
        const size_t n    = (size_t) t->buffers[i].ne[0];
        if ((const char *) dst >= base && (size_t) ((const char *) dst - base) <= n - size && size <= n) {
            return &t->buffers[i];
        }
    }
    return NULL;
}

static int gt_copy(struct st_transport * base, void * dst, const void * src, size_t size) {
    struct ggml_transport * t  = GT(base);
    struct ggml_tensor * arena = find_buffer(t, dst, size);
    if (!arena) {
        return -1;
    }
    t->copies->iface.set_tensor_async(t->copies, arena, src, (size_t) ((char *) dst - (char *) arena->data), size);
    return 0;
}

static void * gt_event_new(struct st_transport * base) {
    struct ggml_transport * t = GT(base);
    struct ggml_backend_event * event = calloc(1, sizeof *event);
    if (!event) {
        return NULL;
    }
    cu_context old;
    if (t->cu.push(t->context) != 0) {
        free(event);
        return NULL;
    }
    const int r = t->cu.event_create(&event->context, CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING);
    t->cu.pop(&old);
    if (r != 0) {
        free(event);
        return NULL;
    }
    event->device = t->dev;
    return event;
}

static void gt_event_free(struct st_transport * base, void * event) {
    struct ggml_backend_event * e = event;
    (void) GT(base)->cu.event_destroy(e->context);
    free(e);
}

static int gt_record(struct st_transport * base, void * event) {
    GT(base)->copies->iface.event_record(GT(base)->copies, event);
    return 0;
}

static int gt_query(struct st_transport * base, void * event) {
    const int r = GT(base)->cu.event_query(((struct ggml_backend_event *) event)->context);
    return r == 0 ? 1 : r == CUDA_ERROR_NOT_READY ? 0 : -1;
}

static int gt_wait(struct st_transport * base, void * event) {
    return GT(base)->cu.event_synchronize(((struct ggml_backend_event *) event)->context) == 0 ? 0 : -1;
}

static int gt_compute_waits(struct st_transport * base, void * compute, void * event) {
    (void) base;
    ggml_backend_t b = compute;
    b->iface.event_wait(b, event);
    return 0;
}

static int gt_copies_wait(struct st_transport * base, void * compute) {
    struct ggml_transport * t = GT(base);
    ggml_backend_t b = compute;
    b->iface.event_record(b, t->compute_mark);
    t->copies->iface.event_wait(t->copies, t->compute_mark);
    return 0;
}

static int gt_memory_new(struct st_transport * base, size_t size, bool pin, struct st_memory * m) {
    struct ggml_transport * t = GT(base);
    *m = (struct st_memory) { 0 };
    if (pin) {
        ggml_backend_buffer_type_t type = ggml_backend_dev_host_buffer_type(t->dev);
        ggml_backend_buffer_t buffer    = type ? ggml_backend_buft_alloc_buffer(type, size) : NULL;
        if (buffer && ggml_backend_buffer_get_type(buffer) == type) {
            *m = (struct st_memory) { .data = ggml_backend_buffer_get_base(buffer), .size = size, .pinned = true, .handle = buffer };
            memset(m->data, 0, size);
            return 0;
        }
        // When the driver refuses, CUDA's host buffer type hands out plain memory without a word.
        if (buffer) {
            ggml_backend_buffer_free(buffer);
        }
    }
    const size_t rounded = (size + 63) & ~(size_t) 63;
    void * data = rounded < size ? NULL : aligned_alloc(64, rounded);
    if (!data) {
        return -1;
    }
    memset(data, 0, rounded);
    *m = (struct st_memory) { .data = data, .size = size };
    return 0;
}

static void gt_memory_free(struct st_transport * base, struct st_memory * m) {
    (void) base;
    if (m->handle) {
        ggml_backend_buffer_free(m->handle);
    } else {
        free(m->data);
    }
    *m = (struct st_memory) { 0 };
}

static void gt_free(struct st_transport * base) {
    struct ggml_transport * t = GT(base);
    if (t->copies) {
        ggml_backend_synchronize(t->copies);
        ggml_backend_free(t->copies);
    }
    if (t->compute_mark) {
        gt_event_free(base, t->compute_mark);
    }
    if (t->context) {
        t->cu.release(t->device);
    }
    if (t->cu.library) {
        dlclose(t->cu.library);
    }
    free(t);
}

static const struct st_transport_i ggml_iface = {
    .name = "copy stream",
    .can_pin = true,
    .copy = gt_copy,
    .event_new = gt_event_new,
    .event_free = gt_event_free,
    .record = gt_record,
    .query = gt_query,
    .wait = gt_wait,
    .compute_waits = gt_compute_waits,
    .copies_wait = gt_copies_wait,
    .memory_new = gt_memory_new,
    .memory_free = gt_memory_free,
    .free = gt_free,
};

struct st_transport * st_transport_ggml_new(ggml_backend_dev_t dev, char * why, size_t why_size) {
    struct ggml_backend_dev_props props;
    ggml_backend_dev_get_props(dev, &props);
    struct ggml_transport * t = calloc(1, sizeof *t);
    if (!t) {
        snprintf(why, why_size, "out of memory");
        return NULL;
    }
    t->base.iface = &ggml_iface;
    t->dev        = dev;
    if (!props.device_id || !driver_open(&t->cu) || t->cu.device_by_pci(&t->device, props.device_id) != 0 ||
        t->cu.retain(&t->context, t->device) != 0) {
        snprintf(why, why_size, "the NVIDIA driver library (libcuda.so.1) does not offer what copies on %s need", ggml_backend_dev_name(dev));
        gt_free(&t->base);
        return NULL;
    }
    t->copies = ggml_backend_dev_init(dev, NULL);
    if (!t->copies || !t->copies->iface.set_tensor_async || !t->copies->iface.event_record || !t->copies->iface.event_wait) {
        snprintf(why, why_size, "%s has no asynchronous copies", ggml_backend_dev_name(dev));
        gt_free(&t->base);
        return NULL;
    }
    t->compute_mark = gt_event_new(&t->base);
    if (!t->compute_mark) {
        snprintf(why, why_size, "the NVIDIA driver refused an event");
        gt_free(&t->base);
        return NULL;
    }
    return &t->base;
}

int st_transport_ggml_add_buffer(struct st_transport * base, ggml_backend_buffer_t buffer) {
    struct ggml_transport * t = GT(base);
    if (t->n_buffers == MAX_BUFFERS) {
        return -1;
    }
    struct ggml_tensor * flat = &t->buffers[t->n_buffers++];
    memset(flat, 0, sizeof *flat);
    const size_t size = ggml_backend_buffer_get_size(buffer);
    flat->type   = GGML_TYPE_I8;
    flat->ne[0]  = (int64_t) size;
    flat->ne[1]  = flat->ne[2] = flat->ne[3] = 1;
    flat->nb[0]  = 1;
    flat->nb[1]  = flat->nb[2] = flat->nb[3] = size;
    flat->buffer = buffer;
    flat->data   = ggml_backend_buffer_get_base(buffer);
    return 0;
}
