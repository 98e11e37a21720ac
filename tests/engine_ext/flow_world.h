// The world of test_flow.c: a tier on the simulated transport with the arena, the files' bytes and the contexts.
#ifndef STRATA_FLOW_WORLD_H
#define STRATA_FLOW_WORLD_H

#include <pthread.h>
#include <sched.h>
#include <stdarg.h>

#include "check.h"
#include "graph.h"
#include "transport_sim.h"

#include "excerpts.h"

#define MAX_LAYERS 10
#define MAX_EXPERTS 12
#define MAX_SLOTS 120
#define COMPUTES 2
#define PAD 32
#define BYTES_OF_FILE 65536u

static uint64_t rng;
static bool fault;  // loads the next expert: must be noticed
static uint8_t file[2 * BYTES_OF_FILE];

struct world {
    struct st_tier t;
    struct st_group groups[MAX_LAYERS];
    struct st_class classes[2];
    int32_t key_group[2][MAX_LAYERS * MAX_EXPERTS];
    struct ggml_backend_buffer arena[2];
    struct ggml_backend_buffer own;  // the ring's
    size_t own_size;
    struct st_backend contexts[COMPUTES];
    int at;                       // the context in use
    int hot;                      // where the experts begin that are picked more than others
    size_t mirror_limit;
    bool filling_mirror;
    int warm;                     // percent of the file that is in the page cache; -1: nobody says
    _Atomic int64_t fail_read_in, cancel_in_reads;  // counted down; 0 is not reached again
    int64_t cancel_in_calls;
    int n_refused;                // copies, since the pool was built
    bool read_failed, big, lost;
    bool refuse_buffer;           // the next device buffer
    int32_t wanted;               // this expert is picked next, or -1
    bool alone;                   // ... and no other
    bool awaited;                 // a pending swap was needed
};

static struct world w;
static uint64_t n_ahead, n_streamed, n_direct, n_layers, n_lent, n_given_back, n_broken_streams, n_own, n_small_rings;
static uint64_t n_cancelled, n_failed_reads, n_lost, n_loaded, n_hits, n_swaps, n_copied_swaps, n_awaited_swaps, n_refused_swaps, n_prefilled, n_splits, n_windows;

// ---- the model's file: an expert's slice is a piece of random bytes

static const uint8_t * content(int group, int slice, int32_t expert) {
    return file + mix((uint64_t) group * 1000003u + (uint64_t) slice * 1009u + (uint64_t) expert + 1) % BYTES_OF_FILE;
}

// Bytes from `offset` of a content that repeats after BYTES_OF_FILE; `copy` or compare.
static bool with_content(int group, int slice, int32_t expert, size_t offset, size_t size, uint8_t * bytes, bool copy) {
    const uint8_t * c = content(group, slice, expert);
    while (size > 0) {
        const size_t from = offset % BYTES_OF_FILE, n = size < BYTES_OF_FILE - from ? size : BYTES_OF_FILE - from;
        const uint8_t * src = file + ((size_t) (c - file) + from) % BYTES_OF_FILE;
        if (copy) {
            memcpy(bytes, src, n);
        } else if (memcmp(bytes, src, n) != 0) {
            return false;
        }
        bytes += n;
        offset += n;
        size -= n;
    }
    return true;
}

int st_experts_read(const struct st_tier * t, const struct st_slice * s, int32_t expert, size_t offset, size_t size, void * dst, unsigned how,
                    struct st_read * out) {
    CHECK("flow-asks only with profile auto", !(how & ST_ASK) || t->modes.profile_wanted == ST_PROFILE_AUTO);
    CHECK("flow-past the page cache only where it is too small", !(how & ST_DIRECT) || t->modes.direct_reason[0]);
    *out = (struct st_read) { .cached = how & ST_ASK ? mix((uint64_t) expert + offset) % 100 < (uint64_t) (w.warm < 0 ? 50 : w.warm) : -1 };
    CHECK("flow-reads inside the slices", expert >= 0 && (size_t) expert * s->bytes + offset + size <= (size_t) t->groups[s->group].n_experts * s->bytes);
    if (!w.filling_mirror) {
        int b = 0;
        while (b < t->pool.n_buffers && (size_t) ((uint8_t *) dst - t->pool.buffers[b].data) >= t->pool.buffer_size) {
            b++;
        }
        CHECK("flow-fills a buffer of the pool", b < t->pool.n_buffers && (size_t) ((uint8_t *) dst - t->pool.buffers[b].data) + size <= t->pool.buffer_size);
        CHECK("flow-fills only what is FILLING", t->pool.buffers[b].state == ST_STAGE_FILLING);
    }
    memset(dst, 0xEE, size);
    if (atomic_fetch_sub(&w.cancel_in_reads, 1) == 1) {
        atomic_store(&w.t.cancel, true);
    }
    if ((offset + (size_t) expert) % 5 == 0) {
        sched_yield();
    }
    if (atomic_fetch_sub(&w.fail_read_in, 1) == 1) {
        w.read_failed = true;
        return -1;
    }
    for (uint8_t * to = dst; size > 0;) {  // of one expert, or of neighbours
        expert += (int32_t) (offset / s->bytes);
        offset %= s->bytes;
        const size_t n = size < s->bytes - offset ? size : s->bytes - offset;
        with_content(s->group, s->index, expert, offset, n, to, true);
        to += n;
        offset += n;
        size -= n;
    }
    return 0;
}

int st_experts_ask(const struct st_tier * t, const struct st_slice * s, int32_t expert, size_t offset) {
    const struct st_group * g = &t->groups[s->group];
    const struct st_class * c = &t->classes[g->class_index];
    CHECK("flow-asks inside the slice", offset < s->bytes && expert >= 0 && expert < g->n_experts);
    CHECK("flow-asks for what is read", !c->mirror || !c->mirror[g->first_key + expert]);
    return w.warm < 0 ? -1 : below(&rng, 100) < w.warm;
}

// ---- the compute stream

#define ZEROS (UINT64_C(1) << 63)  // the tag of a pad

static uint64_t tag_of(int group, int slice, int32_t expert) {
    return (uint64_t) group << 32 | (uint64_t) slice << 16 | (uint64_t) expert;
}

static bool is_expert(void * ctx, uint64_t tag, const uint8_t * bytes, size_t size) {
    (void) ctx;
    for (size_t i = 0; tag == ZEROS && i < size; i++) {
        if (bytes[i] != 0) {
            return false;
        }
    }
    if (tag == ZEROS) {
        return true;
    }
    return with_content((int) (tag >> 32), (int) (tag >> 16 & 0xFFFF), (int32_t) (tag & 0xFFFF), 0, size, (uint8_t *) bytes, false);
}

static uint8_t * slot_address(const struct st_class * c, int32_t slot) {
    return (uint8_t *) c->arena->base + (size_t) slot * c->stride;
}

// What is left of a slot behind a slice, up to the next one: kernels read it.
static size_t pad_behind(const struct st_class * c, int slice) {
    const size_t end = c->slot_offset[slice] + (size_t) (c->ne0[slice] * c->ne1[slice]);
    return (slice + 1 < c->n_slices ? c->slot_offset[slice + 1] : c->stride) - end;
}

// A slice of an expert, and its pad.
static void read_slice(ggml_backend_t compute, const struct st_slice * s, int32_t e, const uint8_t * at, size_t pad) {
    st_sim_read(w.t.transport, compute, at, s->bytes, is_expert, NULL, tag_of(s->group, s->index, e));
    if (pad > 0) {
        st_sim_read(w.t.transport, compute, at + s->bytes, pad, is_expert, NULL, ZEROS);
    }
}

static void read_experts(const struct st_backend * b, const struct st_group * g, int32_t first, int32_t end) {
    const struct st_class * c = &w.classes[g->class_index];
    for (int32_t i = first; i < end; i++) {
        const int32_t e = b->order[i];
        for (int s = 0; s < g->n_slices; s++) {
            read_slice(b->inner, &g->slices[s], e, slot_address(c, b->slot[e]) + g->slices[s].slot_offset, pad_behind(c, s));
        }
    }
}

void ggml_backend_synchronize(ggml_backend_t backend) {
    st_sim_synchronize(w.t.transport, backend);
}

// The only buffer that is asked for here is the ring's own.
ggml_backend_buffer_t ggml_backend_buft_alloc_buffer(ggml_backend_buffer_type_t type, size_t size) {
    CHECK("flow-one ring at a time", !type && !w.own.base);
    if (w.refuse_buffer || size > 1u << 24) {
        return NULL;
    }
    w.own.base = malloc(size);
    w.own_size = size;
    CHECK("flow-world", w.own.base);
    memset(w.own.base, 0xC7, size);
    return &w.own;
}

void ggml_backend_buffer_free(ggml_backend_buffer_t buffer) {
    CHECK("flow-no other device buffers here", !buffer || (buffer == &w.own && w.own.base));
    if (buffer) {
        CHECK("flow-nothing is copied to a ring that is gone", !w.t.transport || st_sim_failed(w.t.transport) || st_sim_writing(w.t.transport, w.own.base, w.own_size) == 0);
        free(w.own.base);
        w.own.base = NULL;
    }
}

void ggml_backend_tensor_get(const struct ggml_tensor * tensor, void * data, size_t offset, size_t size) {
    CHECK("flow-self-test compares what has arrived", st_sim_writing(w.t.transport, (const char *) tensor->data + offset, size) == 0);
    memcpy(data, (const char *) tensor->data + offset, size);
}

static void get_tensor_async(ggml_backend_t backend, const struct ggml_tensor * tensor, void * data, size_t offset, size_t size) {
    (void) backend;
    ggml_backend_tensor_get(tensor, data, offset, size);
}

static void on_call(void * ctx) {
    (void) ctx;
    if (w.cancel_in_calls > 0 && --w.cancel_in_calls == 0) {
        atomic_store(&w.t.cancel, true);
    }
}

// ---- the world

static size_t aligned(size_t n) {
    return (n + 15) & ~(size_t) 15;
}

static void make_class(struct st_class * c) {
    c->n_slices = 1 + below(&rng, 3);
    for (int s = 0; s < c->n_slices; s++) {
        c->type[s]        = GGML_TYPE_I8;
        c->ne0[s]         = w.big ? 1024 : 8 + below(&rng, 40);
        c->ne1[s]         = w.big ? 1 + below(&rng, 700) : 1 + below(&rng, 3);
        const size_t size = (size_t) (c->ne0[s] * c->ne1[s]);
        c->slot_offset[s] = c->stride;
        if (s > 0 && one_in(&rng, 2) && size % 16 == 0 && c->runs[c->n_runs - 1].offset + c->runs[c->n_runs - 1].size == c->stride) {
            c->runs[c->n_runs - 1].size += size;
        } else {
            c->runs[c->n_runs++] = (struct st_run) { c->stride, size };
        }
        c->blob_bytes += size;
        c->stride = aligned(c->stride + size) + (one_in(&rng, 2) ? PAD : 0);
    }
    c->stride += PAD;
}

static void make_context(struct st_backend * b) {
    *b = (struct st_backend) { .tier = &w.t, .inner = st_sim_compute_new(w.t.transport) };
    _Static_assert(sizeof *b->inner <= ST_SIM_USER_BYTES, "a stream of the simulation begins with a backend");
    CHECK("flow-world", b->inner && st_backend_init(b) == 0);
    b->inner->iface.get_tensor_async = one_in(&rng, 2) ? get_tensor_async : NULL;
}

static void free_context(struct st_backend * b) {
    void * compute = b->inner;
    st_backend_free(b);
    CHECK("flow-the end of a context leaves no trace of it", w.t.compute != compute);
    st_sim_compute_free(w.t.transport, compute);
}

static void make_world(void) {
    w = (struct world) { .big = one_in(&rng, 60), .fail_read_in = -1, .cancel_in_reads = -1, .wanted = -1 };
    struct st_tier * t = &w.t;
    pthread_mutex_init(&t->lock, NULL);
    t->groups         = w.groups;
    t->classes        = w.classes;
    const bool many   = !w.big && one_in(&rng, 12);  // more slots than come back at once
    t->n_classes      = many ? 1 : 1 + below(&rng, 2);
    t->n_groups       = many ? MAX_LAYERS : 2 + below(&rng, w.big ? 2 : MAX_LAYERS - 1);
    t->threads_wanted = 1 + below(&rng, 4);
    t->on_gpu         = one_in(&rng, 2);  // which of a batch's streams is queued first
    t->fault          = fault ? ST_FAULT_NEXT_EXPERT : ST_FAULT_NONE;
    static const int pool_sizes[] = { 1, 2, 3, 4, 16 };
    t->pool_buffers = pool_sizes[below(&rng, 5)];
    for (int k = 0; k < t->n_classes; k++) {
        make_class(&w.classes[k]);
        t->max_stride = w.classes[k].stride > t->max_stride ? w.classes[k].stride : t->max_stride;
    }
    for (int i = 0; i < t->n_groups; i++) {
        struct st_group * g = &w.groups[i];
        struct st_class * c = &w.classes[i < t->n_classes ? i : below(&rng, t->n_classes)];
        *g = (struct st_group) { .layer = i, .n_experts = many ? MAX_EXPERTS : 2 + below(&rng, MAX_EXPERTS - 1), .n_used = 1 + below(&rng, 2), .first_key = c->n_keys, .class_index = (int) (c - w.classes), .n_slices = c->n_slices };
        for (int s = 0; s < g->n_slices; s++) {
            g->slices[s] = (struct st_slice) { .group = i, .index = s, .type = c->type[s], .ne0 = c->ne0[s], .ne1 = c->ne1[s], .bytes = (size_t) (c->ne0[s] * c->ne1[s]), .slot_offset = c->slot_offset[s], .name = "a slice" };
        }
        for (int e = 0; e < g->n_experts; e++) {
            w.key_group[g->class_index][c->n_keys++] = i;
        }
        t->n_experts_all += g->n_experts;
        t->blob_bytes_all += c->blob_bytes * (size_t) g->n_experts;
        t->max_experts = g->n_experts > t->max_experts ? g->n_experts : t->max_experts;
        c->min_slots   = g->n_used > c->min_slots ? g->n_used : c->min_slots;
    }
    static struct st_shard shard = { .path = (char *) "the file" };
    t->shards    = &shard;
    t->n_shards  = 1;
    t->n_jobs    = 512;
    t->jobs      = calloc((size_t) t->n_jobs, sizeof *t->jobs);
    t->transport = st_sim_new(&(struct st_sim_options) { .seed = draw(&rng), .can_pin = !one_in(&rng, 3), .called = on_call });
    CHECK("flow-world", t->jobs && t->transport && st_pool_start(t) == 0);
    t->group_event = t->transport->iface->event_new(t->transport);
    t->swap_event = t->transport->iface->event_new(t->transport);
    t->ring_built = true;
    CHECK("flow-world", t->group_event && t->swap_event && st_ring_init(&t->ring, t->transport) == 0);
    for (int i = 0; i < COMPUTES; i++) {
        make_context(&w.contexts[i]);
    }
    for (int k = 0; k < t->n_classes; k++) {
        struct st_class * c = &w.classes[k];
        c->key_group  = w.key_group[k];
        c->n_slots    = c->min_slots + (many ? 70 + below(&rng, 48) : below(&rng, one_in(&rng, 2) ? 4 : 24));
        c->n_slots    = c->n_slots < c->n_keys ? c->n_slots : c->n_keys;  // as st_arena_divide
        t->slots_total += c->n_slots;
        w.arena[k].base = calloc((size_t) c->n_slots, c->stride);
        c->arena      = &w.arena[k];
        c->usage      = calloc((size_t) c->n_keys, sizeof *c->usage);
        c->traces     = calloc((size_t) c->n_slots, sizeof *c->traces);
        CHECK("flow-world", w.arena[k].base && c->usage && c->traces && st_residency_init(&c->residency, c->n_keys, c->n_slots));
        for (int32_t slot = one_in(&rng, 2) ? c->n_slots : 0; slot-- > 0;) {  // the first are taken last
            st_residency_touch(&c->residency, slot);
        }
        for (int i = 0; i < c->n_slices; i++) {
            c->weights[i].data = slot_address(c, 0) + c->slot_offset[i];
        }
    }
    w.mirror_limit = !one_in(&rng, 3) ? t->max_stride * (size_t) (1 + below(&rng, 30)) : 0;
}

// Called by st_tier_close when the transport is gone, so nothing writes any more.
void st_arena_free(struct st_tier * t) {
    for (int k = 0; k < t->n_classes; k++) {
        struct st_class * c = &w.classes[k];
        // What was lent when the transport failed is never zero again.
        for (int32_t slot = k != t->lent_class ? 0 : w.lost ? c->n_slots : t->n_lent; slot < c->n_slots; slot++) {  // what no run covers is still zero
            size_t from = 0;
            for (int r = 0; r <= c->n_runs; r++) {
                const size_t to = r < c->n_runs ? c->runs[r].offset : c->stride;
                for (size_t i = from; i < to; i++) {
                    CHECK("flow-pads stay zero", slot_address(c, slot)[i] == 0);
                }
                from = r < c->n_runs ? c->runs[r].offset + c->runs[r].size : to;
            }
        }
        st_residency_free(&c->residency);
        free(c->usage);
        free(c->traces);
        free(w.arena[k].base);
    }
}

void st_experts_free(struct st_tier * t) {
    (void) t;
}

static void end_world(void) {
    struct st_tier * t = &w.t;
    w.lost             = st_sim_failed(t->transport);
    for (int i = 0; i < COMPUTES; i++) {
        free_context(&w.contexts[i]);  // runs every read that is left
    }
    t->stager_built = true;
    st_tier_close(t);
    pthread_mutex_destroy(&t->lock);
}

#endif
