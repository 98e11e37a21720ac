// Long batches: the experts of each layer stream through the ring, each once, and the next ones arrive while a
// layer computes. What is resident is moved from its slot, the mirror's is copied straight, the rest comes through
// the stage pool. Nothing is asked of the router: with many tokens nearly every expert of a layer is picked, and
// not waiting for the ids is what keeps both streams busy.
//
// The batched kernels see a unit: all experts of one layer in order, so ids stay as they are. (Their cost grows with
// the number of experts in view; the whole arena would be too much.) Where the ring holds two layers a unit is a
// layer's blobs as the slots have them, and neighbours are copied at once; else it is one slice of them as the file
// has it. A layer whose experts lie in the arena in order needs no unit.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "graph.h"
#include "prompt.h"

// Lists the operations that read experts. 0 or -1.
static int collect(struct st_backend * b, struct ggml_cgraph * graph) {
    struct st_tier * t = b->tier;
    struct st_batch * st = &t->batch;
    if (!st->ranges) {
        st->ranges = calloc((size_t) t->max_experts, sizeof *st->ranges);
        if (!st->ranges) {
            return st_fail(t, "out of memory");
        }
    }
    // Units that were brought ahead stay when they are what this graph reads.
    const int known = st->n_units, brought = st->brought;
    bool same       = st->blobs == st_batch_by_layers(t);
    st->n = st->n_units = 0;
    st->blobs = st_batch_by_layers(t);
    size_t ids_bytes = 0;
    const struct ggml_tensor * ids = NULL;
    const struct st_group * group  = NULL;
    for (int i = 0; i < graph->n_nodes; i++) {
        struct ggml_tensor * node    = graph->nodes[i];
        const struct st_slice * slice = NULL;
        if (st_reads_experts(b, node, &slice) < 0) {
            return -1;
        }
        if (!slice) {
            continue;
        }
        if (st->n == st->capacity) {
            const int capacity   = st->capacity ? 2 * st->capacity : 256;
            struct st_step * steps = realloc(st->steps, (size_t) capacity * sizeof *steps);
            st->steps            = steps ? steps : st->steps;
            struct st_unit_plan * units = realloc(st->units, (size_t) capacity * sizeof *units);
            st->units            = units ? units : st->units;
            if (!steps || !units) {
                return st_fail(t, "out of memory");
            }
            st->capacity = capacity;
        }
        struct st_step * s = &st->steps[st->n++];
        *s = (struct st_step) { .node = i, .slice = slice, .weight = node->src[0], .ids_at = SIZE_MAX };
        if (!st->blobs || st->n_units == 0 || st->steps[st->units[st->n_units - 1].first].slice->group != slice->group) {
            struct st_unit_plan * u = &st->units[st->n_units];
            same = same && (st->n_units >= brought || (st->n_units < known && u->slice == slice));
            *u   = (struct st_unit_plan) { slice, st->n - 1, st->n - 1, st->n_units < brought ? u->direct : -1 };
            st->n_units++;
        }
        st->units[st->n_units - 1].end = st->n;
        if (node->src[2] != ids || &t->groups[slice->group] != group) {
            ids   = node->src[2];
            group = &t->groups[slice->group];
            if (!st_ids_known(ids)) {
                return st_fail(t, "layer %d: the router's ids have an unknown layout", group->layer);
            }
            s->ids_at = ids_bytes;
            ids_bytes += ggml_nbytes(ids);
        }
    }
    st->brought = same && brought <= st->n_units ? brought : 0;
    return st_grow(b, &st->ids, ids_bytes);
}

// Points a step's operation at what it reads.
static void rewrite(struct st_backend * b, struct ggml_cgraph * graph, struct st_step * s, ggml_backend_buffer_t buffer, void * data, size_t stride) {
    const struct st_group * g = &b->tier->groups[s->slice->group];
    s->view        = (struct ggml_tensor) { .type = s->slice->type, .buffer = buffer, .data = data };
    s->view.ne[0]  = s->slice->ne0;
    s->view.ne[1]  = s->slice->ne1;
    s->view.ne[2]  = g->n_experts;
    s->view.ne[3]  = 1;
    s->view.nb[0]  = ggml_type_size(s->slice->type);
    s->view.nb[1]  = ggml_row_size(s->slice->type, s->slice->ne0);
    s->view.nb[2]  = stride;
    s->view.nb[3]  = stride * (size_t) g->n_experts;
    graph->nodes[s->node]->src[0] = &s->view;
}

// ---- the ids, read back for the counters

struct later {
    const struct ggml_tensor * ids;
    void * to;
};

static void copy_ids(void * arg) {
    struct later * l = arg;
    memcpy(l->to, l->ids->data, ggml_nbytes(l->ids));
    free(l);
}

static int read_later(struct st_backend * b, const struct ggml_tensor * ids, size_t at) {
    struct st_transport * io = b->tier->transport;
    void * to = (char *) b->tier->batch.ids.data + at;
    if (io->iface->post) {
        struct later * l = malloc(sizeof *l);
        if (l) {
            *l = (struct later) { ids, to };
        }
        if (!l || io->iface->post(io, copy_ids, l) < 0) {
            free(l);
            return st_fail(b->tier, "out of memory");
        }
    } else if (b->inner->iface.get_tensor_async) {
        b->inner->iface.get_tensor_async(b->inner, ids, to, 0, ggml_nbytes(ids));
    } else {
        ggml_backend_tensor_get(ids, to, 0, ggml_nbytes(ids));
    }
    return 0;
}

// Counts the picks and hits of a unit whose operations have ended. 0 or -1.
static int tally(struct st_backend * b, const struct ggml_cgraph * graph, const struct st_unit_plan * u) {
    struct st_tier * t            = b->tier;
    const struct st_step * s      = &t->batch.steps[u->first];
    const struct st_group * g     = &t->groups[s->slice->group];
    struct st_class * c           = &t->classes[g->class_index];
    const struct ggml_tensor * ids = graph->nodes[s->node]->src[2];
    if (s->ids_at == SIZE_MAX) {
        return 0;
    }
    const char * row = (const char *) t->batch.ids.data + s->ids_at;
    uint64_t picks = 0, hits = 0;
    memset(b->count, 0, (size_t) g->n_experts * sizeof *b->count);
    for (int64_t token = 0; token < ids->ne[1]; token++, row += ids->nb[1]) {
        for (int64_t k = 0; k < ids->ne[0]; k++) {
            int32_t e;
            memcpy(&e, row + (size_t) k * sizeof e, sizeof e);
            if (e < 0 || e >= g->n_experts) {
                return st_fail(t, "layer %d: the router chose expert %d of %d", g->layer, e, g->n_experts);
            }
            b->count[e]++;
        }
    }
    for (int32_t e = 0; e < g->n_experts; e++) {
        const int32_t key = g->first_key + e;
        picks += (uint64_t) b->count[e];
        hits += st_residency_find(&c->residency, key) >= 0 ? (uint64_t) b->count[e] : 0;
        c->usage[key] += (float) (b->count[e] < ST_USAGE_MOST ? b->count[e] : ST_USAGE_MOST);
    }
    st_count_picks(t, g, picks, hits);
    return 0;
}

// ---- the walk

// Queues the operations of a unit and what follows them, up to node `end`.
static enum ggml_status compute(struct st_backend * b, struct ggml_cgraph * graph, const struct st_unit_plan * u, int end) {
    struct st_tier * t   = b->tier;
    struct st_batch * st = &t->batch;
    uint8_t * data;
    if (st_ring_use(&t->ring, b->inner, &data) < 0) {
        return st_status(st_fail(t, "the copy stream failed"));
    }
    for (int i = u->first; i < u->end; i++) {
        struct st_step * s        = &st->steps[i];
        const struct st_class * c = &t->classes[t->groups[s->slice->group].class_index];
        if (u->direct >= 0) {
            rewrite(b, graph, s, c->arena, st_slot_address(c, u->direct) + s->slice->slot_offset, c->stride);
        } else if (st->blobs) {
            rewrite(b, graph, s, st_ring_buffer(t), data + s->slice->slot_offset, c->stride);
        } else {
            rewrite(b, graph, s, st_ring_buffer(t), data, s->slice->bytes);
        }
    }
    const struct st_step * first = &st->steps[u->first];
    if (first->ids_at != SIZE_MAX && read_later(b, graph->nodes[first->node]->src[2], first->ids_at) < 0) {
        return GGML_STATUS_FAILED;
    }
    const enum ggml_status status = st_run_part(b, graph, first->node, end);
    if (status == GGML_STATUS_SUCCESS && st_ring_release(&t->ring, b->inner) < 0) {
        return st_status(st_fail(t, "the copy stream failed"));
    }
    return status;
}

enum ggml_status st_prompt_compute(struct st_backend * b, struct ggml_cgraph * graph) {
    struct st_tier * t    = b->tier;
    struct st_batch * st = &t->batch;
    if (collect(b, graph) < 0 || (st->brought == 0 && (st_policy_finish(t, b->inner) < 0 || st_batch_begin(t, b->inner) < 0))) {
        return GGML_STATUS_FAILED;
    }
    // Where computing blocks this thread the ring is filled first; else what can compute is queued first.
    const bool ahead = !t->on_gpu && !t->transport->iface->post;
    int computed = 0, counted = 0;
    bool room = true;
    atomic_store_explicit(&t->stream_done, 0, memory_order_relaxed);
    atomic_store_explicit(&t->stream_total, st->n_units, memory_order_relaxed);
    enum ggml_status status = st_run_part(b, graph, 0, st->steps[0].node);
    while (computed < st->n_units && status == GGML_STATUS_SUCCESS) {
        if (st_cancelled(t)) {
            status = GGML_STATUS_ABORTED;
        } else if (computed < st->brought && !(ahead && room && st->brought < st->n_units)) {
            const bool last = computed + 1 == st->n_units;
            status = compute(b, graph, &st->units[computed], last ? graph->n_nodes : st->steps[st->units[computed + 1].first].node);
            computed++;
            room = true;
            atomic_store_explicit(&t->stream_done, computed, memory_order_relaxed);
        } else {
            const int r = st_unit_bring(t);
            room   = r > 0;
            status = r == -1 ? GGML_STATUS_FAILED : r == -2 ? GGML_STATUS_ABORTED : GGML_STATUS_SUCCESS;
            if (r == 0 && computed == st->brought) {
                status = st_status(st_fail(t, "the ring is too small for %s", st->units[computed].slice->name));
            }
        }
        // What has been read to its end is counted while the streams run on.
        for (; (uint64_t) counted < t->ring.n_ended && status == GGML_STATUS_SUCCESS; counted++) {
            status = st_status(tally(b, graph, &st->units[counted]));
        }
    }
    const enum ggml_status ended = st_sync(b);
    status = status == GGML_STATUS_SUCCESS ? ended : status;
    for (; counted < computed && status == GGML_STATUS_SUCCESS; counted++) {
        status = st_status(tally(b, graph, &st->units[counted]));
    }
    for (int i = 0; i < st->n; i++) {
        graph->nodes[st->steps[i].node]->src[0] = st->steps[i].weight;  // llama.cpp reuses graphs
    }
    st->brought = 0;
    atomic_store_explicit(&t->stream_total, 0, memory_order_relaxed);
    return status;
}
