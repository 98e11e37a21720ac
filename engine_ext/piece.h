// Pieces of short graphs, made so that a GPU backend knows each of them again.
#ifndef STRATA_PIECE_H
#define STRATA_PIECE_H

#include "tier.h"

#define ST_KNOWN_TOKENS 8  // longest batch whose pieces are known again: decode, and windows of drafts

// Where a piece stands: in a graph of `tokens` tokens it is the `index`-th, nodes first .. end-1. `rewritten`: a hash of
// what its operations were pointed at (st_piece_mix).
struct st_piece {
    int64_t tokens;
    int index, first, end;
    uint64_t rewritten;
};

int st_pieces_init(struct st_backend * b);  // 0 or -1
void st_pieces_free(struct st_backend * b);
uint64_t st_piece_mix(uint64_t hash, uint64_t value);
// As st_run_part. The backend's array of nodes is used: what is posted must have ended before the next call.
enum ggml_status st_run_piece(struct st_backend * b, struct ggml_cgraph * graph, const struct st_piece * p);

#endif
