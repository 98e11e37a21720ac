// What prompt.c (the graph of a streamed batch) and unit.c (its experts) share.
#ifndef STRATA_PROMPT_H
#define STRATA_PROMPT_H

#include "tier.h"

struct st_step {  // one MUL_MAT_ID over expert tensors
    int node;
    const struct st_slice * slice;
    struct ggml_tensor * weight;  // to be put back
    struct ggml_tensor view;
    size_t ids_at;                // in the ids read back, or SIZE_MAX: the ids of the step before
};

struct st_unit_plan {  // what comes at once: for steps first .. end-1, of one group
    const struct st_slice * slice;  // of the first step
    int first, end;
    int32_t direct;                 // first of the neighbouring slots that hold all experts in order, or -1
};

struct st_range {  // neighbouring experts that come from the file
    int32_t expert, count;
};

bool st_batch_by_layers(const struct st_tier * t);  // whether units are layers, or slices
// Begins a batch: takes the ring, behind all reads on the compute stream. 0 or -1.
int st_batch_begin(struct st_tier * t, ggml_backend_t compute);
// Brings the next unit. 1 done, 0 no room yet, -1 failed, -2 cancelled.
int st_unit_bring(struct st_tier * t);

#endif
