// What speculate.c (windows), speculate_sample.c (choices) and speculate_draft.c (the NextN heads) share.
#ifndef STRATA_SPECULATE_PARTS_H
#define STRATA_SPECULATE_PARTS_H

#include "speculate.h"

int st_spec_fail(struct st_speculator * s, const char * text);  // -1

// The distribution that `filters` leave of a row, in s->row (or where a filter put it), most likely first or not.
llama_token_data_array st_spec_distribution(struct st_speculator * s, struct llama_sampler * filters, const float * logits);
size_t st_spec_largest(const llama_token_data_array * a);
void st_spec_softmax(llama_token_data_array * a);
double st_spec_total(const llama_token_data_array * a);
llama_token st_spec_draw(struct st_speculator * s, const llama_token_data_array * a, double sum);
// The token that `filters` leave in front where s->keep is enough, and its probability among the s->keep likeliest
// (`p` may be NULL).
llama_token st_spec_best(struct st_speculator * s, struct llama_sampler * filters, const float * logits, float * p);
// A token by the target's distribution; the second, given a draft that was drawn from q.
llama_token st_spec_choose(struct st_speculator * s, const float * logits);
llama_token st_spec_choose_against(struct st_speculator * s, const float * logits, llama_token draft, const struct st_proposal * q);

int st_spec_draft_init(struct st_speculator * s, struct llama_context * draft, int32_t outputs);  // 0 or -1
// Hands a window's true pairs to the drafter; `kept` of its tokens stay in the memory.
int st_spec_draft_note(struct st_speculator * s, const llama_token * window, int32_t position, int kept);

#endif
