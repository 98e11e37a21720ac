#include "speculate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "speculate_parts.h"

// ---- making and ending one

int st_spec_fail(struct st_speculator * s, const char * text) {
    snprintf(s->error, sizeof s->error, "%s", text);
    return -1;
}

int st_speculator_init(struct st_speculator * s, struct llama_context * target, struct llama_context * draft, int32_t outputs) {
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
    s->tops        = malloc((size_t) s->n_vocab * sizeof *s->tops);
    if (!s->row || !s->dense || !s->tops) {
        return st_spec_fail(s, "out of memory for sampling");
    }
    return draft ? st_spec_draft_init(s, draft, outputs) : 0;
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
    free(s->tops);
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
    // Sliding windows must still reach back. (Where there are running states, too, the oldest position tells of these.)
    const int32_t oldest = keep - s->n_swa > 0 ? keep - s->n_swa : 0;
    return s->n_swa > 0 && !s->has_state && llama_memory_seq_pos_min(memory, 0) > oldest ? ST_STEP_SPOILED : 0;
}

// So many tokens of the window stand: what the others picked does not count.
static void settle(struct st_speculator * s, int stand) {
    if (s->window) {
        st_window_settle(s->window, stand);
    }
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
    if (s->window && n_drafts > 0) {
        st_window_open(s->window, n_drafts + 1);
    }
    int status = decode_target(s, window, n_drafts + 1, position, true);
    if (status != 0) {
        settle(s, 0);
        return status;
    }
    for (int i = 0; i <= n_drafts; i++) {
        const float * logits = llama_get_logits_ith(s->target, i);
        const bool drawn     = i < n_drafts && !s->greedy && proposals && proposals[i].n > 0;
        const llama_token t  = drawn ? st_spec_choose_against(s, logits, drafts[i], &proposals[i]) : st_spec_choose(s, logits);
        if (!isfinite(logits[t])) {
            settle(s, 0);
            return ST_STEP_NOT_FINITE;
        }
        llama_sampler_accept(s->filters, t);
        out[(*n_out)++] = t;
        if (i == n_drafts || t != drafts[i] || llama_vocab_is_eog(s->vocab, t)) {
            break;
        }
    }
    const int kept = *n_out;  // the pending token and all chosen ones but the last
    settle(s, replay && kept <= n_drafts ? 0 : kept);  // a replay counts by itself
    if (s->draft) {
        status = st_spec_draft_note(s, window, position, kept);
    }
    if (status == 0 && kept <= n_drafts) {
        status = cut_target(s, window, position, position + kept, replay);
    }
    return status;
}
