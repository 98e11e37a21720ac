// What a window of drafts picked, until it is known which of its tokens stand. Pure: no ggml, no I/O, no threads.
//
// Experts are made resident before anybody knows whether a draft is right, and those of rejected drafts shall not push
// out what the text needs. So while a window is open, the picks of its first token (which always stands) count as used
// at once; of the others it is kept who picked what, and a resident keeps its place in the order of use. When it is
// known how many tokens stand, their picks are the last used. What rejected tokens alone picked goes right behind
// these: the next pass often picks some of it at the same position. It counts nothing as usage.
#ifndef STRATA_WINDOW_H
#define STRATA_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "residency.h"

#define ST_WINDOW_ROWS 16
#define ST_USAGE_MOST 8  // picks of one expert in one batch that count: a long prompt counts, but not for all after it

struct st_window_pick {
    struct st_residency * residency;
    float * usage;  // NULL: it counts nowhere
    int32_t key;
    uint32_t rows;  // bit i: token i picked it
};

struct st_window {
    int rows;  // tokens; 0: none is open
    size_t n, capacity;
    struct st_window_pick * picks;
};

// Opens a window of 2 to ST_WINDOW_ROWS tokens; one that was open is forgotten.
void st_window_open(struct st_window * w, int rows);

// Whether a batch of so many tokens is the open window's.
bool st_window_holds(const struct st_window * w, int64_t tokens);

// A resident was picked by the tokens `rows`: keeps it from being claimed in the running group.
void st_window_hit(struct st_residency * r, int32_t slot, uint32_t rows);

// Keeps who picked what. False: no memory.
bool st_window_note(struct st_window * w, const struct st_window_pick * pick);

// The first `stand` tokens stand, the others are rejected (0: nothing was decoded, or all of it is decoded again).
void st_window_settle(struct st_window * w, int stand);

void st_window_free(struct st_window * w);

#endif
