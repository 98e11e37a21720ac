#include "window.h"

#include <assert.h>
#include <stdlib.h>

void st_window_open(struct st_window * w, int rows) {
    assert(rows >= 2 && rows <= ST_WINDOW_ROWS);
    w->rows = rows;
    w->n    = 0;
}

bool st_window_holds(const struct st_window * w, int64_t tokens) {
    return w->rows > 0 && tokens == w->rows;
}

void st_window_hit(struct st_residency * r, int32_t slot, uint32_t rows) {
    if (rows & 1) {
        st_residency_touch(r, slot);
    } else {
        st_residency_hold(r, slot);
    }
}

bool st_window_note(struct st_window * w, const struct st_window_pick * pick) {
    if (w->n == w->capacity) {
        const size_t capacity         = w->capacity ? 2 * w->capacity : 512;
        struct st_window_pick * picks = realloc(w->picks, capacity * sizeof *picks);
        if (!picks) {
            return false;
        }
        w->picks    = picks;
        w->capacity = capacity;
    }
    w->picks[w->n++] = *pick;
    return true;
}

// How many of the tokens that stand picked it.
static int picked(const struct st_window_pick * p, int stand) {
    return __builtin_popcount(p->rows & ((UINT32_C(1) << stand) - 1));
}

// Makes the slots of what tokens that stand have picked (or of all else) the last used, in the order of the layers.
static void use(const struct st_window * w, int stand, bool stands) {
    for (size_t i = 0; i < w->n; i++) {
        const struct st_window_pick * p = &w->picks[i];
        const int32_t slot              = st_residency_find(p->residency, p->key);  // -1: a later layer took it
        if (slot >= 0 && (picked(p, stand) > 0) == stands) {
            st_residency_touch(p->residency, slot);
        }
    }
}

void st_window_settle(struct st_window * w, int stand) {
    assert(stand >= 0 && stand <= ST_WINDOW_ROWS);
    use(w, stand, false);
    use(w, stand, true);
    for (size_t i = 0; i < w->n; i++) {
        const struct st_window_pick * p = &w->picks[i];
        if (p->usage) {
            const int count = picked(p, stand);
            p->usage[p->key] += (float) (count < ST_USAGE_MOST ? count : ST_USAGE_MOST);
        }
    }
    w->rows = 0;
    w->n    = 0;
}

void st_window_free(struct st_window * w) {
    free(w->picks);
    *w = (struct st_window) { 0 };
}
