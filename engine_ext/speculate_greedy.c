// The likeliest token of a row, with or without penalties, without looking at every token more than once.
//
// Penalties lower the logits of at most `n` tokens, those seen lately. So of the n + 1 likeliest tokens before them
// one keeps its logit, and no token outside can come out in front: the filters need not see more than these.
// Where logits are equal the lower id counts as likelier, as a search from the first token on would have it.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "speculate_parts.h"

enum { LANES = 16, BLOCK = 128 };  // of one running maximum, and of one piece of the row

typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));
typedef int32_t flags __attribute__((vector_size(LANES * sizeof(float))));

// The largest number of `n`, a multiple of LANES; NaN is none.
static float largest_of(const float * x, int32_t n) {
    float one[LANES];
    lanes most;
    for (int i = 0; i < LANES; i++) {
        most[i] = -INFINITY;
    }
    for (int32_t i = 0; i < n; i += LANES) {
        lanes next;
        memcpy(&next, x + i, sizeof next);
        const flags more = next > most;
        most = (lanes) (((flags) next & more) | ((flags) most & ~more));
    }
    memcpy(one, &most, sizeof one);
    for (int i = 1; i < LANES; i++) {
        one[0] = one[i] > one[0] ? one[i] : one[0];
    }
    return one[0];
}

static int falling(const void * a, const void * b) {
    const float x = *(const float *) a, y = *(const float *) b;
    return (x < y) - (x > y);
}

static int likelier(const void * a, const void * b) {
    const llama_token_data * x = a, * y = b;
    return x->logit != y->logit ? (x->logit < y->logit) - (x->logit > y->logit) : (x->id > y->id) - (x->id < y->id);
}

size_t st_likeliest(const float * logits, int32_t n_vocab, int32_t keep, llama_token_data * row, float * tops) {
    const int32_t pieces = n_vocab / BLOCK;
    float * sorted       = tops + pieces;
    float least          = -INFINITY;
    for (int32_t i = 0; i < pieces; i++) {
        tops[i] = largest_of(logits + (size_t) i * BLOCK, BLOCK);
    }
    if (pieces >= keep) {  // of that many pieces the largest number is not below this, so of the row's largest none is
        memcpy(sorted, tops, (size_t) pieces * sizeof *tops);
        qsort(sorted, (size_t) pieces, sizeof *sorted, falling);
        least = sorted[keep - 1];
    }
    size_t n = 0;
    for (int32_t piece = 0; piece <= pieces; piece++) {  // the last one is what is left
        const int32_t end = piece < pieces ? (piece + 1) * BLOCK : n_vocab;
        for (int32_t i = piece * BLOCK; i < end && (piece == pieces || tops[piece] >= least); i++) {
            if (logits[i] >= least) {
                row[n++] = (llama_token_data) { i, logits[i], 0.0f };
            }
        }
    }
    qsort(row, n, sizeof *row, likelier);
    return n < (size_t) keep ? n : (size_t) keep;
}

// The token that `filters` (penalties that only lower, at most s->keep - 1 of them, or nothing) leave in front, and
// its probability among the s->keep likeliest where `p` is not NULL.
llama_token st_spec_best(struct st_speculator * s, struct llama_sampler * filters, const float * logits, float * p) {
    const size_t n           = st_likeliest(logits, s->n_vocab, s->keep, s->row, s->tops);
    llama_token_data_array a = { s->row, n, -1, false };
    if (a.size == 0 || isnan(logits[0])) {
        return 0;  // not a number, which the caller sees
    }
    if (llama_sampler_chain_n(filters) > 0) {
        llama_sampler_apply(filters, &a);
    }
    size_t best = 0;
    for (size_t i = 1; i < a.size; i++) {
        best = likelier(&a.data[i], &a.data[best]) < 0 ? i : best;
    }
    if (p) {
        double sum = 0;
        for (size_t i = 0; i < a.size; i++) {
            sum += exp((double) a.data[i].logit - a.data[best].logit);
        }
        *p = (float) (1 / sum);
    }
    return a.data[best].id;
}
