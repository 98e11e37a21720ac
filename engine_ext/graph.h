// What graph.c and split.c share: the ids of a layer, and making its experts resident.
#ifndef STRATA_GRAPH_H
#define STRATA_GRAPH_H

#include "tier.h"

// The ids of one layer on the host, in router order: pick (token, k) is ids[token * stride + k].
struct picks {
    const struct st_group * group;
    struct st_class * class_;
    const int32_t * ids;
    int64_t stride, used, tokens;
    int32_t n_distinct;  // in b->order, with b->count and b->rows
};

// Whether a node reads expert tensors: then *slice is which, else NULL. 0, or -1: in a way that is not supported.
int st_reads_experts(struct st_backend * b, const struct ggml_tensor * node, const struct st_slice ** slice);
bool st_ids_known(const struct ggml_tensor * ids);  // their layout
enum ggml_status st_status(int result);  // of 0, 1 cancelled, -1 failed
// Host memory of at least `size` bytes; what was there is lost. Nothing queued may still read it. 0 or -1.
int st_grow(struct st_backend * b, struct st_memory * m, size_t size);
void st_upload(struct st_backend * b, struct ggml_tensor * tensor, const void * data, size_t size);

// Makes experts order[first..end) resident; b->slot[e] tells where. Slots are claimed in router order, never
// in the order of completion. `tally`: whether picks count. 0, 1 cancelled, -1 failed.
int st_make_resident(struct st_backend * b, const struct picks * p, int32_t first, int32_t end, bool tally);
// How many of experts order[first..end) need one of the guests' slots: all that are not at home; and how many
// of these slots there are.
int32_t st_guests(const struct st_backend * b, const struct picks * p, int32_t first, int32_t end);
int32_t st_room(const struct picks * p);
// Most picks that one operation may have (CPU work memory), beyond which a batch is split.
int64_t st_max_picks(const struct st_backend * b, const struct st_class * c);

// split.c: runs one MUL_MAT_ID in passes. `forward` alternates so that the last experts of one operation, still
// resident, are the first of the next.
enum ggml_status st_run_split(struct st_backend * b, struct ggml_tensor * node, const struct st_slice * slice, const struct picks * p, bool tally,
                              bool forward);

#endif
