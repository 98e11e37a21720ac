// Which expert is in which slot, and who goes next. Pure: no ggml, no I/O, no threads.
//
// One instance per size class. Least recently used, with every operation O(1): a dense table from key to
// slot, and a doubly linked list through the slots in order of use (as in any textbook LRU).
//
// Slots can be *homes*: what is in a home stays until it is exchanged for something hotter (adapt.h), and only
// the others, the guests' slots, are claimed. Without homes (as at first) all slots are guests' and the policy
// is plain LRU.
//
// A slot is FREE, LOADING (claimed: its bytes are about to change, or are changing), RESIDENT (published) or
// LENT (its memory serves another end for a while; the expert keeps its place and comes back to it). Only a
// RESIDENT slot is found. The order "claim, copy, publish" is the caller's duty; what
// is kept here is that a slot leaves the table before its bytes can change, and that no slot that the
// current group of experts uses is claimed for another.
#ifndef STRATA_RESIDENCY_H
#define STRATA_RESIDENCY_H

#include <stdbool.h>
#include <stdint.h>

enum st_slot_state { ST_SLOT_FREE = 0, ST_SLOT_LOADING, ST_SLOT_RESIDENT, ST_SLOT_LENT };

struct st_residency {
    int32_t n_keys;
    int32_t n_slots;
    int32_t * slot_of;  // [n_keys]  slot of a RESIDENT or LOADING key, or -1
    int32_t * key_of;   // [n_slots] or -1
    int32_t * newer;    // [n_slots] neighbour that was used later, -1 at the newest
    int32_t * older;    // [n_slots] neighbour that was used earlier, -1 at the oldest
    uint8_t * state;    // [n_slots] enum st_slot_state
    uint64_t * group;   // [n_slots] the last group that used the slot
    uint8_t * home;     // [n_slots]
    int32_t newest[2], oldest[2];  // ends of two lists: guests' slots, homes
    int32_t n_homes;
    uint64_t current;   // the running group
    int32_t n_resident, n_lent;
};

// All slots FREE. Returns false when memory is short; `r` then needs no st_residency_free.
bool st_residency_init(struct st_residency * r, int32_t n_keys, int32_t n_slots);
void st_residency_free(struct st_residency * r);

// Starts a group: the experts of one layer (or of a part of a batch) that must be resident together. Comes
// before the first claim, and after every load of the group before has ended (published or abandoned).
void st_residency_begin(struct st_residency * r);

// The slot where `key` is RESIDENT, or -1.
int32_t st_residency_find(const struct st_residency * r, int32_t key);

// Marks a slot as used by the running group, which also keeps it from being claimed in this group.
void st_residency_touch(struct st_residency * r, int32_t slot);

// Keeps a slot from being claimed in the running group, and lets it keep its place in the order of use: whether it
// was used is not known yet (window.h).
void st_residency_hold(struct st_residency * r, int32_t slot);

// Makes a slot a home, or a guests' slot again (the newest of them).
void st_residency_set_home(struct st_residency * r, int32_t slot, bool home);

// Takes the least recently used of the guests' slots that the running group does not use for `key`: LOADING, and used by
// this group. `*evicted` is the key that lost it, or -1. Returns -1 when the running group already uses all of these. `key` must not be
// in the table.
int32_t st_residency_claim(struct st_residency * r, int32_t key, int32_t * evicted);

// Takes this home for `key` in place of what it holds, as claim does. No group may be using it.
void st_residency_claim_home(struct st_residency * r, int32_t slot, int32_t key, int32_t * evicted);

// RESIDENT -> LOADING with the same key: its bytes are about to be copied again. In the running group.
void st_residency_reopen(struct st_residency * r, int32_t slot);

// RESIDENT -> LENT. Until all are returned nothing may be claimed.
void st_residency_lend(struct st_residency * r, int32_t slot);

// LENT -> LOADING with the same key and the same place in the order of use.
void st_residency_return(struct st_residency * r, int32_t slot);

// LOADING -> RESIDENT. Only after the copy's completion is ordered before every later read.
void st_residency_publish(struct st_residency * r, int32_t slot);

// LOADING -> FREE, a guests' slot and first to be claimed again; for a load that failed or was never queued.
void st_residency_abandon(struct st_residency * r, int32_t slot);

#endif
