// The way of an expert into a slot: load.c, pool.c, mirror.c, the stage pool, the stager and the residency as
// they are, on the simulated transport. Many layers, few slots, failures, and a cancel at any step. Every read
// on a compute stream must see exactly the bytes of the expert that it was given a slot for.
//
// Here stand only what the graph does before a layer (make_resident) and what the model's file does.
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>

#include "check.h"
#include "tier.h"
#include "transport_sim.h"

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
    void * compute[COMPUTES];
    int at;                       // the compute stream in use
    size_t mirror_limit;
    bool expect_mapped, filling_mirror;
    _Atomic int64_t fail_read_in, cancel_in_reads;  // counted down; 0 is not reached again
    int64_t cancel_in_calls;
    int n_refused;                // copies, since the pool was built
    bool read_failed, big;
};

static struct world w;
static uint64_t n_cancelled, n_failed_reads, n_lost, n_loaded, n_hits;

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

int st_experts_read(const struct st_tier * t, const struct st_slice * s, int32_t expert, size_t offset, size_t size, void * dst, bool mapped) {
    CHECK("flow-reads as the profile says", mapped == w.expect_mapped);
    CHECK("flow-reads inside the slice", offset + size <= s->bytes && expert >= 0 && expert < t->groups[s->group].n_experts);
    if (!w.filling_mirror) {
        const size_t b = (size_t) ((uint8_t *) dst - (uint8_t *) t->pool.slab.data) / t->pool.buffer_size;
        CHECK("flow-fills a buffer of the pool", b < (size_t) t->pool.n_buffers);
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

double st_experts_cached(const struct st_tier * t, int samples) {
    (void) t;
    (void) samples;
    static const double shares[] = { -1, 0, 0.5, 0.95, 1 };
    const double share = shares[below(&rng, 5)];
    w.expect_mapped    = share < 0 || share >= 0.9;
    return share;
}

int st_fail(struct st_tier * t, const char * format, ...) {
    va_list args;
    va_start(args, format);
    if (t->error[0] == '\0') {
        vsnprintf(t->error, sizeof t->error, format, args);
    }
    va_end(args);
    return -1;
}

// ---- the compute stream

static bool is_expert(void * ctx, uint64_t tag, const uint8_t * bytes, size_t size) {
    (void) ctx;
    return with_content((int) (tag >> 32), (int) (tag >> 16 & 0xFFFF), (int32_t) (tag & 0xFFFF), 0, size, (uint8_t *) bytes, false);
}

static uint8_t * slot_address(const struct st_class * c, int32_t slot) {
    return (uint8_t *) c->arena->base + (size_t) slot * c->stride;
}

static void read_experts(const struct st_group * g, const int32_t * experts, const int32_t * slots, int n) {
    for (int i = 0; i < n; i++) {
        for (int s = 0; s < g->n_slices; s++) {
            st_sim_read(w.t.transport, w.compute[w.at], slot_address(&w.classes[g->class_index], slots[i]) + g->slices[s].slot_offset, g->slices[s].bytes,
                        is_expert, NULL, (uint64_t) (g - w.groups) << 32 | (uint64_t) s << 16 | (uint64_t) experts[i]);
        }
    }
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

static void make_world(void) {
    w = (struct world) { .big = one_in(&rng, 60), .fail_read_in = -1, .cancel_in_reads = -1 };
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
        *g = (struct st_group) { .layer = i, .n_experts = 2 + below(&rng, MAX_EXPERTS - 1), .n_used = 1, .first_key = c->n_keys, .class_index = (int) (c - w.classes), .n_slices = c->n_slices };
        for (int s = 0; s < g->n_slices; s++) {
            g->slices[s] = (struct st_slice) { .group = i, .index = s, .bytes = (size_t) (c->ne0[s] * c->ne1[s]), .slot_offset = c->slot_offset[s] };
        }
        for (int e = 0; e < g->n_experts; e++) {
            w.key_group[g->class_index][c->n_keys++] = i;
        }
        t->max_experts = g->n_experts > t->max_experts ? g->n_experts : t->max_experts;
    }
    static struct st_shard shard = { .path = (char *) "the file" };
    t->shards    = &shard;
    t->n_shards  = 1;
    t->jobs      = calloc((size_t) t->max_experts + 1, sizeof *t->jobs);
    t->transport = st_sim_new(&(struct st_sim_options) { .seed = draw(&rng), .can_pin = one_in(&rng, 2), .called = on_call });
    CHECK("flow-world", t->jobs && t->transport && st_stager_init(&t->stager, st_fill_piece, t) == 0);
    t->group_event = t->transport->iface->event_new(t->transport);
    for (int i = 0; i < COMPUTES; i++) {
        w.compute[i] = st_sim_compute_new(t->transport);
    }
    for (int k = 0; k < t->n_classes; k++) {
        struct st_class * c = &w.classes[k];
        c->key_group  = w.key_group[k];
        c->n_slots    = 1 + below(&rng, one_in(&rng, 2) ? 4 : 24);
        w.arena[k].base = calloc((size_t) c->n_slots, c->stride);
        c->arena      = &w.arena[k];
        CHECK("flow-world", w.arena[k].base && st_residency_init(&c->residency, c->n_keys, c->n_slots));
    }
    w.mirror_limit = one_in(&rng, 2) ? t->max_stride * (size_t) (1 + below(&rng, 30)) : 0;
}

static void end_world(void) {
    struct st_tier * t = &w.t;
    for (int i = 0; i < COMPUTES; i++) {
        st_sim_compute_free(t->transport, w.compute[i]);  // runs every read that is left
    }
    st_stager_free(&t->stager);  // from here on as st_tier_close
    st_pool_free(t);
    st_mirror_free(t);
    t->transport->iface->event_free(t->transport, t->group_event);
    t->transport->iface->free(t->transport);
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
        free(w.arena[k].base);
    }
    free(t->jobs);
    pthread_mutex_destroy(&t->lock);
}

// ---- one layer

// As graph.c does it: hits first, then claims in router order, then the loads.
static int make_resident(const struct st_group * g, const int32_t * experts, int n, int32_t * slots, struct st_load * loads, int * n_loads) {
    struct st_class * c = &w.classes[g->class_index];
    *n_loads = 0;
    st_residency_begin(&c->residency);
    for (int i = 0; i < n; i++) {
        slots[i] = st_residency_find(&c->residency, g->first_key + experts[i]);
        if (slots[i] >= 0) {
            st_residency_touch(&c->residency, slots[i]);
        }
    }
    for (int i = 0; i < n; i++) {
        if (slots[i] < 0) {
            int32_t evicted;
            slots[i] = st_residency_claim(&c->residency, g->first_key + experts[i], &evicted);
            CHECK("flow-a slot for each", slots[i] >= 0);
            loads[(*n_loads)++] = (struct st_load) { g->first_key + experts[i], slots[i] };
        }
    }
    return *n_loads > 0 ? st_load_blobs(&w.t, c, loads, *n_loads, w.compute[w.at]) : 0;
}

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

// Returns false when the world has to end.
static bool layer(const struct st_group * g) {
    struct st_tier * t  = &w.t;
    struct st_class * c = &w.classes[g->class_index];
    int32_t all[MAX_EXPERTS], slots[MAX_EXPERTS];
    struct st_load loads[MAX_EXPERTS];
    const int most = g->n_experts < c->n_slots ? g->n_experts : c->n_slots, n = 1 + below(&rng, most);
    int n_loads = 0;
    for (int i = 0; i < g->n_experts; i++) {
        const int k = below(&rng, i + 1);
        all[i] = all[k];
        all[k] = i;
    }
    const bool had_pool = t->pool_built;
    w.read_failed       = false;
    const int result = make_resident(g, all, n, slots, loads, &n_loads);
    w.cancel_in_calls = 0;
    w.cancel_in_reads = w.fail_read_in = -1;
    const bool refused = result < 0 && strstr(t->error, "a copy to slot");
    w.n_refused += refused;
    if (had_pool) {
        check_pool();
    }
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < i; k++) {
            CHECK("flow-one slot, one expert", slots[i] != slots[k]);
        }
    }
    for (int i = 0; i < n_loads; i++) {
        const int32_t found = st_residency_find(&c->residency, loads[i].key);
        CHECK("flow-published when all is well, else not", found == (result == 0 ? loads[i].slot : -1));
        CHECK("flow-a slot that was given up does not change any more",
              result == 0 || st_sim_failed(t->transport) || st_sim_writing(t->transport, slot_address(c, loads[i].slot), c->stride) == 0);
        CHECK("flow-an expert that was not loaded has no slot", result == 0 || c->residency.slot_of[loads[i].key] < 0);
    }
    if (result == 0) {
        CHECK("flow-no success with a failed read", !w.read_failed);
        CHECK("flow-no error text without a failure", t->error[0] == '\0');
        read_experts(g, all, slots, n);
        n_loaded += (uint64_t) n_loads;
        n_hits += (uint64_t) (n - n_loads);
    } else if (result == 1) {
        CHECK("flow-cancelled only when asked", atomic_load(&t->cancel));
        n_cancelled++;
    } else {
        CHECK("flow-result", result == -1);
        CHECK("flow-a failure says why", t->error[0] != '\0');
        CHECK("flow-a failure has a cause", w.read_failed || st_sim_failed(t->transport) || refused || !had_pool || w.n_refused >= t->pool.n_buffers);
        CHECK("flow-names the file", !w.read_failed || refused || st_sim_failed(t->transport) || strstr(t->error, "could not be read from the file"));
        n_failed_reads += w.read_failed;
        t->error[0] = '\0';
    }
    atomic_store(&t->cancel, false);
    return !st_sim_failed(t->transport);
}

static void apply_modes(void) {
    struct st_tier * t = &w.t;
    const enum st_pin pin         = (enum st_pin) below(&rng, 3);
    const enum st_profile profile = (enum st_profile) below(&rng, 3);
    const bool refuse_pin = one_in(&rng, 3), refuse_memory = one_in(&rng, 8);
    st_sim_fail_at(t->transport, ST_SIM_PIN, refuse_pin);
    st_sim_fail_at(t->transport, ST_SIM_MEMORY, refuse_memory);
    if (profile != ST_PROFILE_AUTO) {
        w.expect_mapped = profile == ST_PROFILE_RAM;
    }
    const bool before = t->modes.profile == ST_PROFILE_RAM;
    const int result  = st_pool_apply(t, pin, profile);
    st_sim_fail_at(t->transport, ST_SIM_PIN, 0);
    st_sim_fail_at(t->transport, ST_SIM_MEMORY, 0);
    if (st_sim_failed(t->transport)) {
        t->error[0] = '\0';
        return;
    }
    CHECK("flow-modes fail only without memory", (result < 0) == refuse_memory && (t->error[0] != '\0') == refuse_memory);
    t->error[0] = '\0';
    w.n_refused = 0;
    if (result < 0) {
        w.expect_mapped = before;
        return;
    }
    const size_t bytes = t->max_stride * (size_t) t->pool_buffers;
    const struct st_modes * m = &t->modes;
    CHECK("flow-modes say where the bytes are", m->pinned == t->pool.slab.pinned && m->pinned_bytes + m->pageable_bytes == bytes && m->pinned == (m->pinned_bytes > 0));
    CHECK("flow-pinned as asked", pin == ST_PIN_ON ? m->pinned == (t->transport->iface->can_pin && !refuse_pin) : pin == ST_PIN_AUTO || !m->pinned);
    CHECK("flow-a refused pin is counted and said", m->refused_bytes == (refuse_pin && t->transport->iface->can_pin && pin == ST_PIN_ON ? bytes : m->refused_bytes));
    CHECK("flow-pool size", t->pool.n_buffers == t->pool_buffers && m->threads >= 1);
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
    t->error[0] = '\0';
}

static uint64_t life(uint64_t steps) {
    make_world();
    struct st_tier * t = &w.t;
    while (!t->pool_built) {
        apply_modes();
    }
    const bool lossy = one_in(&rng, 3);
    uint64_t n       = 0;
    bool going       = true;
    for (int at = 0; going && n < steps; n++, at = one_in(&rng, 8) ? below(&rng, t->n_groups) : (at + 1) % t->n_groups) {
        switch (below(&rng, 24)) {
            case 0:
                apply_modes();
                break;
            case 1:
                st_pool_sample(t);
                break;
            case 2:
                fill_mirror();
                break;
            case 3:
                t->threads_wanted = 1 + below(&rng, 6);
                break;
            case 4:
                CHECK("flow-threads", st_stager_set_threads(&t->stager, below(&rng, 5)) >= 0);
                break;
            case 5:  // another context: the first one's outputs were read, so its stream is idle
                st_sim_synchronize(t->transport, w.compute[w.at]);
                w.at = (w.at + 1) % COMPUTES;
                break;
            case 6:
                st_sim_synchronize(t->transport, w.compute[w.at]);
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
            default:
                break;
        }
        going = layer(&w.groups[at]);
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
        const uint64_t most = one_in(&rng, 4) ? 50 : 400;
        done += life(left < most ? left : most);
    }
    CHECK("flow-all kinds of runs were seen", check_args.steps < 20000 || (n_cancelled && n_failed_reads && n_lost && n_loaded && n_hits));
    printf("ok: %llu steps; loaded %llu, hits %llu, cancelled %llu, failed reads %llu, lost transports %llu\n", (unsigned long long) check_args.steps,
           (unsigned long long) n_loaded, (unsigned long long) n_hits, (unsigned long long) n_cancelled, (unsigned long long) n_failed_reads, (unsigned long long) n_lost);
    return 0;
}
