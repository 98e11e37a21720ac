#include "transport_ggml.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "clock.h"
#include "ggml-backend-impl.h"
#include "ggml-impl.h"

// The copy stream and its events are the NVIDIA driver's own, found at run time: ggml's events cannot be
// queried, its host synchronise spins a core, and it ends the process at the first error. A CUDA event is a
// CUDA event, so ours is wrapped in ggml's struct where a ggml backend records it or waits for it.
typedef void * cu_context;
typedef void * cu_stream;
typedef void * cu_event;
typedef unsigned long long cu_pointer;
enum { CU_STREAM_NON_BLOCKING = 1, CU_EVENT_BLOCKING_SYNC = 1, CU_EVENT_DISABLE_TIMING = 2, CUDA_ERROR_NOT_READY = 600 };

struct driver {
    void * library;
    int (*device_by_pci)(int * device, const char * id);
    int (*retain)(cu_context * context, int device);
    int (*release)(int device);
    int (*push)(cu_context context);
    int (*pop)(cu_context * context);
    int (*stream_create)(cu_stream * stream, unsigned flags);
    int (*stream_destroy)(cu_stream stream);
    int (*stream_synchronize)(cu_stream stream);
    int (*stream_wait)(cu_stream stream, cu_event event, unsigned flags);
    int (*launch_host)(cu_stream stream, void (*f)(void *), void * data);
    int (*copy)(cu_pointer dst, const void * src, size_t size, cu_stream stream);
    int (*copy_device)(cu_pointer dst, cu_pointer src, size_t size, cu_stream stream);
    int (*memset_bytes)(cu_pointer dst, unsigned char value, size_t n, cu_stream stream);
    int (*current)(cu_context * context);
    int (*event_create)(cu_event * event, unsigned flags);
    int (*event_destroy)(cu_event event);
    int (*event_record)(cu_event event, cu_stream stream);
    int (*event_query)(cu_event event);
    int (*event_synchronize)(cu_event event);
    int (*event_elapsed)(float * ms, cu_event start, cu_event end);
};

struct ggml_transport {
    struct st_transport base;
    ggml_backend_dev_t dev;
    struct driver cu;
    int device;
    cu_context context;
    cu_stream copies;
    cu_stream moves;     // copies within the device, beside those over the link
    bool moving;         // moves were queued since the last record
    struct ggml_backend_event * lane_mark;     // orders the two streams
    struct ggml_backend_event * compute_mark;  // recorded on a compute stream, waited for by the copy stream
    int refuse_after;                          // pins granted before the next are refused; below 0: no such rule
    bool pushed;                               // by enter(), to be undone by leave()
    bool timed;                                // events can be measured: benches only
    // The throttle of benches: nanoseconds a byte, and when the simulated link is free again. Only the
    // driver's callback thread reads and writes these times.
    double ns_per_byte;
    uint64_t free_at, began_at;
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
           load(cu->library, "cuStreamCreate", &cu->stream_create) &&
           load(cu->library, "cuStreamDestroy_v2", &cu->stream_destroy) &&
           load(cu->library, "cuStreamSynchronize", &cu->stream_synchronize) &&
           load(cu->library, "cuStreamWaitEvent", &cu->stream_wait) &&
           load(cu->library, "cuLaunchHostFunc", &cu->launch_host) &&
           load(cu->library, "cuMemcpyHtoDAsync_v2", &cu->copy) &&
           load(cu->library, "cuMemcpyDtoDAsync_v2", &cu->copy_device) && load(cu->library, "cuMemsetD8Async", &cu->memset_bytes) &&
           load(cu->library, "cuCtxGetCurrent", &cu->current) && load(cu->library, "cuEventCreate", &cu->event_create) &&
           load(cu->library, "cuEventDestroy_v2", &cu->event_destroy) && load(cu->library, "cuEventRecord", &cu->event_record) &&
           load(cu->library, "cuEventQuery", &cu->event_query) &&
           load(cu->library, "cuEventSynchronize", &cu->event_synchronize) &&
           load(cu->library, "cuEventElapsedTime", &cu->event_elapsed);
}

// The context must be current for what follows; `leave` undoes it and passes the result on. (On a thread that
// has computed it is current already: asking costs less than pushing and popping it with each call.)
static bool enter(struct ggml_transport * t) {
    cu_context current = NULL;
    t->pushed = t->cu.current(&current) != 0 || current != t->context;
    return !t->pushed || t->cu.push(t->context) == 0;
}

static int leave(struct ggml_transport * t, int result) {
    cu_context old;
    return (!t->pushed || t->cu.pop(&old) == 0) && result == 0 ? 0 : -1;
}

static cu_event handle(void * event) {
    return ((struct ggml_backend_event *) event)->context;
}

// ---- the throttle

struct delay {
    struct ggml_transport * t;
    size_t size;
};

// Both run on the driver's thread: one when the copy stream reaches a copy, one when that copy is done. The
// second holds the stream until a slower link would have carried it; the thread that queued the copy goes on.
static void begin(void * data) {
    struct ggml_transport * t = data;
    t->began_at = st_now_ns();
}

static void hold(void * data) {
    struct delay * d = data;
    struct ggml_transport * t = d->t;
    t->free_at = (t->free_at > t->began_at ? t->free_at : t->began_at) + (uint64_t) ((double) d->size * t->ns_per_byte);
    free(d);
    for (uint64_t now = st_now_ns(); now < t->free_at; now = st_now_ns()) {
        if (t->free_at - now > 100000) {  // the last stretch is polled: sleeping is too coarse for it
            const uint64_t left = t->free_at - now - 60000;
            const struct timespec ts = { .tv_sec = (time_t) (left / 1000000000u), .tv_nsec = (long) (left % 1000000000u) };
            nanosleep(&ts, NULL);
        }
    }
}

// ---- the interface

static int gt_copy(struct st_transport * base, void * dst, const void * src, size_t size) {
    struct ggml_transport * t = GT(base);
    if (!enter(t)) {
        return -1;
    }
    if (t->ns_per_byte <= 0) {
        return leave(t, t->cu.copy((cu_pointer) (uintptr_t) dst, src, size, t->copies));
    }
    struct delay * d = malloc(sizeof *d);
    if (!d) {
        return leave(t, -1);
    }
    *d = (struct delay) { t, size };
    int result = t->cu.launch_host(t->copies, begin, t);
    result = result == 0 ? t->cu.copy((cu_pointer) (uintptr_t) dst, src, size, t->copies) : result;
    result = result == 0 ? t->cu.launch_host(t->copies, hold, d) : result;
    if (result != 0) {
        free(d);
    }
    return leave(t, result);
}

static void * gt_event_new(struct st_transport * base) {
    struct ggml_transport * t = GT(base);
    struct ggml_backend_event * event = calloc(1, sizeof *event);
    if (!event || !enter(t)) {
        free(event);
        return NULL;
    }
    const unsigned flags = CU_EVENT_BLOCKING_SYNC | (t->timed ? 0 : CU_EVENT_DISABLE_TIMING);
    if (leave(t, t->cu.event_create(&event->context, flags)) < 0) {
        free(event);
        return NULL;
    }
    event->device = t->dev;
    return event;
}

static void gt_event_free(struct st_transport * base, void * event) {
    struct ggml_transport * t = GT(base);
    if (enter(t)) {
        (void) leave(t, t->cu.event_destroy(handle(event)));
    }
    free(event);
}

// One stream goes on only after all that the other has queued so far.
static int follow(struct ggml_transport * t, cu_stream stream, cu_stream other) {
    const int r = t->cu.event_record(handle(t->lane_mark), other);
    return r != 0 ? r : t->cu.stream_wait(stream, handle(t->lane_mark), 0);
}

static int gt_record(struct st_transport * base, void * event) {
    struct ggml_transport * t = GT(base);
    if (!enter(t)) {
        return -1;
    }
    int r = t->moving ? follow(t, t->copies, t->moves) : 0;
    t->moving = t->moving && r != 0;
    r = r == 0 ? t->cu.event_record(handle(event), t->copies) : r;
    return leave(t, r);
}

static int gt_move(struct st_transport * base, void * dst, const void * src, size_t size) {
    struct ggml_transport * t = GT(base);
    if (!enter(t)) {
        return -1;
    }
    int r = t->moving ? 0 : follow(t, t->moves, t->copies);
    t->moving = t->moving || r == 0;
    r = r == 0 ? t->cu.copy_device((cu_pointer) (uintptr_t) dst, (cu_pointer) (uintptr_t) src, size, t->moves) : r;
    return leave(t, r);
}

static int gt_set(struct st_transport * base, void * dst, unsigned char value, size_t size) {
    struct ggml_transport * t = GT(base);
    return enter(t) ? leave(t, t->cu.memset_bytes((cu_pointer) (uintptr_t) dst, value, size, t->copies)) : -1;
}

static int gt_query(struct st_transport * base, void * event) {
    struct ggml_transport * t = GT(base);
    if (!enter(t)) {
        return -1;
    }
    const int r = t->cu.event_query(handle(event));
    if (leave(t, r == CUDA_ERROR_NOT_READY ? 0 : r) < 0) {
        return -1;
    }
    return r == 0;
}

static int gt_wait(struct st_transport * base, void * event) {
    struct ggml_transport * t = GT(base);
    return enter(t) ? leave(t, t->cu.event_synchronize(handle(event))) : -1;
}

static int gt_compute_waits(struct st_transport * base, void * compute, void * event) {
    (void) base;
    ggml_backend_t b = compute;
    b->iface.event_wait(b, event);
    return 0;
}

static int gt_mark(struct st_transport * base, void * compute, void * event) {
    (void) base;
    ggml_backend_t b = compute;
    b->iface.event_record(b, event);
    return 0;
}

static int gt_copies_after(struct st_transport * base, void * event) {
    struct ggml_transport * t = GT(base);
    if (!enter(t)) {
        return -1;
    }
    // The moves, too: the first of them after a record follows the copy stream, later ones would not.
    int r = t->cu.stream_wait(t->copies, handle(event), 0);
    r = r == 0 && t->moving ? t->cu.stream_wait(t->moves, handle(event), 0) : r;
    return leave(t, r);
}

static int gt_copies_wait(struct st_transport * base, void * compute) {
    struct ggml_transport * t = GT(base);
    ggml_backend_t b = compute;
    b->iface.event_record(b, t->compute_mark);
    return gt_copies_after(base, t->compute_mark);
}

static int gt_memory_new(struct st_transport * base, size_t size, bool pin, struct st_memory * m) {
    struct ggml_transport * t = GT(base);
    *m = (struct st_memory) { 0 };
    if (pin && t->refuse_after != 0) {
        t->refuse_after -= t->refuse_after > 0;
        ggml_backend_buffer_type_t type = ggml_backend_dev_host_buffer_type(t->dev);
        ggml_backend_buffer_t buffer    = type ? ggml_backend_buft_alloc_buffer(type, size) : NULL;
        if (buffer && ggml_backend_buffer_get_type(buffer) == type) {
            *m = (struct st_memory) { .data = ggml_backend_buffer_get_base(buffer), .size = size, .pinned = true, .handle = buffer };
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
    if (t->context && enter(t)) {
        if (t->copies) {
            (void) t->cu.stream_synchronize(t->copies);
            (void) t->cu.stream_destroy(t->copies);
        }
        if (t->moves) {
            (void) t->cu.stream_synchronize(t->moves);
            (void) t->cu.stream_destroy(t->moves);
        }
        (void) leave(t, 0);
    }
    if (t->compute_mark) {
        gt_event_free(base, t->compute_mark);
    }
    if (t->lane_mark) {
        gt_event_free(base, t->lane_mark);
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
    .mark = gt_mark,
    .copies_after = gt_copies_after,
    .move = gt_move,
    .set = gt_set,
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
    t->refuse_after = -1;
    const bool open = props.device_id && driver_open(&t->cu) && t->cu.device_by_pci(&t->device, props.device_id) == 0 &&
                      t->cu.retain(&t->context, t->device) == 0;
    int streams = -1;
    if (open && enter(t)) {
        streams = t->cu.stream_create(&t->copies, CU_STREAM_NON_BLOCKING);
        streams = leave(t, streams == 0 ? t->cu.stream_create(&t->moves, CU_STREAM_NON_BLOCKING) : streams);
    }
    if (streams < 0 || !(t->compute_mark = gt_event_new(&t->base)) || !(t->lane_mark = gt_event_new(&t->base))) {
        snprintf(why, why_size, "the NVIDIA driver library (libcuda.so.1) does not offer what copies to %s need", ggml_backend_dev_name(dev));
        gt_free(&t->base);
        return NULL;
    }
    return &t->base;
}

void st_transport_ggml_timed(struct st_transport * base, bool timed) {
    GT(base)->timed = timed;
}

void st_transport_ggml_refuse(struct st_transport * base, int after) {
    GT(base)->refuse_after = after;
}

void st_transport_ggml_limit(struct st_transport * base, double gigabytes_per_second) {
    GT(base)->ns_per_byte = gigabytes_per_second > 0 ? 1.0 / gigabytes_per_second : 0;
}

double st_transport_ggml_elapsed_us(struct st_transport * base, void * start, void * end) {
    struct ggml_transport * t = GT(base);
    float ms = 0;
    return enter(t) && leave(t, t->cu.event_elapsed(&ms, handle(start), handle(end))) == 0 ? (double) ms * 1000 : -1;
}
