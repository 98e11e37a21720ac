// Long batches that stream through the ring, in its own memory or in slots that are lent: prompt.c, unit.c, lend.c and
// ring.c as they are, with graphs that hold what these look at. Here stands what computes: it reads every expert of a unit,
// and the pads behind them.
#ifndef STRATA_FLOW_STREAM_H
#define STRATA_FLOW_STREAM_H

#include "flow_layer.h"

#define MAX_TOKENS 6
#define MAX_NODES (MAX_LAYERS * (2 * ST_MAX_SLICES + 1))

static struct batch {
    struct ggml_cgraph graph;
    struct ggml_tensor * nodes[MAX_NODES];
    struct ggml_tensor tensors[MAX_NODES];
    struct ggml_tensor weights[MAX_LAYERS][ST_MAX_SLICES];
    struct ggml_backend_buffer experts;  // where llama.cpp believes them
    int32_t picked[MAX_LAYERS][MAX_TOKENS * MAX_EXPERTS], ids[MAX_LAYERS][MAX_TOKENS * MAX_EXPERTS];
    int64_t n_picks;
    uint64_t n_streamed;  // experts
    int n_done;           // nodes
    struct ggml_tensor last;  // what the last operation on a unit read
    int fail_in;          // parts
    bool failed;
} batch;

static struct ggml_tensor * add_node(struct ggml_tensor tensor) {
    const int i      = batch.graph.n_nodes++;
    batch.tensors[i] = tensor;
    batch.nodes[i]   = &batch.tensors[i];
    return batch.nodes[i];
}

// A batch through some layers: a router, the operations over slices of its experts, and something else.
static void make_batch(void) {
    batch = (struct batch) { .experts = { .buft = &w.t.buft }, .fail_in = one_in(&rng, 10) ? 1 + below(&rng, 8) : 0 };
    batch.graph.nodes = batch.nodes;
    const int tokens = 1 + below(&rng, MAX_TOKENS), first = one_in(&rng, 3) ? below(&rng, w.t.n_groups) : 0;
    memset(batch.ids, 0xff, sizeof batch.ids);
    for (int i = first; i < w.t.n_groups; i++) {
        struct st_group * g = &w.groups[i];
        const int stride    = one_in(&rng, 2) ? g->n_used : g->n_experts, used = g->n_used < stride ? g->n_used : stride;
        for (int k = 0; k < tokens * stride; k++) {
            batch.picked[i][k] = below(&rng, g->n_experts);
        }
        batch.n_picks += tokens * used;
        struct ggml_tensor * ids = add_node((struct ggml_tensor) { .type = GGML_TYPE_I32, .ne = { used, tokens, 1, 1 }, .nb = { 4, 4 * (size_t) stride }, .data = batch.ids[i] });
        for (int s = 0; s < g->n_slices; s++) {
            batch.weights[i][s] = (struct ggml_tensor) { .type = GGML_TYPE_I8, .buffer = &batch.experts, .extra = &g->slices[s] };
            (void) add_node((struct ggml_tensor) { .op = GGML_OP_MUL_MAT_ID, .src = { &batch.weights[i][s], NULL, ids } });
            if (s + 1 == g->n_slices || one_in(&rng, 3)) {
                (void) add_node((struct ggml_tensor) { .op = GGML_OP_NONE });
            }
        }
    }
}

// One MUL_MAT_ID: it reads all experts, as a kernel may, and behind the last of them.
static void compute_experts(struct st_backend * b, const struct ggml_tensor * node, const struct st_slice * slice) {
    const struct st_tier * t         = &w.t;
    const struct st_group * g        = &w.groups[slice->group];
    const struct st_class * c        = &w.classes[g->class_index];
    const struct ggml_tensor * view = node->src[0];
    const uint8_t * data             = view->data;
    const uint8_t * ring             = ggml_backend_buffer_get_base(st_ring_buffer(t));
    const bool slots                 = view->nb[2] == c->stride;  // else a slice of each, as in the file
    CHECK("flow-the view is a weight of all experts", view->type == slice->type && view->ne[0] == slice->ne0 && view->ne[1] == slice->ne1 &&
                                                          view->ne[2] == g->n_experts && view->ne[3] == 1 && (slots || view->nb[2] == slice->bytes));
    const bool direct = slots && view->buffer == c->arena && st_residency_find(&c->residency, g->first_key) >= 0 &&
                        data == slot_address(c, st_residency_find(&c->residency, g->first_key)) + slice->slot_offset;
    const size_t size = slots ? c->stride * (size_t) (g->n_experts - 1) + c->stride - slice->slot_offset : st_unit_bytes(t, slice);
    CHECK("flow-a unit lies in the ring", direct || (view->buffer == st_ring_buffer(t) && data >= ring && data + size <= ring + t->ring_bytes));
    CHECK("flow-a ring of two layers streams layers", direct || slots == (t->ring_bytes >= 2 * st_ring_layer(t)));
    for (int32_t e = 0; e < g->n_experts; e++) {
        read_slice(b->inner, slice, e, data + (size_t) e * view->nb[2], slots ? pad_behind(c, slice->index) : e + 1 == g->n_experts ? size - slice->bytes * (size_t) g->n_experts : 0);
    }
    if (!direct) {
        batch.last = (struct ggml_tensor) { .data = view->data, .nb = { 0, 0, view->nb[2] }, .extra = (void *) slice };
    }
    n_direct += direct;
    n_layers += slots && !direct;
    batch.n_streamed += !direct && slice->index == 0 ? (uint64_t) g->n_experts : 0;
}

enum ggml_status st_run_part(struct st_backend * b, struct ggml_cgraph * graph, int first, int end) {
    CHECK("flow-every node runs once and in order", graph == &batch.graph && first == batch.n_done && first <= end && end <= graph->n_nodes);
    if (batch.fail_in > 0 && --batch.fail_in == 0) {
        batch.failed = true;
        return GGML_STATUS_FAILED;
    }
    for (int i = first; i < end; i++) {
        const struct ggml_tensor * node = graph->nodes[i];
        const size_t layer               = (size_t) ((const int32_t *) node->data - batch.ids[0]) / (MAX_TOKENS * MAX_EXPERTS);
        if (node->data) {  // a router
            memcpy(node->data, batch.picked[layer], sizeof batch.picked[layer]);
        } else if (node->op == GGML_OP_MUL_MAT_ID) {
            int k = 0;
            while (graph->nodes[k] != node->src[2]) {
                k++;
            }
            const size_t l = (size_t) ((const int32_t *) node->src[2]->data - batch.ids[0]) / (MAX_TOKENS * MAX_EXPERTS);
            int slice      = 0;
            for (int j = k + 1; j < i; j++) {
                slice += graph->nodes[j]->op == GGML_OP_MUL_MAT_ID;
            }
            compute_experts(b, node, &w.groups[l].slices[slice]);
        }
    }
    batch.n_done = end;
    return GGML_STATUS_SUCCESS;
}

struct before {
    int32_t key[2][MAX_SLOTS];
    uint8_t state[2][MAX_SLOTS];
};

static void remember(struct before * before) {
    for (int k = 0; k < w.t.n_classes; k++) {
        for (int32_t s = 0; s < w.classes[k].n_slots; s++) {
            before->key[k][s]   = w.classes[k].residency.key_of[s];
            before->state[k][s] = w.classes[k].residency.state[s];
        }
    }
}

// A slot that was resident and is lent now is as it was, but for that.
static void check_unchanged(const struct before * before) {
    for (int k = 0; k < w.t.n_classes; k++) {
        for (int32_t s = 0; s < w.classes[k].n_slots; s++) {
            const struct st_residency * r = &w.classes[k].residency;
            const bool lent = k == w.t.lent_class && s < w.t.n_lent;
            const enum st_slot_state was = before->state[k][s] == ST_SLOT_LOADING && r->state[s] != ST_SLOT_LOADING ? ST_SLOT_RESIDENT : before->state[k][s];
            CHECK("flow-a long batch leaves the residents", r->key_of[s] == before->key[k][s]);
            CHECK("flow-residents are lent, and nothing else", r->state[s] == (lent && was == ST_SLOT_RESIDENT ? ST_SLOT_LENT : was));
        }
    }
}

static bool set_stream(void);

// What is brought before a batch, while the host still prepares it. Returns false when the world has to end.
static bool ahead(void) {
    struct st_tier * t  = &w.t;
    const bool had_pool = t->pool_built;
    const int before    = t->batch.brought;
    w.read_failed       = false;
    const int result    = st_batch_ahead(t);
    w.cancel_in_calls   = 0;
    w.cancel_in_reads = w.fail_read_in = -1;
    if (st_sim_failed(t->transport)) {
        CHECK("flow-a failure says why", result < 0 && t->error[0] != '\0');
        return false;
    }
    const bool refused = result < 0 && strstr(t->error, "a copy to the ring");
    w.n_refused += refused;
    CHECK("flow-a failure has a cause", result == 0 || w.read_failed || refused || !had_pool || w.n_refused >= t->pool.n_buffers);
    CHECK("flow-brings nothing ahead twice", before == 0 || t->batch.brought == before);
    CHECK("flow-brings nothing ahead when that fails", before > 0 || t->batch.brought == 0 || (result == 0 && !w.read_failed));
    n_ahead += (uint64_t) t->batch.brought;
    if (had_pool) {
        check_pool();
    }
    check_slots();
    st_error_clear(t);
    atomic_store(&t->cancel, false);
    return true;
}

// Runs a long batch. Returns false when the world has to end.
static bool stream(void) {
    struct st_tier * t = &w.t;
    static struct before before;
    const bool first_ahead = one_in(&rng, 2);
    const struct st_phase_counters * count = &t->counters[ST_PHASE_PROMPT];
    uint64_t streamed = count->streamed, moved = count->moved, loads = count->loads;
    atomic_store(&t->phase, ST_PHASE_PROMPT);
    remember(&before);
    if (first_ahead && !ahead()) {
        return false;
    }
    if (first_ahead && one_in(&rng, 4)) {  // the batch is another context's
        w.at = (w.at + 1) % COMPUTES;
    } else if (first_ahead && one_in(&rng, 8)) {  // or another ring's
        if (!set_stream()) {
            return false;
        }
        remember(&before);
        streamed = count->streamed, moved = count->moved, loads = count->loads;
    }
    struct st_backend * b = &w.contexts[w.at];
    if (t->stream_from == 0) {
        return true;
    }
    if (t->compute != b->inner && change_stream(t, b->inner) < 0) {
        return false;
    }
    make_batch();
    const bool had_pool = t->pool_built;
    atomic_store(&t->phase, ST_PHASE_PROMPT);
    if (one_in(&rng, 6)) {  // breaks somewhere
        w.cancel_in_calls = one_in(&rng, 2) ? 1 + below(&rng, 60) : 0;
        w.cancel_in_reads = one_in(&rng, 2) ? 1 + below(&rng, 12) : -1;
        w.fail_read_in    = one_in(&rng, 2) ? 1 + below(&rng, 12) : -1;
    }
    const uint64_t picks = count->picks, hits = count->hits, misses = count->misses;
    w.read_failed = false;
    const enum ggml_status status = st_prompt_compute(b, &batch.graph);
    w.cancel_in_calls             = 0;
    w.cancel_in_reads = w.fail_read_in = -1;
    for (int i = 0; i < batch.graph.n_nodes; i++) {
        const struct ggml_tensor * weight = batch.nodes[i]->src[0];
        CHECK("flow-the graph is as it was", !weight || (weight >= batch.weights[0] && weight < batch.weights[MAX_LAYERS]));
    }
    CHECK("flow-no batch runs", atomic_load(&t->stream_total) == 0);
    if (st_sim_failed(t->transport)) {
        CHECK("flow-a failure says why", status != GGML_STATUS_SUCCESS && (t->error[0] != '\0' || status == GGML_STATUS_ABORTED || batch.failed));
        return false;
    }
    const bool refused = status == GGML_STATUS_FAILED && strstr(t->error, "a copy to the ring");
    w.n_refused += refused;
    if (had_pool) {
        check_pool();
    }
    check_slots();
    check_unchanged(&before);
    if (status == GGML_STATUS_SUCCESS) {
        CHECK("flow-no success with a failed read", !w.read_failed);
        CHECK("flow-no error text without a failure", t->error[0] == '\0');
        CHECK("flow-every node runs once and in order", batch.n_done == batch.graph.n_nodes);
        CHECK("flow-what is computed was read to its end", st_sim_n_read(t->transport) > 0);
        CHECK("flow-picks are counted", count->picks - picks == (uint64_t) batch.n_picks && count->hits - hits + count->misses - misses == (uint64_t) batch.n_picks);
        const uint64_t more = count->streamed - streamed;  // with what was brought ahead for nothing
        CHECK("flow-each expert streams once", first_ahead ? more >= batch.n_streamed : more == batch.n_streamed);
        CHECK("flow-what streams is moved or loaded", count->moved - moved + count->loads - loads == more);
        n_streamed += batch.n_streamed;
        if (t->n_lent > 0 && batch.last.data && one_in(&rng, 2)) {  // the last unit may be read for a while
            const struct st_slice * slice = batch.last.extra;
            for (int32_t e = 0; e < w.groups[slice->group].n_experts; e++) {
                read_slice(b->inner, slice, e, (const uint8_t *) batch.last.data + (size_t) e * batch.last.nb[2], 0);
            }
        }
    } else if (status == GGML_STATUS_ABORTED) {
        CHECK("flow-cancelled only when asked", atomic_load(&t->cancel));
    } else {
        CHECK("flow-a failure says why", batch.failed || t->error[0] != '\0');
        CHECK("flow-a failure has a cause", batch.failed || w.read_failed || refused || !had_pool || w.n_refused >= t->pool.n_buffers);
    }
    n_broken_streams += status != GGML_STATUS_SUCCESS;
    n_lent += (uint64_t) w.classes[t->lent_class].residency.n_lent;
    n_own += t->ring_own != NULL;
    if (t->n_lent > 0 && one_in(&rng, t->n_lent > 64 ? 1 : 3)) {  // what comes back breaks
        w.cancel_in_calls = one_in(&rng, 2) ? 1 + below(&rng, 2 * t->n_lent) : 0;
        w.cancel_in_reads = one_in(&rng, 3) ? 1 + below(&rng, 2 * t->n_lent) : -1;
        w.fail_read_in    = one_in(&rng, 3) ? 1 + below(&rng, 2 * t->n_lent) : -1;
    }
    st_error_clear(t);
    atomic_store(&t->cancel, false);
    return true;
}

// Some expert that is lent, and its group.
static const struct st_group * lent_group(int32_t * expert) {
    const struct st_residency * r = &w.classes[w.t.lent_class].residency;
    const int32_t from            = w.t.n_lent > 0 ? below(&rng, w.t.n_lent) : 0;
    for (int32_t i = 0; i < w.t.n_lent; i++) {
        const int32_t s = (from + i) % w.t.n_lent;
        if (r->state[s] == ST_SLOT_LENT) {
            const struct st_group * g = &w.groups[w.key_group[w.t.lent_class][r->key_of[s]]];
            *expert                   = r->key_of[s] - g->first_key;
            return g;
        }
    }
    return NULL;
}

// Each slot that was lent holds the same expert again, or after a failure or a cancel is empty.
static void check_given_back(const struct before * before, int k, int32_t n, bool whole) {
    const struct st_class * c = &w.classes[k];
    CHECK("flow-nothing is lent any more", w.t.n_lent == 0 && c->residency.n_lent == 0);
    for (int32_t s = 0; s < n; s++) {
        const bool lent = before->state[k][s] == ST_SLOT_LENT, same = c->residency.state[s] == ST_SLOT_RESIDENT && c->residency.key_of[s] == before->key[k][s];
        CHECK("flow-slots come back with the same experts", lent ? same || (!whole && c->residency.state[s] == ST_SLOT_FREE) : c->residency.state[s] == before->state[k][s]);
        CHECK("flow-a slot that was given up does not change any more", whole || !lent || same || st_sim_writing(w.t.transport, slot_address(c, s), c->stride) == 0);
    }
    n_given_back += whole && n > 0;
}

// What a graph that decodes begins with; *back: it goes on. Returns false when the world has to end.
static bool give_back(bool * back) {
    struct st_tier * t     = &w.t;
    ggml_backend_t compute = w.contexts[w.at].inner;
    *back                  = true;
    if (t->n_lent == 0) {
        return t->batch.brought == 0 || st_ring_give_back(t, compute) == 0;
    }
    static struct before before;
    const int k         = t->lent_class;
    const int32_t n     = t->n_lent;
    const bool had_pool = t->pool_built;
    remember(&before);
    w.read_failed = false;
    int result    = t->compute != compute && change_stream(t, compute) < 0 ? -1 : 0;
    result        = result == 0 ? st_ring_give_back(t, compute) : result;
    w.cancel_in_calls = 0;
    w.cancel_in_reads = w.fail_read_in = -1;
    if (st_sim_failed(t->transport)) {
        CHECK("flow-a failure says why", result == 1 || t->error[0] != '\0');
        return false;
    }
    const bool refused = result < 0 && strstr(t->error, "a copy to slot");
    w.n_refused += refused;
    check_given_back(&before, k, n, result == 0);
    CHECK("flow-cancelled only when asked", result <= 0 || atomic_load(&t->cancel));
    CHECK("flow-a failure has a cause", result >= 0 || w.read_failed || refused || !had_pool || w.n_refused >= t->pool.n_buffers);
    CHECK("flow-no success with a failed read", result != 0 || (!w.read_failed && t->error[0] == '\0'));
    if (had_pool) {
        check_pool();
    }
    check_slots();
    st_error_clear(t);
    atomic_store(&t->cancel, false);
    *back = result == 0;
    return true;
}

// Returns false when the world has to end.
static bool set_stream(void) {
    struct st_tier * t  = &w.t;
    const size_t unit   = st_ring_unit(t), layer = st_ring_layer(t);
    const int64_t from  = one_in(&rng, 5) ? 0 : 1 + below(&rng, 4);
    const bool own      = one_in(&rng, 2);
    size_t most         = 0;
    for (int i = 0; i < t->n_classes; i++) {
        const size_t arena = w.classes[i].stride * (size_t) w.classes[i].n_slots;
        most               = arena > most ? arena : most;
    }
    const size_t bytes  = one_in(&rng, t->slots_total > 70 ? 2 : 6) ? most : one_in(&rng, 8) ? (size_t) below(&rng, (int) unit) : one_in(&rng, 12) ? SIZE_MAX / 2 : one_in(&rng, 3) ? unit + (size_t) below(&rng, (int) unit)
                         : one_in(&rng, 2) ? unit * (size_t) (1 + below(&rng, 6)) : 2 * layer + (size_t) below(&rng, (int) layer);
    static struct before before;
    const int k         = t->lent_class;
    const int32_t n     = t->n_lent;
    w.refuse_buffer = one_in(&rng, 8);
    w.read_failed   = false;
    remember(&before);
    const int result  = st_ring_set(t, from, bytes, own);
    const bool granted = !w.refuse_buffer && bytes <= 1u << 24;
    w.refuse_buffer    = false;
    w.cancel_in_calls = 0;
    w.cancel_in_reads = w.fail_read_in = -1;
    if (st_sim_failed(t->transport)) {
        return false;
    }
    const bool refused = result < 0 && strstr(t->error, "a copy to slot");
    w.n_refused += refused;
    const bool broken = n > 0 && result < 0 && (refused || strstr(t->error, "could not be read") || strstr(t->error, "no stage buffer"));
    check_given_back(&before, k, n, !broken && !atomic_load(&t->cancel));
    CHECK("flow-a ring of a size that fits", broken || (result == 0) == (from == 0 || (bytes >= unit && (own ? granted : bytes <= most))));
    CHECK("flow-a failure says why", (t->error[0] != '\0') == (result < 0));
    CHECK("flow-streams as asked", broken || (t->stream_from == (result == 0 ? from : 0) && t->ring_bytes == (result == 0 && from > 0 ? bytes : 0)));
    CHECK("flow-memory of its own as asked", broken || (t->ring_own != NULL) == (result == 0 && from > 0 && own));
    n_small_rings += result < 0 && !broken;
    check_pool();
    check_slots();
    st_error_clear(t);
    atomic_store(&t->cancel, false);
    return true;
}

#endif
