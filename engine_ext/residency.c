#include "residency.h"

#include <assert.h>
#include <stdlib.h>

static void list_remove(struct st_residency * r, int32_t s) {
    const int list = r->home[s];
    if (r->newer[s] >= 0) {
        r->older[r->newer[s]] = r->older[s];
    } else {
        r->newest[list] = r->older[s];
    }
    if (r->older[s] >= 0) {
        r->newer[r->older[s]] = r->newer[s];
    } else {
        r->oldest[list] = r->newer[s];
    }
}

static void list_push_newest(struct st_residency * r, int32_t s) {
    const int list = r->home[s];
    r->newer[s] = -1;
    r->older[s] = r->newest[list];
    if (r->newest[list] >= 0) {
        r->newer[r->newest[list]] = s;
    } else {
        r->oldest[list] = s;
    }
    r->newest[list] = s;
}

static void list_push_oldest(struct st_residency * r, int32_t s) {
    const int list = r->home[s];
    r->older[s] = -1;
    r->newer[s] = r->oldest[list];
    if (r->oldest[list] >= 0) {
        r->older[r->oldest[list]] = s;
    } else {
        r->newest[list] = s;
    }
    r->oldest[list] = s;
}

bool st_residency_init(struct st_residency * r, int32_t n_keys, int32_t n_slots) {
    *r = (struct st_residency) { .n_keys = n_keys, .n_slots = n_slots, .newest = { -1, -1 }, .oldest = { -1, -1 } };
    if (n_keys <= 0 || n_slots <= 0) {
        return false;
    }
    r->slot_of = malloc((size_t) n_keys * sizeof *r->slot_of);
    r->key_of  = malloc((size_t) n_slots * sizeof *r->key_of);
    r->newer   = malloc((size_t) n_slots * sizeof *r->newer);
    r->older   = malloc((size_t) n_slots * sizeof *r->older);
    r->state   = calloc((size_t) n_slots, sizeof *r->state);
    r->group   = calloc((size_t) n_slots, sizeof *r->group);
    r->home    = calloc((size_t) n_slots, sizeof *r->home);
    if (!r->home || !r->slot_of || !r->key_of || !r->newer || !r->older || !r->state || !r->group) {
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
    free(r->home);
    *r = (struct st_residency) { .newest = { -1, -1 }, .oldest = { -1, -1 } };
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
    if (r->newest[r->home[s]] != s) {
        list_remove(r, s);
        list_push_newest(r, s);
    }
}

void st_residency_hold(struct st_residency * r, int32_t s) {
    assert(s >= 0 && s < r->n_slots);
    r->group[s] = r->current;
}

void st_residency_set_home(struct st_residency * r, int32_t s, bool home) {
    assert(s >= 0 && s < r->n_slots);
    if (r->home[s] != home) {
        list_remove(r, s);
        r->home[s] = home;
        r->n_homes += home ? 1 : -1;
        list_push_newest(r, s);
    }
}

// Puts `key` into slot `s`, LOADING.
static void take(struct st_residency * r, int32_t s, int32_t key, int32_t * evicted) {
    assert(key >= 0 && key < r->n_keys);
    assert(r->slot_of[key] < 0);
    assert(r->state[s] != ST_SLOT_LOADING);
    assert(r->n_lent == 0);
    *evicted = -1;
    if (r->state[s] == ST_SLOT_RESIDENT) {
        *evicted = r->key_of[s];
        r->slot_of[*evicted] = -1;
        r->n_resident--;
    }
    r->state[s]     = ST_SLOT_LOADING;
    r->key_of[s]    = key;
    r->slot_of[key] = s;
    st_residency_touch(r, s);
}

int32_t st_residency_claim(struct st_residency * r, int32_t key, int32_t * evicted) {
    int32_t s = r->oldest[0];
    while (s >= 0 && r->group[s] == r->current) {  // few: what is held, and at the newest end what was touched
        s = r->newer[s];
    }
    if (s < 0) {
        *evicted = -1;
        return -1;
    }
    take(r, s, key, evicted);
    return s;
}

void st_residency_claim_home(struct st_residency * r, int32_t s, int32_t key, int32_t * evicted) {
    assert(s >= 0 && s < r->n_slots && r->home[s]);
    take(r, s, key, evicted);
}

void st_residency_reopen(struct st_residency * r, int32_t s) {
    assert(r->state[s] == ST_SLOT_RESIDENT);
    r->state[s] = ST_SLOT_LOADING;
    r->n_resident--;
    st_residency_touch(r, s);
}

void st_residency_lend(struct st_residency * r, int32_t s) {
    assert(r->state[s] == ST_SLOT_RESIDENT);
    r->state[s] = ST_SLOT_LENT;
    r->n_resident--;
    r->n_lent++;
}

void st_residency_return(struct st_residency * r, int32_t s) {
    assert(r->state[s] == ST_SLOT_LENT);
    r->state[s] = ST_SLOT_LOADING;
    r->n_lent--;
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
    st_residency_set_home(r, s, false);  // an empty home would never be claimed again
    list_remove(r, s);
    list_push_oldest(r, s);
}
