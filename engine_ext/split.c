// A batch that needs more experts than there are slots runs in passes over groups of experts: the rows of a
// group are gathered, multiplied and scattered. All rows of an expert stay in one pass, because kernels choose
// their method by that number, and a split would change rounding.
#include <assert.h>
#include <string.h>

#include "graph.h"

static size_t align128(size_t n) {
    return (n + 127) & ~(size_t) 127;
}

// One pass over experts order[first..end), which hold `rows` picks: gather their rows of src1, multiply,
// scatter into the node's result.
static enum ggml_status run_pass(struct st_backend * b, struct ggml_tensor * node, const struct st_slice * slice, const struct picks * p,
                                 int32_t first, int32_t end, int64_t rows) {
    struct st_tier * t = b->tier;
    struct ggml_tensor * x = node->src[1];
    ggml_backend_buffer_type_t buft = ggml_backend_dev_buffer_type(t->inner);
    // The host arrays and the scratch were read by the previous pass.
    if (st_sync(b) != GGML_STATUS_SUCCESS) {
        return GGML_STATUS_FAILED;
    }
    const size_t index_bytes = (size_t) rows * (sizeof(int32_t) * 2 + sizeof(int64_t));
    const size_t sizes[5] = { align128((size_t) rows * sizeof(int64_t)), align128((size_t) rows * sizeof(int32_t)), align128((size_t) rows * sizeof(int32_t)),
                              align128((size_t) (x->ne[0] * rows) * sizeof(float)), align128((size_t) (node->ne[0] * rows) * sizeof(float)) };
    size_t total = 0;
    for (int i = 0; i < 5; i++) {
        total += sizes[i];
    }
    if (!b->scratch || ggml_backend_buffer_get_size(b->scratch) < total) {
        if (b->scratch) {
            ggml_backend_buffer_free(b->scratch);
        }
        b->scratch = ggml_backend_buft_alloc_buffer(buft, total + total / 4);
        if (!b->scratch) {
            return st_status(st_fail(t, "no device memory (%zu MiB) for a batch that needs more experts than slots; try a smaller --batch", total >> 20));
        }
    }
    if (st_grow(b, &b->slots_host, index_bytes) < 0) {
        return GGML_STATUS_FAILED;
    }
    int64_t * to   = b->slots_host.data;
    int32_t * from = (int32_t *) (to + rows);
    int32_t * slot = from + rows;
    const uint64_t mark = ++b->stamp;
    for (int32_t i = first; i < end; i++) {
        b->mark[b->order[i]] = mark;
    }
    int64_t n = 0;
    for (int64_t i = 0; i < p->tokens; i++) {
        for (int64_t k = 0; k < p->used; k++) {
            const int32_t e = p->ids[i * p->stride + k];
            if (b->mark[e] == mark) {
                to[n]   = i * p->used + k;
                from[n] = (int32_t) (i * x->ne[1] + k % x->ne[1]);
                slot[n] = b->slot[e];
                n++;
            }
        }
    }
    assert(n == rows);

    struct ggml_init_params params = { .mem_size = ggml_tensor_overhead() * 16 + ggml_graph_overhead_custom(16, false), .no_alloc = true };
    struct ggml_context * ctx = ggml_init(params);
    if (!ctx) {
        return st_status(st_fail(t, "out of memory"));
    }
    struct ggml_tensor * leaf[3] = { ggml_new_tensor_1d(ctx, GGML_TYPE_I64, rows), ggml_new_tensor_1d(ctx, GGML_TYPE_I32, rows), ggml_new_tensor_2d(ctx, GGML_TYPE_I32, 1, rows) };
    struct ggml_tensor x2 = *x;  // all rows of src1, one after the other
    x2.ne[1] = x->ne[1] * x->ne[2];
    x2.ne[2] = x2.ne[3] = 1;
    x2.nb[2] = x2.nb[3] = x2.nb[1] * (size_t) x2.ne[1];
    x2.op = GGML_OP_NONE;  // a leaf here: what made it has run
    memset(x2.src, 0, sizeof x2.src);
    struct ggml_tensor y2 = *node;
    y2.ne[1] = node->ne[1] * node->ne[2];
    y2.ne[2] = y2.ne[3] = 1;
    y2.nb[2] = y2.nb[3] = y2.nb[1] * (size_t) y2.ne[1];
    y2.op = GGML_OP_NONE;
    memset(y2.src, 0, sizeof y2.src);
    struct ggml_tensor * gathered = ggml_get_rows(ctx, &x2, leaf[1]);
    struct ggml_tensor * product  = ggml_mul_mat_id(ctx, &p->class_->weights[slice->index], ggml_reshape_3d(ctx, gathered, x->ne[0], 1, rows), leaf[2]);
    struct ggml_tensor * result   = ggml_set_rows(ctx, &y2, ggml_reshape_2d(ctx, product, node->ne[0], rows), leaf[0]);
    struct ggml_cgraph * graph    = ggml_new_graph_custom(ctx, 16, false);
    ggml_build_forward_expand(graph, result);

    char * at = ggml_backend_buffer_get_base(b->scratch);
    struct ggml_tensor * placed[5] = { leaf[0], leaf[1], leaf[2], gathered, product };
    enum ggml_status status = GGML_STATUS_SUCCESS;
    for (int i = 0; i < 5; i++) {
        if (ggml_backend_tensor_alloc(b->scratch, placed[i], at) != GGML_STATUS_SUCCESS) {
            status = GGML_STATUS_FAILED;
        }
        at += sizes[i];
    }
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {  // the reshapes, and set_rows' view of the result
        struct ggml_tensor * v = ggml_graph_node(graph, i);
        if (v->view_src) {
            v->buffer = v->view_src->buffer;
            v->data   = (char *) v->view_src->data + v->view_offs;
        }
    }
    if (status == GGML_STATUS_SUCCESS) {
        st_upload(b, leaf[0], to, (size_t) rows * sizeof *to);
        st_upload(b, leaf[1], from, (size_t) rows * sizeof *from);
        st_upload(b, leaf[2], slot, (size_t) rows * sizeof *slot);
        status = st_run(b, graph);
        const enum ggml_status ended = st_sync(b);  // the graph's tensors end with ctx
        status = status == GGML_STATUS_SUCCESS ? ended : status;
    }
    ggml_free(ctx);
    return status;
}

enum ggml_status st_run_split(struct st_backend * b, struct ggml_tensor * node, const struct st_slice * slice, const struct picks * p, bool tally,
                                  bool forward) {
    struct st_tier * t = b->tier;
    const struct ggml_tensor * x = node->src[1];
    if (x->type != GGML_TYPE_F32 || x->nb[0] != sizeof(float) || x->nb[2] != x->nb[1] * (size_t) x->ne[1] || x->ne[3] != 1 || !ggml_is_contiguous(node)) {
        return st_status(st_fail(t, "%s: its rows have a layout that cannot be split; raise --slots to %d", node->name, p->n_distinct));
    }
    if (!forward) {
        for (int32_t i = 0, j = p->n_distinct - 1; i < j; i++, j--) {
            const int32_t e = b->order[i];
            b->order[i] = b->order[j];
            b->order[j] = e;
        }
    }
    const int64_t most = st_max_picks(b, p->class_);
    int32_t first = 0;
    enum ggml_status status = GGML_STATUS_SUCCESS;
    while (first < p->n_distinct && status == GGML_STATUS_SUCCESS) {
        int32_t end = first, left = st_room(p);
        int64_t rows = 0;
        while (end < p->n_distinct && (end == first || rows + b->count[b->order[end]] <= most)) {
            left -= st_guests(b, p, end, end + 1);
            if (left < 0) {
                break;
            }
            rows += b->count[b->order[end++]];
        }
        if (st_cancelled(t)) {
            status = GGML_STATUS_ABORTED;
            break;
        }
        status = st_status(st_make_resident(b, p, first, end, tally));
        if (status == GGML_STATUS_SUCCESS) {
            status = run_pass(b, node, slice, p, first, end, rows);
        }
        if (first > 0) {
            ST_COUNT(st_now(t), split_passes, 1);
        }
        first = end;
    }
    if (!forward) {
        for (int32_t i = 0, j = p->n_distinct - 1; i < j; i++, j--) {
            const int32_t e = b->order[i];
            b->order[i] = b->order[j];
            b->order[j] = e;
        }
    }
    return status;
}
