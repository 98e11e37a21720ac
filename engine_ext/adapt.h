// The adaptive tier: which homes are exchanged for hotter experts between rounds. Pure.
//
// Usage is counted per expert and decays, so that it follows the talk. The hottest experts without a home
// take the homes of the coldest that have one, when they lead by a margin (without it, equals would change
// places for ever), at most `cap` at a time.
#ifndef STRATA_ADAPT_H
#define STRATA_ADAPT_H

#include <stdint.h>

#include "residency.h"

#define ST_ADAPT_CAP 64

struct st_adapt_rule {
    float decay;    // usage is multiplied by this at each adaptation
    float margin;   // a newcomer's usage must exceed a home's by this
    float minimum;  // ... and be at least this
    int cap;        // most swaps at a time, up to ST_ADAPT_CAP
};

struct st_swap {
    int32_t key;   // gets a home
    int32_t home;  // the slot
};

// Plans swaps for one size class and lets `usage` [n_keys] decay. Homes that are LOADING stay. Returns their
// number; hottest newcomer and coldest home first.
int st_adapt_plan(const struct st_residency * r, float * usage, const struct st_adapt_rule * rule, struct st_swap * swaps);

#endif
