// ggml's CUDA backend records a graph when it sees it for the second time in a row, and from then on launches the
// record. It keeps one record for each first node (its address), and compares all of a graph with it, unless the uid
// says that it is the same. llama.cpp builds every graph in the same memory, so a window of three tokens has the first
// nodes of a plain token's graph: each change of length would throw the records away, for some ten milliseconds of
// launching and recording anew. And pieces have no uid, so that all nodes are compared for each token.
//
// So a piece of a short graph gets a first node of its own for each length, which computes nothing, and a uid that
// changes with whatever the piece is made of. Only the address and the uid are new: what is not the same as recorded
// is still found out by the backend's comparison, because a new uid has it compare.
#include <stdlib.h>
#include <string.h>

#include "piece.h"

struct st_known {
    struct ggml_tensor first;  // an empty tensor, which backends skip
    uint64_t graph, rewritten; // of the piece that had this uid
    int from, to;
    uint64_t uid;
};

int st_pieces_init(struct st_backend * b) {
    b->n_known = b->tier->n_groups + 2;  // of each length: one for each layer, what comes before, one to spare
    b->known   = calloc((size_t) b->n_known * ST_KNOWN_TOKENS, sizeof *b->known);
    return b->known ? 0 : -1;
}

void st_pieces_free(struct st_backend * b) {
    free(b->known);
    free(b->nodes);
}

uint64_t st_piece_mix(uint64_t hash, uint64_t value) {  // the finaliser of splitmix64
    hash += value + UINT64_C(0x9e3779b97f4a7c15);
    hash = (hash ^ (hash >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    hash = (hash ^ (hash >> 27)) * UINT64_C(0x94d049bb133111eb);
    return hash ^ (hash >> 31);
}

static int grow_nodes(struct st_backend * b, int n) {
    if (b->nodes_capacity < n) {
        struct ggml_tensor ** nodes = realloc(b->nodes, (size_t) n * 2 * sizeof *nodes);
        if (!nodes) {
            return st_fail(b->tier, "out of memory");
        }
        b->nodes          = nodes;
        b->nodes_capacity = n * 2;
    }
    return 0;
}

enum ggml_status st_run_piece(struct st_backend * b, struct ggml_cgraph * graph, const struct st_piece * p) {
    if (!b->tier->keeps_pieces || p->first >= p->end || p->tokens < 1 || p->tokens > ST_KNOWN_TOKENS || p->index >= b->n_known) {
        return st_run_part(b, graph, p->first, p->end);
    }
    const int n = p->end - p->first;
    if (grow_nodes(b, n + 1) < 0) {
        return GGML_STATUS_FAILED;
    }
    struct st_known * k = &b->known[(p->tokens - 1) * b->n_known + p->index];
    if (k->uid == 0 || k->graph != graph->uid || k->rewritten != p->rewritten || k->from != p->first || k->to != p->end) {
        *k = (struct st_known) { .graph = graph->uid, .rewritten = p->rewritten, .from = p->first, .to = p->end, .uid = ++b->pieces };
    }
    b->nodes[0] = &k->first;
    memcpy(b->nodes + 1, graph->nodes + p->first, (size_t) n * sizeof *b->nodes);
    struct ggml_cgraph piece = ggml_graph_view(graph, p->first, p->end);  // with the use counts that fusion asks for
    piece.nodes   = b->nodes;
    piece.n_nodes = piece.size = n + 1;
    piece.uid     = graph->uid ? k->uid : 0;  // without one nothing says that llama.cpp's graph is the same
    return st_run(b, &piece);
}
