// Speculative decoding: draft tokens with the model's NextN heads, verify drafts (from anywhere) in one window
// of the target, accept, and roll back what was rejected.
//
// A window is the last sampled token, which the memory does not hold yet, and up to ST_MAX_DRAFTS drafts behind
// it. Its rows give the target's distribution behind each of them. Tokens are chosen row by row, with the whole
// sampler chain (which sees each accepted token before the next row), until a choice differs from the draft:
//  - a draft without a proposal distribution: the token is drawn from the target and compared. Every token
//    costs one random number, so a seed gives the text that it gives without drafts (up to rounding).
//  - a draft that was drawn from a proposal q: accepted with min(1, p/q), else drawn from what p has over q.
// Both leave the target's distribution as it is. After a window the memory holds all but the last token.
//
// One speculator a sequence (id 0 of its contexts), used by one thread.
#ifndef STRATA_SPECULATE_H
#define STRATA_SPECULATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "llama.h"
#include "window.h"

#define ST_MAX_DRAFTS 8  // with the pending token at most ST_WINDOW_ROWS
#define ST_BACKLOG 512  // most rows that wait for the draft context: it is not asked while drafts do not pay

// What a draft was drawn from: n tokens with their probabilities; n 0: the draft was not drawn.
struct st_proposal {
    size_t n, capacity;
    llama_token * ids;
    float * probs;
};

enum st_window_result {  // beside llama_decode's own codes, 0: done, below 0 or 1, 2: nothing was decoded
    ST_STEP_SPOILED = 100,   // the memory could not be cut back: it must be cleared
    ST_STEP_NOT_FINITE,      // the target computed NaN or infinity; the memory must be cleared
};

struct st_speculator {
    struct llama_context * target;
    const struct llama_vocab * vocab;
    int32_t n_vocab;
    bool has_state;          // recurrent or hybrid: cut back by snapshots or by a checkpoint and a replay
    int32_t n_swa;
    uint32_t n_snapshots;
    struct st_window * window;  // not owned; NULL: nobody keeps experts by their use
    uint8_t * checkpoint;
    size_t checkpoint_size, checkpoint_capacity;
    struct llama_batch batch;

    // sampling
    struct llama_sampler * filters;  // not owned: the chain without its last link, the choice
    bool greedy;
    int32_t keep;                    // greedy: so many of the likeliest tokens are enough for the filters; 0: all are needed
    uint64_t random[4];
    llama_token_data * row;          // [n_vocab] scratch
    float * dense;                   // [n_vocab] all 0 between uses
    float * tops;                    // [n_vocab] scratch

    // drafting; draft NULL: there are no heads
    struct llama_context * draft;
    struct llama_sampler * draft_filters;  // a copy that has seen the drafts
    int32_t n_embd, n_heads;
    int32_t draft_batch;             // most rows of one decode
    int32_t draft_outputs;           // ... of one that is read
    int32_t * d_tokens;              // [draft_batch]; with d_rows, d_pos and d_out one batch
    float * d_rows;                  // [draft_batch][n_embd]
    llama_pos * d_pos;
    int32_t * d_n_seq;
    llama_seq_id * d_seq;
    llama_seq_id ** d_seq_ids;
    int8_t * d_out;
    // The draft context pairs each token with the target's hidden row before it. It holds true pairs for the
    // positions below `paired`, the backlog those that follow, and `carry` is the row behind the last of them.
    int32_t paired;
    int32_t held;                    // positions in the draft context, drafts' own included
    int n_backlog, backlog;          // waiting, and at most
    llama_token backlog_tokens[ST_BACKLOG];
    float * backlog_rows;            // [backlog][n_embd]
    float * carry;                   // [n_embd]
    int n_drafts;
    llama_token drafts[ST_MAX_DRAFTS];
    float * draft_rows;              // [ST_MAX_DRAFTS][n_embd] hidden row behind each draft
    struct st_proposal proposals[ST_MAX_DRAFTS];
    char error[256];
};

// Names that this libllama lacks, or NULL when NextN heads can be used.
const char * st_nextn_missing(void);

// `draft`: a context of type MTP of the same model, or NULL. `outputs`: the rows of it that one decode may give logits
// for, at least 1; with fewer than wait, two decodes take the place of one that computes logits that nobody reads. 0, or -1 with the reason in `error`; then
// st_speculator_free all the same.
int st_speculator_init(struct st_speculator * s, struct llama_context * target, struct llama_context * draft, int32_t outputs);
void st_speculator_free(struct st_speculator * s);

// A new reply. `filters` lives as long as the reply. `keep`: with `greedy`, of how many of the likeliest tokens the
// filters leave the right one in front (speculate_greedy.c says when that is known); 0: all are needed.
void st_speculator_begin(struct st_speculator * s, struct llama_sampler * filters, bool greedy, int32_t keep, uint64_t seed);

// Puts the `keep` > 0 likeliest tokens of a row of logits into `row`, likeliest first (of equal ones the lower id), and
// returns how many; none where there are no numbers. `row` and `tops`: room for n_vocab.
size_t st_likeliest(const float * logits, int32_t n_vocab, int32_t keep, llama_token_data * row, float * tops);

// A token from the target's row; the chain has then seen it. 0 or ST_STEP_NOT_FINITE.
int st_speculator_sample(struct st_speculator * s, int32_t row, llama_token * out);

// After a decode of `n` tokens of a prompt from `position` on: hands their hidden rows to the draft context.
// Returns llama_decode's code (0 too when there are no heads).
int st_speculator_observe(struct st_speculator * s, const llama_token * tokens, int32_t n, int32_t position);

// The target's memory was cut to `position` tokens (0: cleared).
void st_speculator_cut(struct st_speculator * s, int32_t position);

// Between replies, so that the draft context can be saved: whether it holds true pairs for exactly `position` tokens
// now. With `carry` (n_embd floats) it is then the whole state of drafting.
bool st_speculator_settle(struct st_speculator * s, int32_t position);

// The draft context, of which there is one, was given back what it held with `position` tokens.
void st_speculator_resume(struct st_speculator * s, int32_t position, const void * carry);

// Drafts one more token: the first behind `pending`, which stands at `position`, then behind the last draft.
// `*p` is the probability under the head. Returns 1, 0 when none can be drafted, or a code below 0.
int st_speculator_draft(struct st_speculator * s, llama_token pending, int32_t position, bool first, llama_token * out, float * p);

// Decodes and verifies one window. proposals[i].n 0 (or proposals NULL): draft i is compared. `out` has room
// for n_drafts + 1 tokens; the reply ends at an end of generation among them. Returns 0, llama_decode's code
// or an enum st_window_result.
int st_speculator_step(struct st_speculator * s, llama_token pending, int32_t position, const llama_token * drafts, int n_drafts,
                       const struct st_proposal * proposals, llama_token * out, int * n_out);

int st_proposal_reserve(struct st_proposal * q, size_t n);

#endif
