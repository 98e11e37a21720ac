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

struct step {  // one MUL_MAT_ID over expert tensors
    int node;
    const struct st_slice * slice;
    struct ggml_tensor * weight;  // to be put back
    struct ggml_tensor view;
    size_t ids_at;   // in the ids read back, or SIZE_MAX: the ids of the step before
};

struct unit {  // what comes at once: for steps first .. end-1, of one group
    int first, end;
    int32_t direct;  // first of the neighbouring slots that hold all experts in order, or -1
};

struct range {  // neighbouring experts that come from the file
    int32_t expert, count;
};

struct st_stream {
    struct step * steps;
    struct unit * units;
    int capacity, n, n_units;
    bool blobs;             // units are layers, not slices
    struct range * ranges;  // [max_experts]
    struct st_memory ids;   // of all layers, read back for the counters
};

void st_prompt_free(struct st_backend * b) {
    if (b->stream) {
        if (b->stream->ids.data) {
            b->tier->transport->iface->memory_free(b->tier->transport, &b->stream->ids);
        }
        free(b->stream->steps);
        free(b->stream->units);
        free(b->stream->ranges);
        free(b->stream);
        b->stream = NULL;
    }
}

// The first of neighbouring slots that hold all experts of the group in order, or -1.
static int32_t find_direct(const struct st_tier * t, const struct st_group * g) {
    const struct st_residency * r = &t->classes[g->class_index].residency;
    const int32_t first = st_residency_find(r, g->first_key);
    for (int32_t e = 0; e < g->n_experts; e++) {
        if (first < 0 || st_residency_find(r, g->first_key + e) != first + e) {
            return -1;
        }
    }
    return first;
}

// Lists the operations that read experts. 0 or -1.
static int collect(struct st_backend * b, struct ggml_cgraph * graph) {
    struct st_tier * t = b->tier;
    if (!b->stream) {
        b->stream = calloc(1, sizeof *b->stream);
    }
    struct st_stream * st = b->stream;
    if (st && !st->ranges) {
        st->ranges = calloc((size_t) t->max_experts, sizeof *st->ranges);
    }
    if (!st || !st->ranges) {
        return st_fail(t, "out of memory");
    }
    st->n = st->n_units = 0;
    st->blobs = t->ring_bytes >= 2 * st_ring_layer(t);
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
            struct step * steps = realloc(st->steps, (size_t) capacity * sizeof *steps);
            st->steps            = steps ? steps : st->steps;
            struct unit * units = realloc(st->units, (size_t) capacity * sizeof *units);
            st->units            = units ? units : st->units;
            if (!steps || !units) {
                return st_fail(t, "out of memory");
            }
            st->capacity = capacity;
        }
        struct step * s = &st->steps[st->n++];
        *s = (struct step) { .node = i, .slice = slice, .weight = node->src[0], .ids_at = SIZE_MAX };
        if (!st->blobs || st->n_units == 0 || st->steps[st->units[st->n_units - 1].first].slice->group != slice->group) {
            st->units[st->n_units++] = (struct unit) { st->n - 1, st->n - 1, -1 };
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
    return st_grow(b, &st->ids, ids_bytes);
}

// ---- filling a unit

// The experts of a unit in the ring: as slots (slice NULL), or a slice of each as in the file.
struct filling {
    struct st_tier * t;
    const struct st_group * g;
    const struct st_class * c;
    const struct st_slice * slice;
    const struct range * ranges;
    uint8_t * at;
    size_t stride;
};

static int never_straight(void * ctx, int i) {
    (void) ctx, (void) i;
    return 0;
}

static void range_job(void * ctx, int i, struct st_job * job) {
    const struct filling * f = ctx;
    if (f->slice) {
        st_job_slices(f->t, job, f->slice, f->ranges[i].expert, f->ranges[i].count);
    } else {
        st_job_blob(f->t, job, f->g->class_index, f->g->first_key + f->ranges[i].expert);
    }
}

static int queue_range(void * ctx, int i, int buffer) {
    const struct filling * f = ctx;
    if (!f->slice) {
        st_zero_pads(f->c, f->t->pool.buffers[buffer].data);
    }
    const struct st_copy copy = { 0, f->at + (size_t) f->ranges[i].expert * f->stride, (size_t) f->ranges[i].count * f->stride };
    return st_stage_queue(&f->t->pool, buffer, &copy, 1) < 0 ? st_fail(f->t, "a copy to the ring failed") : 0;
}

enum source { FROM_FILE, FROM_SLOT, FROM_MIRROR };

// Where expert `e` comes from, and where its part of a unit lies there.
static enum source find_source(const struct filling * f, int32_t e, const uint8_t ** from) {
    const int32_t key    = f->g->first_key + e;
    const int32_t slot   = st_residency_find(&f->c->residency, key);
    const size_t offset  = f->slice ? f->slice->slot_offset : 0;
    const uint8_t * blob = f->c->mirror ? f->c->mirror[key] : NULL;
    *from = slot >= 0 ? (const uint8_t *) st_slot_address(f->c, slot) + offset : blob ? blob + offset : NULL;
    return slot >= 0 ? FROM_SLOT : blob ? FROM_MIRROR : FROM_FILE;
}

// Queues all copies of a unit. 0, 1 cancelled, -1 failed.
static int fill_unit(struct st_backend * b, const struct unit * u, uint8_t * at) {
    struct st_tier * t               = b->tier;
    const struct st_transport_i * io = t->transport->iface;
    const struct st_slice * slice    = b->stream->steps[u->first].slice;
    const struct st_group * g        = &t->groups[slice->group];
    struct filling f = { t, g, &t->classes[g->class_index], b->stream->blobs ? NULL : slice, b->stream->ranges, at, slice->bytes };
    f.stride = f.slice ? f.stride : f.c->stride;
    const int32_t most = t->fault ? 1 : (int32_t) (t->pool.buffer_size / f.stride);  // a blob fits, and so a slice
    uint64_t moved = 0, mirrored = 0;
    int n_ranges = 0, result = 0;
    if (f.slice) {
        const size_t all = slice->bytes * (size_t) g->n_experts;
        result           = io->set(t->transport, at + all, 0, st_unit_bytes(t, slice) - all);
    }
    for (int32_t e = 0, n; e < g->n_experts && result >= 0; e += n) {
        // Neighbours that lie behind each other at their source, too, are copied at once.
        const uint8_t * from, * next;
        const enum source source = find_source(&f, e, &from);
        for (n = 1; e + n < g->n_experts && find_source(&f, e + n, &next) == source; n++) {
            if (source == FROM_FILE ? n == (f.slice ? most : 1) : f.slice || next != from + (size_t) n * f.stride) {
                break;
            }
        }
        uint8_t * to = at + (size_t) e * f.stride;
        if (source == FROM_SLOT) {
            result = io->move(t->transport, to, from, (size_t) n * f.stride);
            moved += (uint64_t) n;
        } else if (source == FROM_MIRROR) {
            result = io->copy(t->transport, to, from, (size_t) n * f.stride);
            mirrored += (uint64_t) n;
        } else {
            b->stream->ranges[n_ranges++] = (struct range) { e, n };
        }
    }
    if (result < 0) {
        return st_fail(t, "a copy to the ring failed");
    }
    if (n_ranges > 0) {
        result = st_stage_run(t, &(struct st_staged) { &f, never_straight, range_job, queue_range }, n_ranges);
    }
    if (result == 0) {
        struct st_phase_counters * count = st_now(t);
        const uint64_t all = (uint64_t) g->n_experts, first = !f.slice || slice->index == 0;  // a blob counts with its first slice
        ST_COUNT(count, streamed, first * all);
        ST_COUNT(count, moved, first * moved);
        ST_COUNT(count, loads, first * (all - moved));
        ST_COUNT(count, loads_mirror, first * mirrored);
        ST_COUNT(count, loads_staged, first * (all - moved - mirrored));
        ST_COUNT(count, bytes_copied, (all - moved) * f.stride);
    }
    return result;
}

// Points a step's operation at what it reads.
static void rewrite(struct st_backend * b, struct ggml_cgraph * graph, struct step * s, ggml_backend_buffer_t buffer, void * data, size_t stride) {
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
    void * to = (char *) b->stream->ids.data + at;
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

// Counts picks and hits; the compute stream is idle. 0 or -1.
static int tally(struct st_backend * b, const struct ggml_cgraph * graph) {
    struct st_tier * t = b->tier;
    uint64_t picks = 0, hits = 0;
    for (int i = 0; i < b->stream->n; i++) {
        const struct step * s = &b->stream->steps[i];
        if (s->ids_at == SIZE_MAX) {
            continue;
        }
        const struct ggml_tensor * ids = graph->nodes[s->node]->src[2];
        const struct st_group * g      = &t->groups[s->slice->group];
        struct st_class * c            = &t->classes[g->class_index];
        struct picks p;
        if (st_count_picks(b, g, ids, (const int32_t *) (const void *) ((const char *) b->stream->ids.data + s->ids_at), &p) < 0) {
            return -1;
        }
        for (int32_t k = 0; k < p.n_distinct; k++) {
            const int32_t e = b->order[k], key = g->first_key + e;
            picks += (uint64_t) b->count[e];
            hits += st_residency_find(&c->residency, key) >= 0 ? (uint64_t) b->count[e] : 0;
            c->usage[key] += (float) (b->count[e] < 8 ? b->count[e] : 8);
        }
    }
    ST_COUNT(st_now(t), picks, picks);
    ST_COUNT(st_now(t), hits, hits);
    ST_COUNT(st_now(t), misses, picks - hits);
    return 0;
}

// ---- the walk

// Places and fills a unit. 1 done, 0 no room yet, -1 failed, -2 cancelled.
static int bring(struct st_backend * b, struct unit * u) {
    struct st_tier * t            = b->tier;
    const struct st_slice * slice = b->stream->steps[u->first].slice;
    const struct st_group * g     = &t->groups[slice->group];
    const uint64_t start          = st_now_ns();
    u->direct = find_direct(t, g);
    if (u->direct >= 0) {
        return 1;
    }
    int result = st_ring_place(&t->ring, b->stream->blobs ? t->classes[g->class_index].stride * (size_t) g->n_experts : st_unit_bytes(t, slice));
    if (result > 0) {
        result = fill_unit(b, u, st_ring_placed(&t->ring));
        result = result > 0 ? -2 : result < 0 || st_ring_arrived(&t->ring) < 0 ? -1 : 1;
    }
    ST_COUNT(st_now(t), wait_ns, st_now_ns() - start);
    return result == -1 ? st_fail(t, "the copy stream failed") : result;
}

// Queues the operations of a unit and what follows them, up to node `end`.
static enum ggml_status compute(struct st_backend * b, struct ggml_cgraph * graph, const struct unit * u, int end) {
    struct st_tier * t   = b->tier;
    struct st_stream * st = b->stream;
    uint8_t * data       = NULL;
    if (u->direct < 0 && st_ring_use(&t->ring, b->inner, &data) < 0) {
        return st_status(st_fail(t, "the copy stream failed"));
    }
    for (int i = u->first; i < u->end; i++) {
        struct step * s           = &st->steps[i];
        const struct st_class * c = &t->classes[t->groups[s->slice->group].class_index];
        if (u->direct >= 0) {
            rewrite(b, graph, s, c->arena, st_slot_address(c, u->direct) + s->slice->slot_offset, c->stride);
        } else if (st->blobs) {
            rewrite(b, graph, s, st_ring_buffer(t), data + s->slice->slot_offset, c->stride);
        } else {
            rewrite(b, graph, s, st_ring_buffer(t), data, s->slice->bytes);
        }
    }
    const struct step * first = &st->steps[u->first];
    if (first->ids_at != SIZE_MAX && read_later(b, graph->nodes[first->node]->src[2], first->ids_at) < 0) {
        return GGML_STATUS_FAILED;
    }
    const enum ggml_status status = st_run_part(b, graph, first->node, end);
    if (status == GGML_STATUS_SUCCESS && u->direct < 0 && st_ring_release(&t->ring, b->inner) < 0) {
        return st_status(st_fail(t, "the copy stream failed"));
    }
    return status;
}

enum ggml_status st_prompt_compute(struct st_backend * b, struct ggml_cgraph * graph) {
    struct st_tier * t = b->tier;
    if (collect(b, graph) < 0 || st_policy_finish(t, b->inner) < 0 || st_ring_take(t, b->inner) < 0) {
        return GGML_STATUS_FAILED;
    }
    struct st_stream * st = b->stream;
    // Where computing blocks this thread the ring is filled first; else what can compute is queued first.
    const bool ahead = !t->on_gpu && !t->transport->iface->post;
    int brought = 0, computed = 0;
    bool room = true;
    atomic_store_explicit(&t->stream_done, 0, memory_order_relaxed);
    atomic_store_explicit(&t->stream_total, st->n_units, memory_order_relaxed);
    enum ggml_status status = st_run_part(b, graph, 0, st->steps[0].node);
    while (computed < st->n_units && status == GGML_STATUS_SUCCESS) {
        if (st_cancelled(t)) {
            status = GGML_STATUS_ABORTED;
        } else if (computed < brought && !(ahead && room && brought < st->n_units)) {
            const bool last = computed + 1 == st->n_units;
            status = compute(b, graph, &st->units[computed], last ? graph->n_nodes : st->steps[st->units[computed + 1].first].node);
            computed++;
            room = true;
            atomic_store_explicit(&t->stream_done, computed, memory_order_relaxed);
        } else {
            const int r = bring(b, &st->units[brought]);
            brought += r > 0;
            room   = r > 0;
            status = r == -1 ? GGML_STATUS_FAILED : r == -2 ? GGML_STATUS_ABORTED : GGML_STATUS_SUCCESS;
            if (r == 0 && computed == brought) {
                status = st_status(st_fail(t, "the ring is too small for %s", st->steps[st->units[brought].first].slice->name));
            }
        }
    }
    const enum ggml_status ended = st_sync(b);
    status = status == GGML_STATUS_SUCCESS ? ended : status;
    for (int i = 0; i < st->n; i++) {
        graph->nodes[st->steps[i].node]->src[0] = st->steps[i].weight;  // llama.cpp reuses graphs
    }
    if (status == GGML_STATUS_SUCCESS && tally(b, graph) < 0) {
        status = GGML_STATUS_FAILED;
    }
    atomic_store_explicit(&t->stream_total, 0, memory_order_relaxed);
    return status;
}
