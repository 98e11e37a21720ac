// Choosing tokens from a row of logits: with the whole filter chain, with a seed of our own, and given a draft.
#include <math.h>
#include <stdlib.h>

#include "speculate_parts.h"

// ---- random numbers: xoshiro256** (Blackman, Vigna), seeded by splitmix64

static uint64_t rotated(uint64_t x, int k) {
    return (x << k) | (x >> (64 - k));
}

static void seed_random(struct st_speculator * s, uint64_t seed) {
    for (int i = 0; i < 4; i++) {
        uint64_t z   = (seed += 0x9e3779b97f4a7c15u);
        z            = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z            = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        s->random[i] = z ^ (z >> 31);
    }
}

static double uniform(struct st_speculator * s) {  // [0, 1)
    uint64_t * r          = s->random;
    const uint64_t result = rotated(r[1] * 5, 7) * 9, t = r[1] << 17;
    r[2] ^= r[0];
    r[3] ^= r[1];
    r[1] ^= r[2];
    r[0] ^= r[3];
    r[2] ^= t;
    r[3] = rotated(r[3], 45);
    return (double) (result >> 11) * 0x1.0p-53;
}

// ---- sampling

// The distribution that `filters` leave of a row, in s->row (or where a filter put it), most likely first or not.
llama_token_data_array st_spec_distribution(struct st_speculator * s, struct llama_sampler * filters, const float * logits) {
    for (int32_t i = 0; i < s->n_vocab; i++) {
        s->row[i] = (llama_token_data) { i, logits[i], 0.0f };
    }
    llama_token_data_array a = { s->row, (size_t) s->n_vocab, -1, false };
    llama_sampler_apply(filters, &a);
    return a;
}

size_t st_spec_largest(const llama_token_data_array * a) {
    size_t best = 0;
    for (size_t i = 1; i < a->size; i++) {
        best = a->data[i].logit > a->data[best].logit ? i : best;
    }
    return best;
}

void st_spec_softmax(llama_token_data_array * a) {
    const float top = a->data[st_spec_largest(a)].logit;
    double sum      = 0;
    for (size_t i = 0; i < a->size; i++) {
        a->data[i].p = expf(a->data[i].logit - top);
        sum += a->data[i].p;
    }
    for (size_t i = 0; i < a->size; i++) {
        a->data[i].p = (float) (a->data[i].p / sum);
    }
}

llama_token st_spec_draw(struct st_speculator * s, const llama_token_data_array * a, double sum) {
    double left = uniform(s) * sum;
    size_t last = 0;
    for (size_t i = 0; i < a->size; i++) {
        if (a->data[i].p > 0) {
            last = i;
            left -= a->data[i].p;
            if (left < 0) {
                break;
            }
        }
    }
    return a->data[last].id;
}

double st_spec_total(const llama_token_data_array * a) {
    double sum = 0;
    for (size_t i = 0; i < a->size; i++) {
        sum += a->data[i].p;
    }
    return sum;
}

// A token by the target's distribution.
llama_token st_spec_choose(struct st_speculator * s, const float * logits) {
    if (s->greedy && s->keep > 0) {
        return st_spec_best(s, s->filters, logits, NULL);
    }
    llama_token_data_array a = st_spec_distribution(s, s->filters, logits);
    if (s->greedy) {
        return a.data[st_spec_largest(&a)].id;
    }
    st_spec_softmax(&a);
    return st_spec_draw(s, &a, st_spec_total(&a));
}

// A token by the target's distribution, given a draft that was drawn from q: the draft, or one of the rest.
llama_token st_spec_choose_against(struct st_speculator * s, const float * logits, llama_token draft, const struct st_proposal * q) {
    llama_token_data_array a = st_spec_distribution(s, s->filters, logits);
    st_spec_softmax(&a);
    for (size_t i = 0; i < q->n; i++) {
        s->dense[q->ids[i]] = q->probs[i];
    }
    double p_draft = 0, rest = 0;
    const double q_draft = s->dense[draft];
    for (size_t i = 0; i < a.size; i++) {
        p_draft = a.data[i].id == draft ? a.data[i].p : p_draft;
    }
    llama_token chosen = draft;
    if (uniform(s) * q_draft >= p_draft) {
        for (size_t i = 0; i < a.size; i++) {
            const float over = a.data[i].p - s->dense[a.data[i].id];
            a.data[i].p      = over > 0 ? over : 0;
            rest += a.data[i].p;
        }
        if (!(rest > 0)) {  // p and q are the same but for rounding
            st_spec_softmax(&a);
            rest = st_spec_total(&a);
        }
        chosen = st_spec_draw(s, &a, rest);
    }
    for (size_t i = 0; i < q->n; i++) {
        s->dense[q->ids[i]] = 0;
    }
    return chosen;
}

void st_speculator_begin(struct st_speculator * s, struct llama_sampler * filters, bool greedy, int32_t keep, uint64_t seed) {
    s->filters = filters;
    s->greedy  = greedy;
    s->keep    = keep < s->n_vocab ? keep : s->n_vocab;
    seed_random(s, seed);
}

int st_speculator_sample(struct st_speculator * s, int32_t row, llama_token * out) {
    const float * logits = llama_get_logits_ith(s->target, row);
    *out                 = st_spec_choose(s, logits);
    if (!isfinite(logits[*out])) {
        return ST_STEP_NOT_FINITE;
    }
    llama_sampler_accept(s->filters, *out);
    return 0;
}

int st_proposal_reserve(struct st_proposal * q, size_t n) {
    if (q->capacity < n) {
        free(q->ids);
        free(q->probs);
        q->ids      = malloc(n * sizeof *q->ids);
        q->probs    = malloc(n * sizeof *q->probs);
        q->capacity = q->ids && q->probs ? n : 0;
    }
    q->n = 0;
    return q->capacity >= n ? 0 : -1;
}
