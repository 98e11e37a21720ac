// Drafting with the model's NextN heads: the draft context, and the hidden rows that it is fed with.
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "speculate_parts.h"

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

// ---- making one

int st_spec_draft_init(struct st_speculator * s, struct llama_context * draft, int32_t outputs) {
    const char * missing = st_nextn_missing();
    if (missing) {
        snprintf(s->error, sizeof s->error, "this llama.cpp has no %s, so the model's NextN heads cannot be used", missing);
        return -1;
    }
    const struct llama_model * model = llama_get_model(draft);
    s->n_embd        = llama_model_n_embd_out(model);
    s->n_heads       = llama_model_n_layer_nextn(model);
    s->draft_batch   = (int32_t) llama_n_batch(draft);
    s->draft_outputs = outputs;
    if (s->n_heads < 1 || s->n_heads > ST_MAX_DRAFTS || s->draft_batch < 2 || outputs < 1) {
        return st_spec_fail(s, "the draft context has no NextN heads, too many of them, too small a batch, or no outputs");
    }
    s->backlog = s->draft_batch > ST_BACKLOG ? ST_BACKLOG : s->draft_batch - 1;  // one decode takes it and the pending token
    const size_t n = (size_t) s->draft_batch, row = (size_t) s->n_embd;
    s->d_tokens     = calloc(n, sizeof *s->d_tokens);
    s->d_rows       = calloc(n * row, sizeof *s->d_rows);
    s->d_pos        = calloc(n, sizeof *s->d_pos);
    s->d_n_seq      = calloc(n, sizeof *s->d_n_seq);
    s->d_seq        = calloc(1, sizeof *s->d_seq);
    s->d_seq_ids    = calloc(n, sizeof *s->d_seq_ids);
    s->d_out        = calloc(n, sizeof *s->d_out);
    s->backlog_rows = calloc((size_t) s->backlog * row, sizeof *s->backlog_rows);
    s->carry        = calloc(row, sizeof *s->carry);
    s->draft_rows   = calloc(ST_MAX_DRAFTS * row, sizeof *s->draft_rows);
    if (!s->d_tokens || !s->d_rows || !s->d_pos || !s->d_n_seq || !s->d_seq || !s->d_seq_ids || !s->d_out || !s->backlog_rows || !s->carry || !s->draft_rows) {
        return st_spec_fail(s, "out of memory for drafts");
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

// Decodes the batch's n rows and leaves the logits and the hidden row of the last one to be read, at index `*row`. Most
// graphs hand out hidden rows from the first on, whichever were asked for, so a decode that is read asks for all.
static int draft_decode_last(struct st_speculator * s, int32_t n, int head, int32_t * row) {
    if (n > s->draft_outputs) {
        const int status = draft_decode(s, n - 1, head);
        if (status != 0) {
            return status;
        }
        s->d_tokens[0] = s->d_tokens[n - 1];
        s->d_pos[0]    = s->d_pos[n - 1];
        memcpy(s->d_rows, s->d_rows + (size_t) (n - 1) * (size_t) s->n_embd, (size_t) s->n_embd * sizeof *s->d_rows);
        n = 1;
    }
    for (int32_t i = 0; i < n; i++) {
        s->d_out[i] = 1;
    }
    *row = n - 1;
    return draft_decode(s, n, head);
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
    if (s->n_backlog == s->backlog) {
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

bool st_speculator_settle(struct st_speculator * s, int32_t position) {
    s->n_drafts = 0;
    return s->draft && flush_backlog(s) == 0 && s->paired == position && draft_cut(s, position) == 0;
}

void st_speculator_resume(struct st_speculator * s, int32_t position, const void * carry) {
    s->paired = s->held = position;
    s->n_backlog        = 0;
    s->n_drafts         = 0;
    memcpy(s->carry, carry, (size_t) s->n_embd * sizeof *s->carry);
}

// Takes a draft from the draft context's last row.
static int take_draft(struct st_speculator * s, int32_t row, llama_token * out, float * p) {
    const float * logits = llama_get_logits_ith(s->draft, row);
    const float * hidden = nextn.get_embeddings_ith(s->draft, row);
    const int i          = s->n_drafts;
    struct st_proposal * q = &s->proposals[i];
    if (!logits || !hidden) {
        return st_spec_fail(s, "the draft context gave no row");
    }
    q->n = 0;
    if (s->greedy && s->keep > 0) {
        *out = st_spec_best(s, s->draft_filters, logits, p);
        *p   = isfinite(logits[*out]) ? *p : NAN;
    } else {
        llama_token_data_array a = st_spec_distribution(s, s->draft_filters, logits);
        st_spec_softmax(&a);
        if (s->greedy) {
            const size_t best = st_spec_largest(&a);
            *out = a.data[best].id;
            *p   = a.data[best].p;
        } else {
            if (st_proposal_reserve(q, a.size) < 0) {
                return st_spec_fail(s, "out of memory for drafts");
            }
            for (size_t k = 0; k < a.size; k++) {
                q->ids[k]   = a.data[k].id;
                q->probs[k] = a.data[k].p;
            }
            q->n = a.size;
            *out = st_spec_draw(s, &a, st_spec_total(&a));
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
        return st_spec_fail(s, "out of memory for drafts");
    }
    const int32_t n = s->n_backlog;
    for (int32_t i = 0; i < n; i++) {
        put_row(s, i, s->backlog_tokens[i], s->backlog_rows + (size_t) i * (size_t) s->n_embd, s->paired + i);
    }
    put_row(s, n, pending, s->carry, position);
    int status  = 0;
    int32_t row = 0;
    if (s->n_heads > 1) {  // the other heads' true pairs; the pending one is drafted with the first head only
        if (n > 0) {
            status = draft_pairs(s, n);
        }
        if (status == 0) {
            s->n_backlog = 0;
            put_row(s, 0, pending, s->carry, position);
            status = draft_cut(s, position) < 0 ? -1 : draft_decode_last(s, 1, 0, &row);
        }
        return status != 0 ? no_draft(status) : take_draft(s, row, out, p);
    }
    status = draft_cut(s, s->paired) < 0 ? -1 : draft_decode_last(s, n + 1, 0, &row);
    if (status != 0) {
        return no_draft(status);
    }
    s->n_backlog = 0;
    s->paired    = position + 1;
    return take_draft(s, row, out, p);
}

static int next_draft(struct st_speculator * s, llama_token pending, int32_t position, llama_token * out, float * p) {
    const int k = s->n_drafts;
    int32_t row = 0;
    if (s->n_heads == 1) {  // fed with its own hidden row
        put_row(s, 0, s->drafts[k - 1], s->draft_rows + (size_t) (k - 1) * (size_t) s->n_embd, position + k);
        const int status = draft_decode_last(s, 1, 0, &row);
        return status != 0 ? no_draft(status) : take_draft(s, row, out, p);
    }
    if (k >= s->n_heads) {
        return 0;
    }
    // Head k has seen none of the drafts: it reads all of them, each with the row that the head before gave.
    for (int32_t i = 0; i <= k; i++) {
        put_row(s, i, i == 0 ? pending : s->drafts[i - 1], i == 0 ? s->carry : s->draft_rows + (size_t) (i - 1) * (size_t) s->n_embd, position + i);
    }
    const int status = draft_cut(s, position) < 0 ? -1 : draft_decode_last(s, k + 1, k, &row);
    return status != 0 ? no_draft(status) : take_draft(s, row, out, p);
}

int st_speculator_draft(struct st_speculator * s, llama_token pending, int32_t position, bool first, llama_token * out, float * p) {
    if (!s->draft || !s->filters || (!first && (s->n_drafts == 0 || s->n_drafts == ST_MAX_DRAFTS))) {
        return 0;
    }
    *p = 0;
    return first ? first_draft(s, pending, position, out, p) : next_draft(s, pending, position, out, p);
}

// Hands a window's true pairs to the drafter; `kept` of its tokens stay in the memory.
int st_spec_draft_note(struct st_speculator * s, const llama_token * window, int32_t position, int kept) {
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
