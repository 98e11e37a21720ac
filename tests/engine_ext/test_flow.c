// The way of an expert into a slot: load.c, policy.c, prefill.c, selftest.c, pool.c, mirror.c, the stage pool, the
// stager, the residency and the plan of swaps as they are, and of graph.c and tier.c what knows no graph
// (excerpts.h is cut from them when this is built), on the simulated transport. Many layers, few slots, two
// contexts, failures, and a cancel at any step. Every read on a compute stream must see exactly the bytes of the
// expert that it was given a slot for.
//
// Here stand only the order of a round (st_graph_compute, run_split) and what the model's file does.
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>

#include "check.h"
#include "graph.h"
#include "transport_sim.h"

#include "excerpts.h"

#define MAX_LAYERS 10
#define MAX_EXPERTS 12
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
    struct st_backend contexts[COMPUTES];
    int at;                       // the context in use
    int hot;                      // where the experts begin that are picked more than others
    size_t mirror_limit;
    bool filling_mirror;
    int warm;                     // percent of the file that is in the page cache; -1: nobody says
    _Atomic int64_t fail_read_in, cancel_in_reads;  // counted down; 0 is not reached again
    int64_t cancel_in_calls;
    int n_refused;                // copies, since the pool was built
    bool read_failed, big;
    int32_t wanted;               // this expert is picked next, or -1
    bool alone;                   // ... and no other
    bool awaited;                 // a pending swap was needed
};

static struct world w;
static uint64_t n_cancelled, n_failed_reads, n_lost, n_loaded, n_hits, n_swaps, n_copied_swaps, n_awaited_swaps, n_refused_swaps, n_prefilled, n_splits;

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
    CHECK("flow-reads inside the slice", offset + size <= s->bytes && expert >= 0 && expert < t->groups[s->group].n_experts);
    if (!w.filling_mirror) {
        int b = 0;
        while (b < t->pool.n_buffers && (size_t) ((uint8_t *) dst - t->pool.buffers[b].data) >= t->pool.buffer_size) {
            b++;
        }
        CHECK("flow-fills a buffer of the pool", b < t->pool.n_buffers);
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
    with_content(s->group, s->index, expert, offset, size, dst, true);
    return 0;
}

int st_experts_ask(const struct st_tier * t, const struct st_slice * s, int32_t expert, size_t offset) {
    CHECK("flow-asks inside the slice", offset < s->bytes && expert >= 0 && expert < t->groups[s->group].n_experts);
    CHECK("flow-asks for what is read", !t->classes[t->groups[s->group].class_index].mirror || !t->classes[t->groups[s->group].class_index].mirror[t->groups[s->group].first_key + expert]);
    return w.warm < 0 ? -1 : below(&rng, 100) < w.warm;
}

// ---- the compute stream

static bool is_expert(void * ctx, uint64_t tag, const uint8_t * bytes, size_t size) {
    (void) ctx;
    return with_content((int) (tag >> 32), (int) (tag >> 16 & 0xFFFF), (int32_t) (tag & 0xFFFF), 0, size, (uint8_t *) bytes, false);
}

static uint8_t * slot_address(const struct st_class * c, int32_t slot) {
    return (uint8_t *) c->arena->base + (size_t) slot * c->stride;
}

static void read_experts(const struct st_backend * b, const struct st_group * g, int32_t first, int32_t end) {
    for (int32_t i = first; i < end; i++) {
        const int32_t e = b->order[i];
        for (int s = 0; s < g->n_slices; s++) {
            st_sim_read(w.t.transport, b->inner, slot_address(&w.classes[g->class_index], b->slot[e]) + g->slices[s].slot_offset, g->slices[s].bytes, is_expert, NULL,
                        (uint64_t) (g - w.groups) << 32 | (uint64_t) s << 16 | (uint64_t) e);
        }
    }
}

void ggml_backend_synchronize(ggml_backend_t backend) {
    st_sim_synchronize(w.t.transport, backend);
}

void ggml_backend_buffer_free(ggml_backend_buffer_t buffer) {
    CHECK("flow-no device buffers here", !buffer);
}

void ggml_backend_tensor_get(const struct ggml_tensor * tensor, void * data, size_t offset, size_t size) {
    CHECK("flow-self-test compares what has arrived", st_sim_writing(w.t.transport, (const char *) tensor->data + offset, size) == 0);
    memcpy(data, (const char *) tensor->data + offset, size);
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
    CHECK("flow-world", b->inner && st_backend_init(b) == 0);
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
    t->n_classes      = 1 + below(&rng, 2);
    t->n_groups       = 2 + below(&rng, w.big ? 2 : MAX_LAYERS - 1);
    t->threads_wanted = 1 + below(&rng, 4);
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
        *g = (struct st_group) { .layer = i, .n_experts = 2 + below(&rng, MAX_EXPERTS - 1), .n_used = 1 + below(&rng, 2), .first_key = c->n_keys, .class_index = (int) (c - w.classes), .n_slices = c->n_slices };
        for (int s = 0; s < g->n_slices; s++) {
            g->slices[s] = (struct st_slice) { .group = i, .index = s, .bytes = (size_t) (c->ne0[s] * c->ne1[s]), .slot_offset = c->slot_offset[s] };
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
    for (int i = 0; i < COMPUTES; i++) {
        make_context(&w.contexts[i]);
    }
    for (int k = 0; k < t->n_classes; k++) {
        struct st_class * c = &w.classes[k];
        c->key_group  = w.key_group[k];
        c->n_slots    = c->min_slots + below(&rng, one_in(&rng, 2) ? 4 : 24);
        c->n_slots    = c->n_slots < c->n_keys ? c->n_slots : c->n_keys;  // as st_arena_divide
        w.arena[k].base = calloc((size_t) c->n_slots, c->stride);
        c->arena      = &w.arena[k];
        c->usage      = calloc((size_t) c->n_keys, sizeof *c->usage);
        c->traces     = calloc((size_t) c->n_slots, sizeof *c->traces);
        CHECK("flow-world", w.arena[k].base && c->usage && c->traces && st_residency_init(&c->residency, c->n_keys, c->n_slots));
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
        for (int32_t slot = 0; slot < c->n_slots; slot++) {  // what no run covers is still zero
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
    for (int i = 0; i < COMPUTES; i++) {
        free_context(&w.contexts[i]);  // runs every read that is left
    }
    t->stager_built = true;
    st_tier_close(t);
    pthread_mutex_destroy(&t->lock);
}

// ---- one layer

static void check_pool(void) {
    int n_lost_buffers = 0;
    for (int b = 0; b < w.t.pool.n_buffers; b++) {
        const enum st_stage_state s = w.t.pool.buffers[b].state;
        CHECK("flow-no buffer is left FILLING or READY", s == ST_STAGE_FREE || s == ST_STAGE_IN_FLIGHT);
        n_lost_buffers += s == ST_STAGE_IN_FLIGHT && !w.t.pool.buffers[b].recorded;
    }
    CHECK("flow-a buffer is lost only to a failed copy", st_sim_failed(w.t.transport) || n_lost_buffers <= w.n_refused);
    CHECK("flow-no fill is left running", st_stager_open(&w.t.stager) == 0);
}

// What holds between any two calls, whatever went wrong before.
static void check_slots(void) {
    const struct st_tier * t = &w.t;
    int n_loading = 0;
    for (int k = 0; k < t->n_classes; k++) {
        const struct st_class * c     = &w.classes[k];
        const struct st_residency * r = &c->residency;
        const int32_t share = c->n_slots / 8, guests_least = share > c->min_slots ? share : c->min_slots < c->n_slots ? c->min_slots : c->n_slots;
        CHECK("flow-homes leave room for guests", r->n_homes <= c->n_slots - guests_least);
        CHECK("flow-no homes with plain LRU", t->policy != ST_POLICY_LRU || r->n_homes == 0);
        for (int32_t s = 0; s < c->n_slots; s++) {
            const struct st_trace * trace = &c->traces[s];
            const char what = trace->n ? trace->entry[(trace->n - 1) % ST_TRACE].what : 0;
            if (r->state[s] == ST_SLOT_LOADING) {
                bool pending = false;
                for (int i = 0; i < t->n_pending; i++) {
                    pending = pending || (t->pending[i].class_index == k && t->pending[i].slot == s);
                }
                CHECK("flow-what is LOADING is a pending swap", pending && r->home[s]);
                n_loading++;
            }
            CHECK("flow-a home is not empty", r->state[s] != ST_SLOT_FREE || !r->home[s]);
            CHECK("flow-the trace ends with what is", r->state[s] == ST_SLOT_RESIDENT  ? what == 'p' || what == 'h' || what == 'g'
                                                      : r->state[s] == ST_SLOT_LOADING ? what == 'c'
                                                                                       : what == 'a' || !trace->n);
            CHECK("flow-the trace names the expert", r->key_of[s] < 0 || trace->entry[(trace->n - 1) % ST_TRACE].key == r->key_of[s]);
        }
    }
    CHECK("flow-what is LOADING is a pending swap", n_loading == t->n_pending);
}

// One layer's batch, in as many passes as it takes (as run_split). Returns false when the world has to end.
static bool layer(const struct st_group * g) {
    struct st_tier * t   = &w.t;
    struct st_class * c  = &w.classes[g->class_index];
    struct st_backend * b = &w.contexts[w.at];
    const int n          = w.wanted >= 0 && w.alone ? 1 : one_in(&rng, 4) ? 1 + below(&rng, g->n_experts) : g->n_used;
    struct picks p       = { .group = g, .class_ = c, .n_distinct = n };
    for (int i = 0; i < g->n_experts; i++) {
        const int k = below(&rng, i + 1);
        b->order[i] = b->order[k];
        b->order[k] = i;
    }
    for (int i = 0; i < g->n_used; i++) {  // some are picked more often than others
        const int32_t e = (w.hot + i) % g->n_experts;
        const bool picked = one_in(&rng, 2);
        for (int k = i; k < g->n_experts; k++) {
            if (picked && b->order[k] == e) {
                b->order[k] = b->order[i];
                b->order[i] = e;
            }
        }
    }
    for (int k = 0; k < g->n_experts; k++) {
        if (b->order[k] == w.wanted) {
            b->order[k] = b->order[0];
            b->order[0] = w.wanted;
            w.wanted    = -1;
        }
    }
    for (int i = 0; i < n; i++) {
        b->count[b->order[i]] = 1 + below(&rng, n == g->n_used ? 4 : 12);
    }
    int32_t end = 0;
    for (int32_t first = 0; first < n; first = end) {
        int32_t left = st_room(&p);
        for (end = first; end < n && (left -= st_guests(b, &p, end, end + 1)) >= 0; end++) {
        }
        CHECK("flow-room for one at least", end > first);
        n_splits += first > 0;
        const bool had_pool = t->pool_built;
        bool missed[MAX_EXPERTS];
        int n_missed = 0;
        for (int32_t i = first; i < end; i++) {
            const int32_t key = g->first_key + b->order[i], s = c->residency.slot_of[key];
            missed[i] = s < 0;
            n_missed += s < 0;
            w.awaited = w.awaited || (s >= 0 && c->residency.state[s] == ST_SLOT_LOADING);
        }
        w.read_failed = false;
        const int result = st_make_resident(b, &p, first, end, first == 0);
        w.cancel_in_calls = 0;
        w.cancel_in_reads = w.fail_read_in = -1;
        const bool refused = result < 0 && strstr(t->error, "a copy to slot");
        w.n_refused += refused;
        if (had_pool) {
            check_pool();
        }
        for (int32_t i = first; i < end && result == 0; i++) {
            const int32_t e = b->order[i], key = g->first_key + e;
            CHECK("flow-published when all is well, else not", b->slot[e] >= 0 && st_residency_find(&c->residency, key) == b->slot[e]);
            for (int32_t k = first; k < i; k++) {
                CHECK("flow-one slot, one expert", b->slot[e] != b->slot[b->order[k]]);
            }
        }
        for (int32_t i = first; i < end && result != 0; i++) {
            CHECK("flow-published when all is well, else not", !missed[i] || c->residency.slot_of[g->first_key + b->order[i]] < 0);
        }
        for (int32_t s = 0; s < c->n_slots && result != 0 && !st_sim_failed(t->transport); s++) {
            CHECK("flow-a slot that was given up does not change any more",
                  c->residency.state[s] != ST_SLOT_FREE || st_sim_writing(t->transport, slot_address(c, s), c->stride) == 0);
        }
        check_slots();
        if (result == 0) {
            CHECK("flow-no success with a failed read", !w.read_failed);
            CHECK("flow-no error text without a failure", t->error[0] == '\0');
            read_experts(b, g, first, end);
            n_loaded += (uint64_t) n_missed;
            n_hits += (uint64_t) (end - first - n_missed);
        } else if (result == 1) {
            CHECK("flow-cancelled only when asked", atomic_load(&t->cancel));
            n_cancelled++;
            break;
        } else {
            CHECK("flow-result", result == -1);
            CHECK("flow-a failure says why", t->error[0] != '\0');
            CHECK("flow-a failure has a cause", w.read_failed || st_sim_failed(t->transport) || refused || !had_pool || w.n_refused >= t->pool.n_buffers);
            CHECK("flow-names the file", !w.read_failed || refused || st_sim_failed(t->transport) || strstr(t->error, "could not be read from the file"));
            n_failed_reads += w.read_failed;
            break;
        }
    }
    st_error_clear(t);
    atomic_store(&t->cancel, false);
    return !st_sim_failed(t->transport);
}

// ---- between layers

// What a graph begins with. Returns false when the world has to end.
static bool begin_round(void) {
    struct st_tier * t = &w.t;
    const enum st_policy policy = t->policy;
    struct { int class_index; int32_t slot, key; } pending[ST_ADAPT_CAP];
    int32_t n_homes[2] = { 0, 0 };
    const int n_pending = t->n_pending;
    const uint64_t swaps = atomic_load(&t->swaps);
    for (int i = 0; i < n_pending; i++) {
        pending[i].class_index = t->pending[i].class_index;
        pending[i].slot        = t->pending[i].slot;
        pending[i].key         = w.classes[pending[i].class_index].residency.key_of[pending[i].slot];
    }
    for (int k = 0; k < t->n_classes; k++) {
        n_homes[k] = t->classes[k].residency.n_homes;
    }
    atomic_store(&t->phase, one_in(&rng, 4) ? ST_PHASE_PROMPT : ST_PHASE_DECODE);
    w.hot += one_in(&rng, 12);
    for (int i = below(&rng, 4); i > 0; i--) {  // hot, but not resident: as after another talk
        const struct st_class * c = &w.classes[below(&rng, t->n_classes)];
        const int32_t key         = below(&rng, c->n_keys);
        c->usage[key] += c->residency.slot_of[key] < 0 && c->mirror && c->mirror[key] ? 12 : 0;
    }
    if (one_in(&rng, 4)) {
        st_sim_fail_at(t->transport, one_in(&rng, 2) ? ST_SIM_REFUSE : ST_SIM_REFUSE_RECORD, (uint64_t) (1 + below(&rng, 3)));
    }
    ggml_backend_t compute = w.contexts[w.at].inner;
    const int result       = (t->compute != compute && change_stream(t, compute) < 0) || st_policy_round(t, compute) < 0 ? -1 : 0;
    if (st_sim_failed(t->transport)) {
        return false;
    }
    const bool refused = strstr(t->error, "a copy to slot") || strstr(t->error, "the copy stream failed");
    st_sim_fail_at(t->transport, ST_SIM_REFUSE, 0);
    st_sim_fail_at(t->transport, ST_SIM_REFUSE_RECORD, 0);
    st_error_clear(t);
    CHECK("flow-a round begins", (result == 0) == !refused);
    n_refused_swaps += result < 0;
    int n_published = 0;
    for (int i = 0; i < n_pending; i++) {  // a slot may be taken again in the same round
        struct st_class * c = &w.classes[pending[i].class_index];
        const bool same     = c->residency.key_of[pending[i].slot] == pending[i].key;
        const bool found    = same && c->residency.state[pending[i].slot] == ST_SLOT_RESIDENT;
        CHECK("flow-a round publishes only what has arrived", !found || st_sim_writing(t->transport, slot_address(c, pending[i].slot), c->stride) == 0);
        n_published += !same || found;
    }
    CHECK("flow-a round publishes all or none", n_published == 0 || n_published == n_pending);
    const uint64_t more = atomic_load(&t->swaps) - swaps;
    if (result < 0) {
        CHECK("flow-a failed round leaves no swap of its own", t->n_pending == 0 || t->n_pending == n_pending);
        check_slots();
        return true;
    }
    CHECK("flow-swaps only of the adaptive tier, in decode", more == 0 || (policy == ST_POLICY_ADAPTIVE && t->phase == ST_PHASE_DECODE));
    CHECK("flow-begins no swaps while some are pending", n_pending == n_published || (more == 0 && t->n_pending == n_pending));
    for (int k = 0; k < t->n_classes; k++) {
        CHECK("flow-homes stay homes", t->classes[k].residency.n_homes >= n_homes[k]);
    }
    n_swaps += more;
    n_copied_swaps += more > 0 ? (uint64_t) t->n_pending : 0;
    check_slots();
    return true;
}

static bool set_policy(void) {
    struct st_tier * t = &w.t;
    const enum st_policy policy = (enum st_policy) below(&rng, 3);
    int class_index[ST_ADAPT_CAP], slot[ST_ADAPT_CAP];
    const int n_pending = t->n_pending;
    for (int i = 0; i < n_pending; i++) {
        class_index[i] = t->pending[i].class_index;
        slot[i]        = t->pending[i].slot;
    }
    const int result = st_policy_set(t, policy);
    if (st_sim_failed(t->transport)) {
        return false;
    }
    CHECK("flow-a policy is set", result == 0 && t->policy == policy && t->n_pending == 0);
    for (int i = 0; i < n_pending; i++) {  // whoever reads next was not told of the copies
        const struct st_class * c = &w.classes[class_index[i]];
        CHECK("flow-a switch publishes only what has arrived", st_sim_writing(t->transport, slot_address(c, slot[i]), c->stride) == 0);
    }
    check_slots();
    return true;
}

static int steps_left;

static bool step(void * ctx, int64_t done, int64_t total) {
    CHECK("flow-pre-fill counts", ctx == &steps_left && done >= 0 && done <= total);
    return --steps_left != 0;
}

static float hidden_usage[MAX_LAYERS * MAX_EXPERTS];

static float usage_of(int k, int32_t key) {
    const struct st_group * g = &w.groups[w.key_group[k][key]];
    size_t at = 0;
    for (int i = 0; i < g - w.groups; i++) {
        at += (size_t) w.groups[i].n_experts;
    }
    return hidden_usage[at + (size_t) (key - g->first_key)];
}

// The slots that a full pre-fill leaves: of each class the hottest experts, the hottest as the newest; without a
// profile evenly over the layers.
static void check_prefilled(bool by_usage, bool stopped) {
    for (int k = 0; k < w.t.n_classes; k++) {
        const struct st_class * c     = &w.classes[k];
        const struct st_residency * r = &c->residency;
        CHECK("flow-pre-fill fills all slots", r->n_resident == c->n_slots && r->n_homes == 0);
        float coldest = -1, last = -1;
        for (int32_t s = r->newest[0]; s >= 0; s = r->older[s]) {
            const float usage = by_usage ? usage_of(k, r->key_of[s]) : 0;
            CHECK("flow-pre-fill takes the hottest last", last < 0 || usage <= last);
            coldest = last = usage;
        }
        int taken[MAX_LAYERS] = { 0 }, least = MAX_EXPERTS, most = 0;
        for (int32_t key = 0; key < c->n_keys; key++) {
            const struct st_group * g = &w.groups[c->key_group[key]];
            CHECK("flow-pre-fill takes the hottest", !by_usage || r->slot_of[key] >= 0 || usage_of(k, key) <= coldest);
            CHECK("flow-pre-fill hands the usage on", !by_usage || stopped || c->usage[key] == usage_of(k, key));
            taken[g - w.groups] += r->slot_of[key] >= 0;
        }
        for (int i = 0; i < w.t.n_groups; i++) {
            most = w.groups[i].class_index == k && taken[i] > most ? taken[i] : most;
        }
        for (int i = 0; i < w.t.n_groups; i++) {
            least = w.groups[i].class_index == k && taken[i] < w.groups[i].n_experts && taken[i] < least ? taken[i] : least;
        }
        CHECK("flow-pre-fill spreads over the layers", by_usage || most - least <= 1);
    }
}

// Returns false when the world has to end.
static bool prefill(void) {
    struct st_tier * t = &w.t;
    int64_t total = 0, resident = 0, before = 0;
    for (int k = 0; k < t->n_classes; k++) {
        total += t->classes[k].n_slots;
        before += t->classes[k].residency.n_resident;
    }
    const bool by_usage = one_in(&rng, 2), with_step = one_in(&rng, 2);
    for (int i = 0; i < MAX_LAYERS * MAX_EXPERTS; i++) {
        hidden_usage[i] = (float) below(&rng, 30);
    }
    steps_left    = one_in(&rng, 2) ? 1 + below(&rng, 4) : -1;
    w.read_failed = false;
    const bool had_pool = t->pool_built;
    const int64_t done  = st_prefill(t, by_usage ? hidden_usage : NULL, with_step ? step : NULL, &steps_left);
    w.cancel_in_calls   = 0;
    w.cancel_in_reads = w.fail_read_in = -1;
    const bool refused = done < 0 && strstr(t->error, "a copy to slot");
    w.n_refused += refused;
    if (st_sim_failed(t->transport)) {
        return false;
    }
    for (int k = 0; k < t->n_classes; k++) {
        resident += t->classes[k].residency.n_resident;
    }
    if (before > 0) {
        CHECK("flow-pre-fill wants empty slots", done < 0 && strstr(t->error, "wants empty slots") && resident == before);
    } else if (done < 0) {
        CHECK("flow-a failed pre-fill has a cause", w.read_failed || refused || !had_pool || w.n_refused >= t->pool.n_buffers);
    } else {
        CHECK("flow-pre-fill tells how many", done == resident && t->slots_used == done && (!w.read_failed || atomic_load(&t->cancel)));
        CHECK("flow-pre-fill stops only when asked", done == total || atomic_load(&t->cancel) || (with_step && steps_left == 0));
        if (done == total) {
            check_prefilled(by_usage, with_step && steps_left == 0);
        }
        n_prefilled += (uint64_t) done;
    }
    if (had_pool) {
        check_pool();
    }
    check_slots();
    st_error_clear(t);
    atomic_store(&t->cancel, false);
    return true;
}

// Returns false when the world has to end.
static bool refill(void) {
    struct st_tier * t = &w.t;
    const int64_t most = below(&rng, 40);
    int64_t before = 0, after = 0;
    for (int k = 0; k < t->n_classes; k++) {
        before += t->classes[k].residency.n_resident;
    }
    const bool had_pool = t->pool_built;
    w.read_failed       = false;
    const int64_t done  = st_refill(t, most);
    w.cancel_in_calls   = 0;
    w.cancel_in_reads = w.fail_read_in = -1;
    const bool refused = done < 0 && strstr(t->error, "a copy to slot");
    w.n_refused += refused;
    if (st_sim_failed(t->transport)) {
        return false;
    }
    for (int k = 0; k < t->n_classes; k++) {
        after += t->classes[k].residency.n_resident;
        for (int32_t s = 0; s < t->classes[k].n_slots && done >= 0 && t->n_pending == 0; s++) {
            CHECK("flow-refill waits", st_sim_writing(t->transport, slot_address(&w.classes[k], s), w.classes[k].stride) == 0);
        }
    }
    if (done < 0) {
        CHECK("flow-a failed refill has a cause", w.read_failed || refused || !had_pool || w.n_refused >= t->pool.n_buffers);
    } else if (!atomic_load(&t->cancel)) {
        CHECK("flow-refill tells how many", done == (most < before ? most : before) && after == before);
    }
    check_slots();
    st_error_clear(t);
    atomic_store(&t->cancel, false);
    return true;
}

static bool selftest(void) {
    struct st_tier * t = &w.t;
    char line[256] = "";
    const bool empty = t->classes[0].residency.n_resident == 0, had_pool = t->pool_built;
    const int result = st_selftest(t, line, sizeof line);
    if (st_sim_failed(t->transport)) {
        return false;
    }
    const bool refused = result < 0 && strstr(t->error, "a copy was refused");
    w.n_refused += refused;
    CHECK("flow-self-test passes when copies work", (result == 0) == (empty && had_pool && !refused));
    CHECK("flow-self-test says what it did", (line[0] != '\0') == (result == 0) && (t->error[0] == '\0') == (result == 0));
    check_pool();
    check_slots();
    st_error_clear(t);
    return true;
}

static void apply_modes(void) {
    struct st_tier * t = &w.t;
    const enum st_pin pin         = (enum st_pin) below(&rng, 3);
    const enum st_profile profile = (enum st_profile) below(&rng, 3);
    const bool refuse_pin = one_in(&rng, 3), refuse_memory = one_in(&rng, 8);
    st_sim_fail_at(t->transport, ST_SIM_PIN, refuse_pin);
    st_sim_fail_at(t->transport, ST_SIM_MEMORY, refuse_memory);
    const int64_t available = one_in(&rng, 3) ? -1 : (int64_t) (draw(&rng) % (2 * t->blob_bytes_all));
    w.warm                  = one_in(&rng, 4) ? -1 : one_in(&rng, 2) ? 100 * below(&rng, 2) : below(&rng, 101);
    const int threads       = below(&rng, 5), result = st_pool_apply(t, pin, profile, available, threads);
    st_sim_fail_at(t->transport, ST_SIM_PIN, 0);
    st_sim_fail_at(t->transport, ST_SIM_MEMORY, 0);
    if (st_sim_failed(t->transport)) {
        st_error_clear(t);
        return;
    }
    CHECK("flow-modes fail only without memory", (result < 0) == refuse_memory && (t->error[0] != '\0') == refuse_memory);
    st_error_clear(t);
    w.n_refused = 0;
    if (result < 0) {
        return;
    }
    const size_t bytes = t->max_stride * (size_t) t->pool_buffers;
    const struct st_modes * m = &t->modes;
    CHECK("flow-modes say where the bytes are", m->pinned == (t->pool.pinned > 0) && m->pinned_bytes + m->pageable_bytes == bytes && m->pinned == (m->pinned_bytes > 0));
    CHECK("flow-pinned as asked", pin == ST_PIN_ON ? m->pinned == (t->transport->iface->can_pin && !refuse_pin) : pin == ST_PIN_AUTO || !m->pinned);
    CHECK("flow-a refused pin is counted and said", m->refused_bytes == (refuse_pin && t->transport->iface->can_pin && pin == ST_PIN_ON ? bytes : m->refused_bytes));
    CHECK("flow-pool size", t->pool.n_buffers == t->pool_buffers && m->pool_buffers == t->pool_buffers);
    struct st_stager_state state;
    st_pool_state(t, &state);
    CHECK("flow-the stager is as asked", (profile == ST_PROFILE_AUTO || state.profile == profile) && (threads ? state.threads == threads : state.threads >= 1));
    CHECK("flow-past the page cache where the experts do not fit", m->direct_reason[0] ? available >= 0 && (double) available < 1.05 * (double) t->blob_bytes_all
                                                                                      : available < 0 || (double) available >= (double) t->blob_bytes_all - (double) t->mirror.bytes);
}

static void fill_mirror(void) {
    struct st_tier * t = &w.t;
    if (one_in(&rng, 6)) {
        st_sim_fail_at(t->transport, one_in(&rng, 2) ? ST_SIM_PIN : ST_SIM_MEMORY, 1);
    }
    w.filling_mirror = true;
    w.read_failed    = false;
    w.fail_read_in   = one_in(&rng, 6) ? 1 + below(&rng, 20) : -1;
    const int64_t left = st_mirror_fill(t, w.mirror_limit, 1 + below(&rng, 8));
    w.filling_mirror   = false;
    w.fail_read_in     = -1;
    st_sim_fail_at(t->transport, ST_SIM_PIN, 0);
    st_sim_fail_at(t->transport, ST_SIM_MEMORY, 0);
    CHECK("flow-mirror fails only with a read", (left < 0) == w.read_failed && (t->error[0] != '\0') == w.read_failed);
    CHECK("flow-mirror stays below its limit", t->mirror.bytes <= w.mirror_limit);
    CHECK("flow-no fill is left running", st_stager_open(&t->stager) == 0);
    st_error_clear(t);
}

// The next layer is to pick what is (or is about to be) in this slot. Returns its group.
static const struct st_group * want(int k, int32_t slot, bool alone) {
    const int32_t key         = w.classes[k].residency.key_of[slot];
    const struct st_group * g = &w.groups[w.key_group[k][key]];
    w.wanted = key - g->first_key;
    w.alone  = alone;
    return g;
}

static int32_t newest_resident(const struct st_residency * r) {
    for (int list = 0; list < 2; list++) {
        for (int32_t s = r->newest[list]; s >= 0; s = r->older[s]) {
            if (r->state[s] == ST_SLOT_RESIDENT) {
                return s;
            }
        }
    }
    return -1;
}

static uint64_t life(uint64_t steps) {
    make_world();
    struct st_tier * t = &w.t;
    if (one_in(&rng, 8)) {
        (void) selftest();
    }
    while (!t->pool_built) {
        apply_modes();
    }
    const bool lossy = one_in(&rng, 3);
    uint64_t n       = 0;
    bool going       = true;
    for (int i = below(&rng, 8); i > 0; i--) {
        fill_mirror();
    }
    if (one_in(&rng, 3)) {
        going = selftest();
    }
    if (going && one_in(&rng, 3)) {  // a first round that comes to nothing
        atomic_store(&t->cancel, true);
        going = begin_round() && layer(&w.groups[0]);
    }
    if (going && one_in(&rng, 2)) {
        w.cancel_in_reads = one_in(&rng, 8) ? 1 + below(&rng, 12) : -1;
        w.fail_read_in    = one_in(&rng, 8) ? 1 + below(&rng, 30) : -1;
        going             = prefill();
    }
    if (going && one_in(&rng, 2)) {
        going = st_policy_set(t, ST_POLICY_ADAPTIVE) == 0;
    }
    const int last       = t->n_classes - 1;
    const int32_t filled = newest_resident(&w.classes[last].residency);
    if (going && filled >= 0) {  // what was pre-filled last is read at once
        going = begin_round() && layer(want(last, filled, true));
    }
    int in_round = 0;
    const struct st_group * again = NULL;  // another context wants this group's `again_expert`
    int32_t again_expert = -1;
    for (int at = 0; going && n < steps; n++, at = one_in(&rng, 8) ? below(&rng, t->n_groups) : (at + 1) % t->n_groups) {
        switch (below(&rng, 24)) {
            case 0:
                apply_modes();
                break;
            case 1:
                st_pool_sample(t, -1);
                break;
            case 2:
                fill_mirror();
                break;
            case 3:
                t->threads_wanted = 1 + below(&rng, 6);
                break;
            case 4:
                struct st_pace_options options = t->stager.pace.options;
                options.threads = 1 + below(&rng, 4);
                CHECK("flow-threads", st_stager_set(&t->stager, &options) == options.threads);
                break;
            case 5:  // another context takes over; the first one's stream may still be busy
                if (one_in(&rng, 2)) {
                    st_sim_synchronize(t->transport, w.contexts[w.at].inner);
                }
                w.at     = (w.at + 1) % COMPUTES;
                in_round = 0;
                break;
            case 6:
                st_sim_synchronize(t->transport, w.contexts[w.at].inner);
                break;
            case 7:
                w.fail_read_in = 1 + below(&rng, 30);
                break;
            case 8:
                atomic_store(&t->cancel, true);
                break;
            case 9:
                w.cancel_in_reads = 1 + below(&rng, 12);
                break;
            case 10:
                w.cancel_in_calls = 1 + below(&rng, 24);
                break;
            case 11:
                if (lossy && one_in(&rng, 8)) {
                    static const enum st_sim_call kinds[] = { ST_SIM_COPY, ST_SIM_RECORD, ST_SIM_QUERY, ST_SIM_WAIT, ST_SIM_COMPUTE_WAITS, ST_SIM_COPIES_WAIT };
                    st_sim_fail_at(t->transport, kinds[below(&rng, 6)], (uint64_t) (1 + below(&rng, 12)));
                }
                break;
            case 12:
                if (one_in(&rng, 4)) {
                    st_sim_fail_at(t->transport, ST_SIM_REFUSE, (uint64_t) (1 + below(&rng, 12)));
                }
                break;
            case 13:
                if (one_in(&rng, 2)) {
                    going    = set_policy();
                    in_round = 0;
                }
                break;
            case 14:
                if (one_in(&rng, 4)) {  // a context ends, and another begins
                    free_context(&w.contexts[w.at]);
                    make_context(&w.contexts[w.at]);
                    in_round = 0;
                }
                break;
            case 15:
                if (one_in(&rng, 4)) {
                    going    = one_in(&rng, 3) ? prefill() : one_in(&rng, 2) ? refill() : selftest();
                    in_round = 0;
                }
                break;
            default:
                break;
        }
        if (going && in_round-- <= 0) {
            going    = begin_round();
            in_round = below(&rng, t->n_groups < 4 ? t->n_groups : 4);
            if (going && again) {
                at       = (int) (again - w.groups);
                w.wanted = again_expert;
                w.alone  = true;
            } else if (going && t->n_pending > 0) {
                const int i = below(&rng, t->n_pending), what = below(&rng, 8);
                if (what < 4) {  // the next layer wants an expert that is under way
                    at = (int) (want(t->pending[i].class_index, t->pending[i].slot, one_in(&rng, 2)) - w.groups);
                } else if (what == 4) {
                    going    = set_policy();
                    in_round = 0;
                } else if (what == 5) {
                    break;  // closed while swaps are under way
                }
            }
            again = NULL;
        }
        const int32_t wanted = w.wanted;
        going = going && layer(&w.groups[at]);
        n_awaited_swaps += w.awaited;
        if (w.awaited && one_in(&rng, 2)) {  // another context takes over at once
            w.at         = (w.at + 1) % COMPUTES;
            in_round     = 0;
            again        = &w.groups[at];
            again_expert = wanted;
        }
        w.awaited = false;
        w.wanted  = -1;
    }
    n_lost += !going;
    for (int p = 0; p < ST_PHASES; p++) {
        CHECK("flow-counters add up", t->counters[p].loads == t->counters[p].loads_mirror + t->counters[p].loads_staged);
    }
    end_world();
    return n ? n : 1;
}

// usage: ... SEED STEPS SECONDS [fault]
int main(int argc, char ** argv) {
    check_start(argc, argv);
    rng   = check_args.seed;
    fault = argc > 4 && strcmp(argv[4], "fault") == 0;
    for (size_t i = 0; i < sizeof file; i++) {
        file[i] = i < BYTES_OF_FILE ? (uint8_t) draw(&rng) : file[i - BYTES_OF_FILE];
    }
    for (uint64_t done = 0; done < check_args.steps;) {
        const uint64_t left = check_args.steps - done;
        const uint64_t most = one_in(&rng, 2) ? 50 : 400;
        done += life(left < most ? left : most);
    }
    CHECK("flow-all kinds of runs were seen", check_args.steps < 20000 || (n_cancelled && n_failed_reads && n_lost && n_loaded && n_hits && n_swaps && n_copied_swaps && n_awaited_swaps && n_refused_swaps && n_prefilled && n_splits));
    printf("ok: %llu steps; loaded %llu, hits %llu, cancelled %llu, failed reads %llu, lost transports %llu, swaps %llu (%llu with a copy, %llu awaited), "
           "pre-filled %llu, split passes %llu\n",
           (unsigned long long) check_args.steps, (unsigned long long) n_loaded, (unsigned long long) n_hits, (unsigned long long) n_cancelled,
           (unsigned long long) n_failed_reads, (unsigned long long) n_lost, (unsigned long long) n_swaps, (unsigned long long) n_copied_swaps,
           (unsigned long long) n_awaited_swaps, (unsigned long long) n_prefilled, (unsigned long long) n_splits);
    return 0;
}
