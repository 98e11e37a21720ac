#include "probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ggml-backend-impl.h"
#include "ggml-impl.h"
#include "stage.h"
#include "transport_ggml.h"

static double seconds(clockid_t clock) {
    struct timespec ts;
    clock_gettime(clock, &ts);
    return (double) ts.tv_sec + 1e-9 * (double) ts.tv_nsec;
}

static int fail(struct st_probe * p, const char * what) {
    if (!p->error[0]) {
        snprintf(p->error, sizeof p->error, "%s", what);
    }
    return -1;
}

// Reads `size` bytes at the start of the buffer back and compares.
static bool same(ggml_backend_buffer_t buffer, const uint8_t * expected, size_t size) {
    uint8_t * back = malloc(size);
    struct ggml_tensor flat = { .type = GGML_TYPE_I8, .buffer = buffer, .data = ggml_backend_buffer_get_base(buffer), .ne = { (int64_t) size, 1, 1, 1 },
                                .nb = { 1, size, size, size } };
    if (back) {
        ggml_backend_tensor_get(&flat, back, 0, size);
    }
    const bool equal = back && memcmp(back, expected, size) == 0;
    free(back);
    return equal;
}

static int measure(struct st_transport * t, struct st_probe * p, struct st_stage_pool * pool, void * dst, const uint8_t * blob, void * const events[2]) {
    const struct st_transport_i * io = t->iface;
    const double start = seconds(CLOCK_MONOTONIC);
    for (int i = 0; i < p->copies; i++) {
        int b = i % p->ring;
        if (p->pooled) {
            while ((b = st_stage_try_claim(pool)) == -1) {
                const double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_THREAD_CPUTIME_ID);
                if (st_stage_wait_oldest(pool) <= 0) {
                    return fail(p, "no buffer becomes free");
                }
                p->wait_wall_s += seconds(CLOCK_MONOTONIC) - wall;
                p->wait_cpu_s += seconds(CLOCK_THREAD_CPUTIME_ID) - cpu;
            }
            if (b < 0) {
                return fail(p, "the transport failed");
            }
        }
        uint8_t * data = pool->buffers[b].data;
        if (p->fill) {
            memcpy(data, blob + (size_t) (i % 4) * p->size, p->size);
        }
        if (!p->pipelined && io->record(t, events[0]) < 0) {
            return fail(p, "an event could not be recorded");
        }
        const struct st_copy piece = { 0, dst, p->size };
        const double before = seconds(CLOCK_MONOTONIC);
        int r;
        if (p->pooled) {
            st_stage_ready(pool, b);
            r = st_stage_queue(pool, b, &piece, 1);
        } else {
            r = io->copy(t, dst, data, p->size);
        }
        p->host_us[i] = 1e6 * (seconds(CLOCK_MONOTONIC) - before);
        if (r < 0) {
            return fail(p, "a copy was refused");
        }
        if (!p->pipelined) {
            // Each copy has one event behind it: the pool's own, or without the pool one of ours.
            void * end = p->pooled ? pool->buffers[b].event : events[1];
            if (!p->pooled && io->record(t, end) < 0) {
                return fail(p, "an event could not be recorded");
            }
            const double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_THREAD_CPUTIME_ID);
            if (io->wait(t, end) < 0) {
                return fail(p, "a copy failed");
            }
            p->wait_wall_s += seconds(CLOCK_MONOTONIC) - wall;
            p->wait_cpu_s += seconds(CLOCK_THREAD_CPUTIME_ID) - cpu;
            p->device_us[i] = st_transport_ggml_elapsed_us(t, events[0], end);
        }
    }
    if (io->record(t, events[1]) < 0 || io->wait(t, events[1]) < 0 || st_stage_drain(pool) < 0) {
        return fail(p, "a copy failed");
    }
    p->total_s = seconds(CLOCK_MONOTONIC) - start;
    return 0;
}

int st_probe_run(ggml_backend_dev_t dev, struct st_probe * p) {
    p->error[0] = '\0';
    if (ggml_backend_dev_type(dev) != GGML_BACKEND_DEVICE_TYPE_GPU) {
        return fail(p, "copies are measured on a CUDA device only");
    }
    struct st_transport * t = st_transport_ggml_new(dev, p->error, sizeof p->error);
    if (!t) {
        return -1;
    }
    int result = -1;
    struct st_stage_pool pool = { 0 };
    st_transport_ggml_timed(t, true);
    void * events[2] = { t->iface->event_new(t), t->iface->event_new(t) };
    st_transport_ggml_timed(t, !p->pipelined);  // back to back, the pool's events are those of every day
    ggml_backend_buffer_t dst = ggml_backend_buft_alloc_buffer(ggml_backend_dev_buffer_type(dev), p->size);
    uint8_t * blob = malloc(4 * p->size);
    const bool built = st_stage_init(&pool, t, p->ring, p->size, SIZE_MAX, p->pin) == 0;
    if (!events[0] || !events[1] || !dst || !blob || !built) {
        fail(p, "no memory to measure with");
    } else {
        for (size_t i = 0; i < 4 * p->size; i++) {
            blob[i] = (uint8_t) ((i * 2654435761u) >> 13);
        }
        for (int b = 0; b < p->ring; b++) {
            memcpy(pool.buffers[b].data, blob + (size_t) (b % 4) * p->size, p->size);
        }
        st_transport_ggml_limit(t, p->limit);
        p->pinned = pool.pinned > 0;
        result    = measure(t, p, &pool, ggml_backend_buffer_get_base(dst), blob, events);
        // Which buffer the pool gives out is its business; the last copy's bytes are one of the four blobs.
        for (int i = 0; i < 4 && result == 0 && !p->equal; i++) {
            p->equal = same(dst, blob + (size_t) i * p->size, p->size);
        }
    }
    free(blob);
    if (built) {
        st_stage_free(&pool);
    }
    if (dst) {
        ggml_backend_buffer_free(dst);
    }
    for (int i = 0; i < 2; i++) {
        if (events[i]) {
            t->iface->event_free(t, events[i]);
        }
    }
    t->iface->free(t);
    return result;
}
