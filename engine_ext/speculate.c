#include "speculate.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- llama.cpp's NextN functions, which it exports under C++ names only

static struct {
    bool looked;
    const char * missing;
    void (*set_embeddings)(struct llama_context *, bool value, bool masked);
    void (*set_layer_offset)(struct llama_context *, int32_t offset);
    float * (*get_embeddings)(struct llama_context *);
    float * (*get_embeddings_ith)(struct llama_context *, int32_t i);
} nextn;

static void * look_up(void * library, const char * name, const char * mangled) {
    void * found = library ? dlsym(library, name) : NULL;
    found        = found || !library ? found : dlsym(library, mangled);
    if (!found && !nextn.missing) {
        nextn.missing = name;
    }
    return found;
}

const char * st_nextn_missing(void) {
    if (!nextn.looked) {
        Dl_info info;
        void * library          = dladdr((void *) llama_decode, &info) ? dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : NULL;
        *(void **) &nextn.set_embeddings     = look_up(library, "llama_set_embeddings_nextn", "_Z26llama_set_embeddings_nextnP13llama_contextbb");
        *(void **) &nextn.set_layer_offset   = look_up(library, "llama_set_nextn_layer_offset", "_Z28llama_set_nextn_layer_offsetP13llama_contexti");
        *(void **) &nextn.get_embeddings     = look_up(library, "llama_get_embeddings_nextn", "_Z26llama_get_embeddings_nextnP13llama_context");
        *(void **) &nextn.get_embeddings_ith = look_up(library, "llama_get_embeddings_nextn_ith", "_Z30llama_get_embeddings_nextn_ithP13llama_contexti");
        nextn.looked                         = true;
    }
    return nextn.missing;
}

// ---- making and ending one

static int fail(struct st_speculator * s, const char * text) {
    snprintf(s->error, sizeof s->error, "%s", text);
    return -1;
}

static int init_draft(struct st_speculator * s, struct llama_context * draft) {
    const char * missing = st_nextn_missing();
    if (missing) {
        snprintf(s->error, sizeof s->error, "this llama.cpp has no %s, so the model's NextN heads cannot be used", missing);
        return -1;
    }
    const struct llama_model * model = llama_get_model(draft);
    s->n_embd      = llama_model_n_embd_out(model);
    s->n_heads     = llama_model_n_layer_nextn(model);
    s->draft_batch = (int32_t) llama_n_batch(draft);
    if (s->n_heads < 1 || s->n_heads > ST_MAX_DRAFTS || s->draft_batch < ST_BACKLOG + 1) {
        return fail(s, "the draft context has no NextN heads, too many of them, or too small a batch");
    }
    const size_t n = (size_t) s->draft_batch, row = (size_t) s->n_embd;
    s->d_tokens     = calloc(n, sizeof *s->d_tokens);
    s->d_rows       = calloc(n * row, sizeof *s->d_rows);
    s->d_pos        = calloc(n, sizeof *s->d_pos);
    s->d_n_seq      = calloc(n, sizeof *s->d_n_seq);
    s->d_seq        = calloc(1, sizeof *s->d_seq);
    s->d_seq_ids    = calloc(n, sizeof *s->d_seq_ids);
    s->d_out        = calloc(n, sizeof *s->d_out);
    s->backlog_rows = calloc(ST_BACKLOG * row, sizeof *s->backlog_rows);
    s->carry        = calloc(row, sizeof *s->carry);
    s->draft_rows   = calloc(ST_MAX_DRAFTS * row, sizeof *s->draft_rows);
    if (!s->d_tokens || !s->d_rows || !s->d_pos || !s->d_n_seq || !s->d_seq || !s->d_seq_ids || !s->d_out || !s->backlog_rows || !s->carry || !s->draft_rows) {
        return fail(s, "out of memory for drafts");
    }
    for (size_t i = 0; i < n; i++) {
        s->d_n_seq[i]   = 1;
        s->d_seq_ids[i] = s->d_seq;
    }
    nextn.set_embeddings(s->target, true, false);
    nextn.set_embeddings(draft, true, true);
    s->draft = draft;
    return 0;
}

int st_speculator_init(struct st_speculator * s, struct llama_context * target, struct llama_context * draft) {
    const struct llama_model * model = llama_get_model(target);
    memset(s, 0, sizeof *s);
    s->target      = target;
    s->vocab       = llama_model_get_vocab(model);
    s->n_vocab     = llama_vocab_n_tokens(s->vocab);
    s->has_state   = llama_model_is_recurrent(model) || llama_model_is_hybrid(model);
    s->n_swa       = llama_model_n_swa(model);
    s->n_snapshots = llama_n_rs_seq(target);
    s->batch       = llama_batch_init(ST_MAX_DRAFTS + 1, 0, 1);
    s->row         = malloc((size_t) s->n_vocab * sizeof *s->row);
    s->dense       = calloc((size_t) s->n_vocab, sizeof *s->dense);
    if (!s->row || !s->dense) {
        return fail(s, "out of memory for sampling");
    }
    return draft ? init_draft(s, draft) : 0;
}

void st_speculator_free(struct st_speculator * s) {
    if (s->target) {
        llama_batch_free(s->batch);
    }
    if (s->draft_filters) {
        llama_sampler_free(s->draft_filters);
    }
    for (int i = 0; i < ST_MAX_DRAFTS; i++) {
        free(s->proposals[i].ids);
        free(s->proposals[i].probs);
    }
    free(s->row);
    free(s->dense);
    free(s->checkpoint);
    free(s->d_tokens);
    free(s->d_rows);
    free(s->d_pos);
    free(s->d_n_seq);
    free(s->d_seq);
    free(s->d_seq_ids);
    free(s->d_out);
    free(s->backlog_rows);
    free(s->carry);
    free(s->draft_rows);
    memset(s, 0, sizeof *s);
}

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
static llama_token_data_array distribution(struct st_speculator * s, struct llama_sampler * filters, const float * logits) {
    for (int32_t i = 0; i < s->n_vocab; i++) {
        s->row[i] = (llama_token_data) { i, logits[i], 0.0f };
    }
    llama_token_data_array a = { s->row, (size_t) s->n_vocab, -1, false };
    llama_sampler_apply(filters, &a);
    return a;
}

static size_t largest(const llama_token_data_array * a) {
    size_t best = 0;
    for (size_t i = 1; i < a->size; i++) {
        best = a->data[i].logit > a->data[best].logit ? i : best;
    }
    return best;
}

static void softmax(llama_token_data_array * a) {
    const float top = a->data[largest(a)].logit;
    double sum      = 0;
    for (size_t i = 0; i < a->size; i++) {
        a->data[i].p = expf(a->data[i].logit - top);
        sum += a->data[i].p;
    }
    for (size_t i = 0; i < a->size; i++) {
        a->data[i].p = (float) (a->data[i].p / sum);
    }
}

static llama_token draw(struct st_speculator * s, const llama_token_data_array * a, double sum) {
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

static double total(const llama_token_data_array * a) {
    double sum = 0;
    for (size_t i = 0; i < a->size; i++) {
        sum += a->data[i].p;
    }
    return sum;
}

static llama_token plain_argmax(const struct st_speculator * s, const float * logits) {
    int32_t best = 0;
    for (int32_t i = 1; i < s->n_vocab; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    return best;
}

// A token by the target's distribution.
static llama_token choose(struct st_speculator * s, const float * logits) {
    if (s->greedy && llama_sampler_chain_n(s->filters) == 0) {
        return plain_argmax(s, logits);
    }
    llama_token_data_array a = distribution(s, s->filters, logits);
    if (s->greedy) {
        return a.data[largest(&a)].id;
    }
    softmax(&a);
    return draw(s, &a, total(&a));
}

// A token by the target's distribution, given a draft that was drawn from q: the draft, or one of the rest.
static llama_token choose_against(struct st_speculator * s, const float * logits, llama_token draft, const struct st_proposal * q) {
    llama_token_data_array a = distribution(s, s->filters, logits);
    softmax(&a);
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
            softmax(&a);
            rest = total(&a);
        }
        chosen = draw(s, &a, rest);
    }
    for (size_t i = 0; i < q->n; i++) {
        s->dense[q->ids[i]] = 0;
    }
    return chosen;
}

void st_speculator_begin(struct st_speculator * s, struct llama_sampler * filters, bool greedy, uint64_t seed) {
    s->filters = filters;
    s->greedy  = greedy;
    seed_random(s, seed);
}

int st_speculator_sample(struct st_speculator * s, int32_t row, llama_token * out) {
    const float * logits = llama_get_logits_ith(s->target, row);
    *out                 = choose(s, logits);
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

// ---- the draft context

static int draft_cut(struct st_speculator * s, int32_t position) {
    if (s->held > position) {
        if (!llama_memory_seq_rm(llama_get_memory(s->draft), 0, position, -1)) {
            return -1;
        }
        s->held = position;
    }
    return 0;
}

// Nothing is known any more: the pairs start again at `position`, with a hidden row of zeros.
static void draft_restart(struct st_speculator * s, int32_t position) {
    llama_memory_clear(llama_get_memory(s->draft), true);
    memset(s->carry, 0, (size_t) s->n_embd * sizeof *s->carry);
    s->paired = s->held = position;
    s->n_backlog        = 0;
    s->n_drafts         = 0;
}

static void put_row(struct st_speculator * s, int32_t i, llama_token token, const float * row, int32_t position) {
    s->d_tokens[i] = token;
    s->d_pos[i]    = position;
    s->d_out[i]    = 0;
    memcpy(s->d_rows + (size_t) i * (size_t) s->n_embd, row, (size_t) s->n_embd * sizeof *row);
}

static int draft_decode(struct st_speculator * s, int32_t n, int head) {
    const struct llama_batch b = { .n_tokens = n, .token = s->d_tokens, .embd = s->d_rows, .pos = s->d_pos, .n_seq_id = s->d_n_seq,
                                   .seq_id = s->d_seq_ids, .logits = s->d_out };
    nextn.set_layer_offset(s->draft, head);
    const int status = llama_decode(s->draft, b);
    if (status == 0) {
        s->held = s->d_pos[n - 1] + 1;
    }
    return status;
}

// Decodes the batch's n true pairs in every head (each has a KV cache of its own in the same cells).
static int draft_pairs(struct st_speculator * s, int32_t n) {
    const int32_t first = s->d_pos[0];
    for (int head = 0; head < s->n_heads; head++) {
        if (draft_cut(s, first) < 0) {
            return -1;
        }
        const int status = draft_decode(s, n, head);
        if (status != 0) {
            return status;
        }
    }
    s->paired = first + n;
    return 0;
}

static int flush_backlog(struct st_speculator * s) {
    if (s->n_backlog == 0) {
        return 0;
    }
    for (int32_t i = 0; i < s->n_backlog; i++) {
        put_row(s, i, s->backlog_tokens[i], s->backlog_rows + (size_t) i * (size_t) s->n_embd, s->paired + i);
    }
    const int status = draft_pairs(s, s->n_backlog);
    if (status == 0) {
        s->n_backlog = 0;
    }
    return status;
}

// One token more that the target has decoded, and the hidden row behind it.
static int add_pair(struct st_speculator * s, llama_token token, const float * behind) {
    const size_t row = (size_t) s->n_embd * sizeof *behind;
    int status       = 0;
    if (s->n_backlog == ST_BACKLOG) {
        status = flush_backlog(s);
        if (status != 0) {
            return status;
        }
    }
    memcpy(s->backlog_rows + (size_t) s->n_backlog * (size_t) s->n_embd, s->carry, row);
    s->backlog_tokens[s->n_backlog++] = token;
    memcpy(s->carry, behind, row);
    return status;
}

int st_speculator_observe(struct st_speculator * s, const llama_token * tokens, int32_t n, int32_t position) {
    if (!s->draft) {
        return 0;
    }
    if (s->paired + s->n_backlog != position) {
        draft_restart(s, position);
    }
    int status          = flush_backlog(s);
    const float * rows  = nextn.get_embeddings(s->target);
    const size_t stride = (size_t) s->n_embd;
    for (int32_t start = 0; start < n && status == 0; start += s->draft_batch) {
        const int32_t part = n - start < s->draft_batch ? n - start : s->draft_batch;
        for (int32_t i = 0; i < part; i++) {
            put_row(s, i, tokens[start + i], start + i == 0 ? s->carry : rows + (size_t) (start + i - 1) * stride, position + start + i);
        }
        status = draft_pairs(s, part);
    }
    if (status == 0) {
        memcpy(s->carry, rows + (size_t) (n - 1) * stride, stride * sizeof *rows);
    } else {
        draft_restart(s, 0);
    }
    s->n_drafts = 0;
    return status;
}

void st_speculator_cut(struct st_speculator * s, int32_t position) {
    if (!s->draft || position >= s->paired + s->n_backlog) {
        return;
    }
    const size_t row = (size_t) s->n_embd * sizeof *s->carry;
    s->n_drafts      = 0;
    if (position >= s->paired) {  // the backlog knows the row before each of its tokens
        s->n_backlog = position - s->paired;
        memcpy(s->carry, s->backlog_rows + (size_t) s->n_backlog * (size_t) s->n_embd, row);
        return;
    }
    if (position == 0 || draft_cut(s, position) < 0) {
        draft_restart(s, position);
        return;
    }
    s->paired    = position;
    s->n_backlog = 0;
    memset(s->carry, 0, row);
}

// The likeliest token under `logits` and its probability.
static llama_token likeliest(const struct st_speculator * s, const float * logits, float * p) {
    const llama_token best = plain_argmax(s, logits);
    double sum             = 0;
    for (int32_t i = 0; i < s->n_vocab; i++) {
        const float below = logits[best] - logits[i];
        sum += below < 20.0f ? expf(-below) : 0.0f;
    }
    *p = (float) (1 / sum);
    return best;
}

// Takes a draft from the draft context's last row.
static int take_draft(struct st_speculator * s, int32_t row, llama_token * out, float * p) {
    const float * logits = llama_get_logits_ith(s->draft, row);
    const float * hidden = nextn.get_embeddings_ith(s->draft, row);
    const int i          = s->n_drafts;
    struct st_proposal * q = &s->proposals[i];
    if (!logits || !hidden) {
        return fail(s, "the draft context gave no row");
    }
    q->n = 0;
    if (s->greedy && llama_sampler_chain_n(s->draft_filters) == 0) {
        *out = likeliest(s, logits, p);
    } else {
        llama_token_data_array a = distribution(s, s->draft_filters, logits);
        softmax(&a);
        if (s->greedy) {
            const size_t best = largest(&a);
            *out = a.data[best].id;
            *p   = a.data[best].p;
        } else {
            if (st_proposal_reserve(q, a.size) < 0) {
                return fail(s, "out of memory for drafts");
            }
            for (size_t k = 0; k < a.size; k++) {
                q->ids[k]   = a.data[k].id;
                q->probs[k] = a.data[k].p;
            }
            q->n = a.size;
            *out = draw(s, &a, total(&a));
            for (size_t k = 0; k < a.size; k++) {
                *p = a.data[k].id == *out ? a.data[k].p : *p;
            }
        }
    }
    if (!isfinite(*p)) {  // a broken head drafts nothing
        return 0;
    }
    llama_sampler_accept(s->draft_filters, *out);
    memcpy(s->draft_rows + (size_t) i * (size_t) s->n_embd, hidden, (size_t) s->n_embd * sizeof *hidden);
    s->drafts[s->n_drafts++] = *out;
    return 1;
}

// A decode that was cancelled or found no room: no draft now.
static int no_draft(int status) {
    return status < 0 ? status : 0;
}

static int first_draft(struct st_speculator * s, llama_token pending, int32_t position, llama_token * out, float * p) {
    s->n_drafts = 0;
    if (s->paired + s->n_backlog != position) {
        draft_restart(s, position);
    }
    if (s->draft_filters) {
        llama_sampler_free(s->draft_filters);
    }
    s->draft_filters = llama_sampler_clone(s->filters);
    if (!s->draft_filters) {
        return fail(s, "out of memory for drafts");
    }
    const int32_t n = s->n_backlog;
    for (int32_t i = 0; i < n; i++) {
        put_row(s, i, s->backlog_tokens[i], s->backlog_rows + (size_t) i * (size_t) s->n_embd, s->paired + i);
    }
    put_row(s, n, pending, s->carry, position);
    int status = 0;
    if (s->n_heads > 1) {  // the other heads' true pairs; the pending one is drafted with the first head only
        if (n > 0) {
            status = draft_pairs(s, n);
        }
        if (status == 0) {
            s->n_backlog = 0;
            put_row(s, 0, pending, s->carry, position);
            s->d_out[0] = 1;
            status      = draft_cut(s, position) < 0 ? -1 : draft_decode(s, 1, 0);
        }
        return status != 0 ? no_draft(status) : take_draft(s, 0, out, p);
    }
    s->d_out[n] = 1;
    status      = draft_cut(s, s->paired) < 0 ? -1 : draft_decode(s, n + 1, 0);
    if (status != 0) {
        return no_draft(status);
    }
    s->n_backlog = 0;
    s->paired    = position + 1;
    return take_draft(s, n, out, p);
}

static int next_draft(struct st_speculator * s, llama_token pending, int32_t position, llama_token * out, float * p) {
    const int k = s->n_drafts;
    if (s->n_heads == 1) {  // fed with its own hidden row
        put_row(s, 0, s->drafts[k - 1], s->draft_rows + (size_t) (k - 1) * (size_t) s->n_embd, position + k);
        s->d_out[0]      = 1;
        const int status = draft_decode(s, 1, 0);
        return status != 0 ? no_draft(status) : take_draft(s, 0, out, p);
    }
    if (k >= s->n_heads) {
        return 0;
    }
    // Head k has seen none of the drafts: it reads all of them, each with the row that the head before gave.
    for (int32_t i = 0; i <= k; i++) {
        put_row(s, i, i == 0 ? pending : s->drafts[i - 1], i == 0 ? s->carry : s->draft_rows + (size_t) (i - 1) * (size_t) s->n_embd, position + i);
    }
    s->d_out[k]      = 1;
    const int status = draft_cut(s, position) < 0 ? -1 : draft_decode(s, k + 1, k);
    return status != 0 ? no_draft(status) : take_draft(s, k, out, p);
}

int st_speculator_draft(struct st_speculator * s, llama_token pending, int32_t position, bool first, llama_token * out, float * p) {
    if (!s->draft || !s->filters || (!first && (s->n_drafts == 0 || s->n_drafts == ST_MAX_DRAFTS))) {
        return 0;
    }
    *p = 0;
    return first ? first_draft(s, pending, position, out, p) : next_draft(s, pending, position, out, p);
}

// ---- the window

static int decode_target(struct st_speculator * s, const llama_token * tokens, int n, int32_t position, bool logits) {
    struct llama_batch * b = &s->batch;
    b->n_tokens = n;
    for (int i = 0; i < n; i++) {
        b->token[i]     = tokens[i];
        b->pos[i]       = position + i;
        b->n_seq_id[i]  = 1;
        b->seq_id[i][0] = 0;
        b->logits[i]    = logits;
    }
    return llama_decode(s->target, *b);
}

static bool needs_checkpoint(const struct st_speculator * s, int n_drafts) {
    return s->has_state && n_drafts > 0 && (uint32_t) n_drafts > s->n_snapshots;
}

static int take_checkpoint(struct st_speculator * s) {
    const size_t size = llama_state_seq_get_size_ext(s->target, 0, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY);
    if (s->checkpoint_capacity < size) {
        free(s->checkpoint);
        s->checkpoint          = malloc(size);
        s->checkpoint_capacity = s->checkpoint ? size : 0;
    }
    s->checkpoint_size = size;
    return s->checkpoint && llama_state_seq_get_data_ext(s->target, s->checkpoint, size, 0, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY) == size ? 0 : -1;
}

// Leaves `keep` tokens of a window that began at `position`. 0, llama_decode's code, or ST_STEP_SPOILED.
static int cut_target(struct st_speculator * s, const llama_token * window, int32_t position, int32_t keep, bool replay) {
    const llama_memory_t memory = llama_get_memory(s->target);
    if (replay) {
        if (llama_state_seq_set_data_ext(s->target, s->checkpoint, s->checkpoint_size, 0, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY) == 0 ||
            !llama_memory_seq_rm(memory, 0, position, -1)) {
            return ST_STEP_SPOILED;
        }
        const int status = decode_target(s, window, keep - position, position, false);
        if (status != 0) {
            return status;
        }
    } else if (!llama_memory_seq_rm(memory, 0, keep, -1)) {
        return ST_STEP_SPOILED;
    }
    if (llama_memory_seq_pos_max(memory, 0) != keep - 1) {
        return ST_STEP_SPOILED;
    }
    const int32_t oldest = keep - s->n_swa > 0 ? keep - s->n_swa : 0;
    return s->n_swa > 0 && llama_memory_seq_pos_min(memory, 0) > oldest ? ST_STEP_SPOILED : 0;
}

// Hands a window's true pairs to the drafter; `kept` of its tokens stay in the memory.
static int note_window(struct st_speculator * s, const llama_token * window, int32_t position, int kept) {
    const float * rows = nextn.get_embeddings(s->target);
    int i              = 0;
    if (s->paired == position + 1 && s->n_backlog == 0) {  // the pending token was paired when it was drafted from
        memcpy(s->carry, rows, (size_t) s->n_embd * sizeof *rows);
        i = 1;
    } else if (s->paired + s->n_backlog != position) {
        draft_restart(s, position);
    }
    for (; i < kept; i++) {
        const int status = add_pair(s, window[i], rows + (size_t) i * (size_t) s->n_embd);
        if (status != 0) {
            draft_restart(s, position + kept);
            return status < 0 ? status : 0;  // cancelled or no room: no drafts for a while, and the window stands
        }
    }
    s->n_drafts = 0;
    return 0;
}

int st_speculator_step(struct st_speculator * s, llama_token pending, int32_t position, const llama_token * drafts, int n_drafts,
                       const struct st_proposal * proposals, llama_token * out, int * n_out) {
    llama_token window[ST_MAX_DRAFTS + 1] = { pending };
    const bool replay                     = needs_checkpoint(s, n_drafts);
    *n_out = 0;
    memcpy(window + 1, drafts, (size_t) n_drafts * sizeof *drafts);
    if (replay && take_checkpoint(s) < 0) {
        return ST_STEP_SPOILED;
    }
    int status = decode_target(s, window, n_drafts + 1, position, true);
    if (status != 0) {
        return status;
    }
    for (int i = 0; i <= n_drafts; i++) {
        const float * logits = llama_get_logits_ith(s->target, i);
        const bool drawn     = i < n_drafts && !s->greedy && proposals && proposals[i].n > 0;
        const llama_token t  = drawn ? choose_against(s, logits, drafts[i], &proposals[i]) : choose(s, logits);
        if (!isfinite(logits[t])) {
            return ST_STEP_NOT_FINITE;
        }
        llama_sampler_accept(s->filters, t);
        out[(*n_out)++] = t;
        if (i == n_drafts || t != drafts[i] || llama_vocab_is_eog(s->vocab, t)) {
            break;
        }
    }
    const int kept = *n_out;  // the pending token and all chosen ones but the last
    if (s->draft) {
        status = note_window(s, window, position, kept);
    }
    if (status == 0 && kept <= n_drafts) {
        status = cut_target(s, window, position, position + kept, replay);
    }
    return status;
}
