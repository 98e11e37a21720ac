// Where a graph is cut, and how MUL_MAT_ID is pointed at the slots.
//
// A MUL_MAT_ID over expert tensors needs its experts resident, and which ones is known only when the router
// has run. So the graph is run up to the first such node of a layer, the ids are read, the experts made
// resident, and the nodes of that layer are rewritten for the inner backend: src[0] becomes slice s of every
// slot, src[2] the slot ids. The pieces are views of llama.cpp's graph, which keep the use counts that kernel
// fusion needs; what was rewritten is restored after its piece, because llama.cpp reuses graphs.
//
// A batch that needs more experts than there are slots runs in passes: split.c.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "graph.h"
#include "piece.h"

// Work memory of the CPU's MUL_MAT_ID grows with slots x picks (8 bytes each); beyond this a batch is split.
#define CPU_WORK_BYTES ((int64_t) 64 << 20)

int st_backend_init(struct st_backend * b) {
    const size_t n = (size_t) b->tier->max_experts + 1;
    b->order = calloc(n, sizeof *b->order);
    b->count = calloc(n, sizeof *b->count);
    b->rows  = calloc(n, sizeof *b->rows);
    b->slot  = calloc(n, sizeof *b->slot);
    b->mark  = calloc(n, sizeof *b->mark);
    b->loads = calloc(n, sizeof *b->loads);
    b->posted = b->tier->transport->iface->event_new(b->tier->transport);
    return b->posted && b->order && b->count && b->rows && b->slot && b->mark && b->loads ? 0 : -1;
}

void st_backend_free(struct st_backend * b) {
    struct st_transport * io = b->tier->transport;
    if (b->inner) {
        (void) st_sync(b);
        if (b->tier->compute == b->inner) {
            b->tier->compute = NULL;  // idle now, and soon gone
        }
    }
    if (b->ids_host.data) {
        io->iface->memory_free(io, &b->ids_host);
    }
    if (b->slots_host.data) {
        io->iface->memory_free(io, &b->slots_host);
    }
    if (b->slots_buffer) {
        ggml_backend_buffer_free(b->slots_buffer);
    }
    if (b->scratch) {
        ggml_backend_buffer_free(b->scratch);
    }
    if (b->posted) {
        io->iface->event_free(io, b->posted);
    }
    free(b->order);
    free(b->count);
    free(b->rows);
    free(b->slot);
    free(b->mark);
    free(b->loads);
}

static bool is_expert_tensor(const struct st_tier * t, const struct ggml_tensor * tensor) {
    return tensor && tensor->buffer && tensor->buffer->buft == &t->buft;
}

// ---- the compute stream

struct posted {
    struct st_backend * b;
    struct ggml_cgraph piece;
};

static void compute_posted(void * arg) {
    struct posted * p = arg;
    if (atomic_load(&p->b->failed) == 0) {  // what an aborted piece should have made, ids above all, may be anything
        atomic_store(&p->b->failed, p->b->inner->iface.graph_compute(p->b->inner, &p->piece));
    }
    free(p);
}

enum ggml_status st_run(struct st_backend * b, const struct ggml_cgraph * piece) {
    struct st_transport * io = b->tier->transport;
    if (!io->iface->post) {
        return b->inner->iface.graph_compute(b->inner, (struct ggml_cgraph *) piece);
    }
    struct posted * p = malloc(sizeof *p);
    if (p) {
        *p = (struct posted) { b, *piece };
    }
    if (!p || io->iface->post(io, compute_posted, p) < 0) {
        free(p);
        return st_status(st_fail(b->tier, "out of memory"));
    }
    return GGML_STATUS_SUCCESS;
}

enum ggml_status st_run_part(struct st_backend * b, struct ggml_cgraph * graph, int first, int end) {
    if (first >= end) {
        return GGML_STATUS_SUCCESS;
    }
    const struct ggml_cgraph piece = ggml_graph_view(graph, first, end);
    return st_run(b, &piece);
}

enum ggml_status st_sync(struct st_backend * b) {
    struct st_transport * io = b->tier->transport;
    if (io->iface->post && (io->iface->mark(io, b->inner, b->posted) < 0 || io->iface->wait(io, b->posted) < 0)) {
        return st_status(st_fail(b->tier, "the compute stream failed"));
    }
    ggml_backend_synchronize(b->inner);
    return (enum ggml_status) atomic_exchange(&b->failed, 0);
}

int st_grow(struct st_backend * b, struct st_memory * m, size_t size) {
    struct st_transport * io = b->tier->transport;
    if (m->size >= size) {
        return 0;
    }
    if (m->data) {
        io->iface->memory_free(io, m);
    }
    size_t rounded = 4096;
    while (rounded < size) {
        rounded *= 2;
    }
    return io->iface->memory_new(io, rounded, true, m) < 0 ? st_fail(b->tier, "out of memory for expert ids") : 0;
}

// Device memory for `n` slot ids. The compute stream must be idle (it was just synchronised).
static int grow_slots(struct st_backend * b, int64_t n) {
    if (st_grow(b, &b->slots_host, (size_t) n * sizeof(int32_t)) < 0) {
        return -1;
    }
    if (b->slots_capacity >= n) {
        return 0;
    }
    int64_t capacity = 1024;
    while (capacity < n) {
        capacity *= 2;
    }
    if (b->slots_buffer) {
        ggml_backend_buffer_free(b->slots_buffer);
        b->slots_capacity = 0;
    }
    b->slots_buffer = ggml_backend_buft_alloc_buffer(ggml_backend_dev_buffer_type(b->tier->inner), (size_t) capacity * sizeof(int32_t));
    if (!b->slots_buffer) {
        return st_fail(b->tier, "no device memory for slot ids");
    }
    b->slots_capacity = capacity;
    memset(&b->slots, 0, sizeof b->slots);
    b->slots.type   = GGML_TYPE_I32;
    b->slots.buffer = b->slots_buffer;
    b->slots.data   = ggml_backend_buffer_get_base(b->slots_buffer);
    b->slots.nb[0]  = sizeof(int32_t);
    snprintf(b->slots.name, sizeof b->slots.name, "slot_ids");
    return 0;
}

void st_upload(struct st_backend * b, struct ggml_tensor * tensor, const void * data, size_t size) {
    if (b->inner->iface.set_tensor_async) {
        b->inner->iface.set_tensor_async(b->inner, tensor, data, 0, size);
    } else {
        ggml_backend_tensor_set(tensor, data, 0, size);
    }
}

int st_reads_experts(struct st_backend * b, const struct ggml_tensor * node, const struct st_slice ** slice) {
    struct st_tier * t = b->tier;
    *slice = NULL;
    const bool first = is_expert_tensor(t, node->src[0]);
    if (!first && !is_expert_tensor(t, node->src[1])) {
        return 0;
    }
    if (first && (node->op == GGML_OP_VIEW || node->op == GGML_OP_RESHAPE || node->op == GGML_OP_PERMUTE || node->op == GGML_OP_TRANSPOSE)) {
        return 0;  // reads nothing; an operation on the view is refused
    }
    if (first && node->op == GGML_OP_MUL_MAT_ID && node->src[2]->ne[1] == 0) {
        return 0;  // no token is left of a batch that asked for no output
    }
    *slice = first && node->op == GGML_OP_MUL_MAT_ID ? node->src[0]->extra : NULL;
    if (!*slice) {
        return st_fail(t, "operation %s reads expert tensor %s in a way that is not supported", ggml_op_name(node->op), node->src[first ? 0 : 1]->name);
    }
    return t->slots_total == 0 ? st_fail(t, "the slots were not allocated") : 0;
}

bool st_ids_known(const struct ggml_tensor * ids) {
    return ids->type == GGML_TYPE_I32 && ids->nb[0] == sizeof(int32_t) && ids->nb[1] % sizeof(int32_t) == 0 && ids->ne[2] == 1 && ids->ne[3] == 1;
}

// Counts the experts among ids on the host: *p, and the backend's order and count. 0 or -1.
static int count_picks(struct st_backend * b, const struct st_group * g, const struct ggml_tensor * ids, const int32_t * host, struct picks * p) {
    struct st_tier * t = b->tier;
    *p = (struct picks) { .group = g, .class_ = &t->classes[g->class_index], .ids = host, .stride = (int64_t) (ids->nb[1] / sizeof(int32_t)),
                          .used = ids->ne[0], .tokens = ids->ne[1] };
    b->stamp++;
    for (int64_t i = 0; i < p->tokens; i++) {
        for (int64_t k = 0; k < p->used; k++) {
            const int32_t e = p->ids[i * p->stride + k];
            if (e < 0 || e >= g->n_experts) {
                return st_fail(t, "layer %d: the router chose expert %d of %d", g->layer, e, g->n_experts);
            }
            if (b->mark[e] != b->stamp) {
                b->mark[e]  = b->stamp;
                b->count[e] = 0;
                b->rows[e]  = 0;
                b->order[p->n_distinct++] = e;
            }
            b->count[e]++;
            b->rows[e] |= i < 32 ? UINT32_C(1) << i : 0;
        }
    }
    return 0;
}

// Waits for the compute stream and reads the ids. On return everything queued before is done.
static int read_ids(struct st_backend * b, const struct st_group * g, const struct ggml_tensor * ids, struct picks * p) {
    struct st_tier * t = b->tier;
    if (!st_ids_known(ids)) {
        return st_fail(t, "layer %d: the router's ids have an unknown layout", g->layer);
    }
    const size_t bytes = ggml_nbytes(ids);
    if (st_grow(b, &b->ids_host, bytes) < 0) {
        return -1;
    }
    if (b->inner->iface.get_tensor_async) {
        b->inner->iface.get_tensor_async(b->inner, ids, b->ids_host.data, 0, bytes);
    }
    if (st_sync(b) != GGML_STATUS_SUCCESS) {
        return st_fail(t, "layer %d could not be computed", g->layer);
    }
    if (!b->inner->iface.get_tensor_async) {
        ggml_backend_tensor_get(ids, b->ids_host.data, 0, bytes);
    }
    ST_COUNT(st_now(t), cuts, 1);
    return count_picks(b, g, ids, b->ids_host.data, p);
}

// Two contexts share the slots, each with a compute stream of its own. Loads are ordered against the stream
// that asked for them; when the other stream takes over, the copies of the last load come before its reads
// (RAW), and the reads that are queued on the old stream before any copy to come (WAR).
static int change_stream(struct st_tier * t, ggml_backend_t next) {
    const struct st_transport_i * io = t->transport->iface;
    if ((t->compute && io->copies_wait(t->transport, t->compute) < 0) || (t->loaded && io->compute_waits(t->transport, next, t->group_event) < 0)) {
        return st_fail(t, "the copy stream failed");
    }
    t->compute = next;
    return 0;
}

int st_make_resident(struct st_backend * b, const struct picks * p, int32_t first, int32_t end, bool tally) {
    struct st_tier * t  = b->tier;
    struct st_class * c = p->class_;
    if (t->compute != b->inner && change_stream(t, b->inner) < 0) {
        return -1;
    }
    const bool window = st_window_holds(&t->window, p->tokens);
    uint64_t picks = 0, hits = 0, evictions = 0;
    int n_loads = 0;
    for (int32_t i = first; i < end && t->n_pending > 0; i++) {  // an expert that is just being swapped in is needed
        const int32_t slot = c->residency.slot_of[p->group->first_key + b->order[i]];
        if (slot >= 0 && c->residency.state[slot] == ST_SLOT_LOADING && st_policy_finish(t, b->inner) < 0) {
            return -1;
        }
    }
    st_residency_begin(&c->residency);
    for (int32_t i = first; i < end; i++) {  // hits first: they must not be claimed for the misses
        const int32_t e = b->order[i];
        b->slot[e] = st_residency_find(&c->residency, p->group->first_key + e);
        picks += (uint64_t) b->count[e];
        if (tally && !window) {
            c->usage[p->group->first_key + e] += (float) (b->count[e] < ST_USAGE_MOST ? b->count[e] : ST_USAGE_MOST);
        }
        if (b->slot[e] >= 0) {
            st_window_hit(&c->residency, b->slot[e], window ? b->rows[e] : 1);
            hits += (uint64_t) b->count[e];
        }
        const struct st_window_pick pick = { &c->residency, tally ? c->usage : NULL, p->group->first_key + e, b->rows[e] };
        if (window && !st_window_note(&t->window, &pick)) {
            return st_fail(t, "out of memory");
        }
    }
    for (int32_t i = first; i < end; i++) {
        const int32_t e = b->order[i];
        if (b->slot[e] >= 0) {
            continue;
        }
        int32_t evicted;
        const int32_t key  = p->group->first_key + e;
        const int32_t slot = st_residency_claim(&c->residency, key, &evicted);
        assert(slot >= 0);  // the caller asks for no more than fits, see st_guests()
        evictions += evicted >= 0;
        b->slot[e] = slot;
        b->loads[n_loads++] = (struct st_load) { key, slot };
        st_trace_add(t, c, slot, 'c', key);
    }
    const int result = n_loads > 0 ? st_load_blobs(t, c, b->loads, n_loads, b->inner) : 0;
    if (tally) {
        st_count_picks(t, p->group, picks, hits);
    }
    ST_COUNT(st_now(t), evictions, evictions);
    if (n_loads > 0) {
        int64_t used = 0;
        for (int k = 0; k < t->n_classes; k++) {
            used += t->classes[k].residency.n_resident;
        }
        atomic_store_explicit(&t->slots_used, used, memory_order_relaxed);
    }
    return result;
}

int32_t st_guests(const struct st_backend * b, const struct picks * p, int32_t first, int32_t end) {
    const struct st_residency * r = &p->class_->residency;
    int32_t n = 0;
    for (int32_t i = first; i < end; i++) {
        const int32_t slot = r->slot_of[p->group->first_key + b->order[i]];
        n += slot < 0 || !r->home[slot];
    }
    return n;
}

int32_t st_room(const struct picks * p) {
    return p->class_->n_slots - p->class_->residency.n_homes;
}

int64_t st_max_picks(const struct st_backend * b, const struct st_class * c) {
    return b->tier->on_gpu ? INT64_MAX : CPU_WORK_BYTES / 8 / c->n_slots;
}

enum ggml_status st_status(int result) {
    return result == 0 ? GGML_STATUS_SUCCESS : result > 0 ? GGML_STATUS_ABORTED : GGML_STATUS_FAILED;
}

// ---- the usual case: all experts of the batch are resident at once

static enum ggml_status map_slots(struct st_backend * b, const struct picks * p) {
    const int result = st_make_resident(b, p, 0, p->n_distinct, true);
    if (result != 0) {
        return st_status(result);
    }
    const int64_t n = p->used * p->tokens;
    if (grow_slots(b, n) < 0) {
        return GGML_STATUS_FAILED;
    }
    int32_t * out = b->slots_host.data;
    for (int64_t i = 0; i < p->tokens; i++) {
        for (int64_t k = 0; k < p->used; k++) {
            out[i * p->used + k] = b->slot[p->ids[i * p->stride + k]];
        }
    }
    b->slots.ne[0] = p->used;
    b->slots.ne[1] = p->tokens;
    b->slots.ne[2] = b->slots.ne[3] = 1;
    b->slots.nb[1] = (size_t) p->used * sizeof(int32_t);
    b->slots.nb[2] = b->slots.nb[3] = b->slots.nb[1] * (size_t) p->tokens;
    st_upload(b, &b->slots, out, (size_t) n * sizeof(int32_t));
    return GGML_STATUS_SUCCESS;
}

// ---- the walk

#define MAX_REWRITTEN 64

struct rewritten {
    struct ggml_tensor * node, * weight, * ids;
};

static void restore(struct rewritten * list, int * n) {
    for (int i = 0; i < *n; i++) {
        list[i].node->src[0] = list[i].weight;
        list[i].node->src[2] = list[i].ids;
    }
    *n = 0;
}

// Runs the piece up to node `end`; the next one begins there.
static enum ggml_status run_to(struct st_backend * b, struct ggml_cgraph * graph, struct st_piece * piece, int end) {
    piece->end = end;
    const enum ggml_status status = st_run_piece(b, graph, piece);
    *piece = (struct st_piece) { .tokens = piece->tokens, .index = piece->index + 1, .first = end };
    return status;
}

enum ggml_status st_graph_compute(struct st_backend * b, struct ggml_cgraph * graph) {
    struct st_tier * t = b->tier;
    bool counted = false;
    struct rewritten list[MAX_REWRITTEN];
    struct st_piece piece = { 0 };
    int n_list = 0, split_ops = 0;
    const struct ggml_tensor * ids_now = NULL;  // the ids that b->slots (or the split) stands for
    const struct st_group * group_now  = NULL;
    bool split = false;
    struct picks p = { 0 };
    enum ggml_status status = GGML_STATUS_SUCCESS;

    if (st_cancelled(t)) {
        return GGML_STATUS_ABORTED;
    }
    for (int i = 0; i < graph->n_nodes && status == GGML_STATUS_SUCCESS; i++) {
        struct ggml_tensor * node = graph->nodes[i];
        const struct st_slice * slice;
        if (st_reads_experts(b, node, &slice) < 0) {
            status = GGML_STATUS_FAILED;
            break;
        }
        if (!slice) {
            continue;
        }
        if (!counted) {
            counted      = true;
            piece.tokens = node->src[2]->ne[1];
            ST_COUNT(st_now(t), rounds, 1);
            if (t->compute != b->inner && change_stream(t, b->inner) < 0) {
                status = GGML_STATUS_FAILED;
                break;
            }
            if (t->stream_from > 0 && node->src[2]->ne[1] >= t->stream_from) {
                return st_prompt_compute(b, graph);
            }
            const int back = st_ring_give_back(t, b->inner);
            if (back != 0 || st_policy_round(t, b->inner) < 0) {  // swaps copy, too
                status = back > 0 ? GGML_STATUS_ABORTED : GGML_STATUS_FAILED;
                break;
            }
        }
        const struct st_group * g = &t->groups[slice->group];
        struct ggml_tensor * ids  = node->src[2];
        if (ids != ids_now || g != group_now || n_list == MAX_REWRITTEN) {
            status = run_to(b, graph, &piece, i);
            if (t->transport->iface->post && status == GGML_STATUS_SUCCESS) {
                status = st_sync(b);  // what is posted reads the graph later
            }
            restore(list, &n_list);
            if (status == GGML_STATUS_SUCCESS && st_cancelled(t)) {
                status = GGML_STATUS_ABORTED;
            }
            if (status != GGML_STATUS_SUCCESS) {
                break;
            }
            if (read_ids(b, g, ids, &p) < 0) {
                status = GGML_STATUS_FAILED;
                break;
            }
            split     = st_guests(b, &p, 0, p.n_distinct) > st_room(&p) || p.used * p.tokens > st_max_picks(b, p.class_);
            split_ops = 0;
            ids_now   = ids;
            group_now = g;
            if (!split) {
                status = map_slots(b, &p);
                if (status != GGML_STATUS_SUCCESS) {
                    break;
                }
            }
        }
        if (split) {
            status = st_run_part(b, graph, piece.first, i);
            if (status == GGML_STATUS_SUCCESS) {
                status = st_run_split(b, node, slice, &p, split_ops == 0, split_ops % 2 == 0);
            }
            split_ops++;
            piece.first = i + 1;
        } else {
            list[n_list++] = (struct rewritten) { node, node->src[0], ids };
            node->src[0] = &p.class_->weights[slice->index];
            node->src[2] = &b->slots;
            piece.rewritten = st_piece_mix(piece.rewritten, (uint64_t) (uintptr_t) node->src[0]->data ^ node->src[0]->nb[2]);
            piece.rewritten = st_piece_mix(piece.rewritten, (uint64_t) (uintptr_t) b->slots.data);
        }
    }
    if (status == GGML_STATUS_SUCCESS) {
        // A graph without expert operations goes on untouched, with its uid.
        status = piece.first == 0 && n_list == 0 ? st_run(b, graph) : run_to(b, graph, &piece, graph->n_nodes);
    }
    if (t->transport->iface->post) {  // what is posted reads the graph later
        const enum ggml_status ended = st_sync(b);
        status = status == GGML_STATUS_SUCCESS ? ended : status;
    }
    restore(list, &n_list);
    return status;
}
