#include "residency.h"

#include <assert.h>
#include <stdlib.h>

static void list_remove(struct st_residency * r, int32_t s) {
    if (r->newer[s] >= 0) {
        r->older[r->newer[s]] = r->older[s];
    } else {
        r->newest = r->older[s];
    }
    if (r->older[s] >= 0) {
        r->newer[r->older[s]] = r->newer[s];
    } else {
        r->oldest = r->newer[s];
    }
}

static void list_push_newest(struct st_residency * r, int32_t s) {
    r->newer[s] = -1;
    r->older[s] = r->newest;
    if (r->newest >= 0) {
        r->newer[r->newest] = s;
    } else {
        r->oldest = s;
    }
    r->newest = s;
}

static void list_push_oldest(struct st_residency * r, int32_t s) {
    r->older[s] = -1;
    r->newer[s] = r->oldest;
    if (r->oldest >= 0) {
        r->older[r->oldest] = s;
    } else {
        r->newest = s;
    }
    r->oldest = s;
}

bool st_residency_init(struct st_residency * r, int32_t n_keys, int32_t n_slots) {
    *r = (struct st_residency) { .n_keys = n_keys, .n_slots = n_slots, .newest = -1, .oldest = -1 };
    if (n_keys <= 0 || n_slots <= 0) {
        return false;
    }
    r->slot_of = malloc((size_t) n_keys * sizeof *r->slot_of);
    r->key_of  = malloc((size_t) n_slots * sizeof *r->key_of);
    r->newer   = malloc((size_t) n_slots * sizeof *r->newer);
    r->older   = malloc((size_t) n_slots * sizeof *r->older);
    r->state   = calloc((size_t) n_slots, sizeof *r->state);
    r->group   = calloc((size_t) n_slots, sizeof *r->group);
    if (!r->slot_of || !r->key_of || !r->newer || !r->older || !r->state || !r->group) {
        st_residency_free(r);
        return false;
    }
    for (int32_t k = 0; k < n_keys; k++) {
        r->slot_of[k] = -1;
    }
    for (int32_t s = n_slots - 1; s >= 0; s--) {  // slot 0 is the oldest: slots are first taken in order
        r->key_of[s] = -1;
        list_push_oldest(r, s);
    }
    return true;
}

void st_residency_free(struct st_residency * r) {
    free(r->slot_of);
    free(r->key_of);
    free(r->newer);
    free(r->older);
    free(r->state);
    free(r->group);
    *r = (struct st_residency) { .newest = -1, .oldest = -1 };
}

void st_residency_begin(struct st_residency * r) {
    r->current++;
}

int32_t st_residency_find(const struct st_residency * r, int32_t key) {
    assert(key >= 0 && key < r->n_keys);
    const int32_t s = r->slot_of[key];
    return s >= 0 && r->state[s] == ST_SLOT_RESIDENT ? s : -1;
}

void st_residency_touch(struct st_residency * r, int32_t s) {
    assert(s >= 0 && s < r->n_slots);
    r->group[s] = r->current;
    if (r->newest != s) {
        list_remove(r, s);
        list_push_newest(r, s);
    }
}

int32_t st_residency_claim(struct st_residency * r, int32_t key, int32_t * evicted) {
    assert(key >= 0 && key < r->n_keys);
    assert(r->slot_of[key] < 0);
    *evicted = -1;
    const int32_t s = r->oldest;
    // Touched slots sit at the newest end, so if the oldest belongs to this group, all do.
    if (s < 0 || r->group[s] == r->current) {
        return -1;
    }
    assert(r->state[s] != ST_SLOT_LOADING);
    if (r->state[s] == ST_SLOT_RESIDENT) {
        *evicted = r->key_of[s];
        r->slot_of[*evicted] = -1;
        r->n_resident--;
    }
    r->state[s]      = ST_SLOT_LOADING;
    r->key_of[s]     = key;
    r->slot_of[key]  = s;
    st_residency_touch(r, s);
    return s;
}

void st_residency_publish(struct st_residency * r, int32_t s) {
    assert(r->state[s] == ST_SLOT_LOADING);
    r->state[s] = ST_SLOT_RESIDENT;
    r->n_resident++;
}

void st_residency_abandon(struct st_residency * r, int32_t s) {
    assert(r->state[s] == ST_SLOT_LOADING);
    r->slot_of[r->key_of[s]] = -1;
    r->key_of[s] = -1;
    r->state[s]  = ST_SLOT_FREE;
    r->group[s]  = 0;
    list_remove(r, s);
    list_push_oldest(r, s);
}
