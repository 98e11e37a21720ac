// The residency against a naive model: a clock for each slot, and a search over all of them. Guests and homes
// share the clock; a claim looks at the guests alone.
#include <string.h>
#include <sys/wait.h>

#include "check.h"
#include "residency.h"

#define MAX_KEYS 96
#define MAX_SLOTS 24

struct model {
    int n_keys, n_slots;
    int key[MAX_SLOTS];          // or -1
    enum st_slot_state state[MAX_SLOTS];
    int64_t used[MAX_SLOTS];     // clock of the last use
    bool in_group[MAX_SLOTS];
    bool home[MAX_SLOTS];
    int64_t now, lowest;
};

static uint64_t rng;

static int model_find(const struct model * m, int key) {
    for (int s = 0; s < m->n_slots; s++) {
        if (m->key[s] == key) {
            return s;
        }
    }
    return -1;
}

// Of those that the running group does not use.
static int model_oldest_guest(const struct model * m) {
    int oldest = -1;
    for (int s = 0; s < m->n_slots; s++) {
        if (!m->home[s] && !m->in_group[s] && (oldest < 0 || m->used[s] < m->used[oldest])) {
            oldest = s;
        }
    }
    return oldest;
}

static void model_touch(struct model * m, int s) {
    m->used[s]     = ++m->now;
    m->in_group[s] = true;
}

// Everything that can be seen, and the list from both ends.
static void compare(const struct st_residency * r, const struct model * m) {
    int n_resident = 0, n_keys = 0, n_lent = 0;
    for (int s = 0; s < m->n_slots; s++) {
        CHECK("residency-state", r->state[s] == m->state[s]);
        CHECK("residency-key", r->key_of[s] == m->key[s]);
        n_resident += m->state[s] == ST_SLOT_RESIDENT;
        n_lent += m->state[s] == ST_SLOT_LENT;
        n_keys += m->key[s] >= 0;
    }
    CHECK("residency-count", r->n_resident == n_resident && r->n_lent == n_lent);
    for (int k = 0; k < m->n_keys; k++) {
        const int s = model_find(m, k);
        CHECK("residency-table", r->slot_of[k] == s);
        CHECK("residency-find", st_residency_find(r, k) == (s >= 0 && m->state[s] == ST_SLOT_RESIDENT ? s : -1));
        n_keys -= s >= 0;
    }
    CHECK("residency-one key, one slot", n_keys == 0);
    int seen = 0, n_homes = 0;
    for (int list = 0; list < 2; list++) {
        int previous = -1;
        for (int s = r->oldest[list]; s >= 0 && seen <= m->n_slots; s = r->newer[s]) {
            CHECK("residency-guests and homes apart", m->home[s] == (list == 1) && r->home[s] == m->home[s]);
            CHECK("residency-lru order", previous < 0 || m->used[previous] < m->used[s]);
            CHECK("residency-links", r->older[s] == previous);
            previous = s;
            seen++;
            n_homes += list;
        }
        CHECK("residency-list", r->newest[list] == previous);
    }
    CHECK("residency-list", seen == m->n_slots);
    CHECK("residency-n_homes", r->n_homes == n_homes);
}

static void begin(struct st_residency * r, struct model * m) {
    st_residency_begin(r);
    memset(m->in_group, 0, sizeof m->in_group);
}

static void end_load(struct st_residency * r, struct model * m, int s) {
    if (one_in(&rng, 4)) {
        st_residency_abandon(r, s);
        m->key[s]      = -1;
        m->state[s]    = ST_SLOT_FREE;
        m->used[s]     = --m->lowest;
        m->home[s]     = false;
        m->in_group[s] = false;
    } else {
        st_residency_publish(r, s);
        m->state[s] = ST_SLOT_RESIDENT;
    }
}

static void claim(struct st_residency * r, struct model * m, int key) {
    const int oldest = model_oldest_guest(m);
    if (oldest >= 0 && m->state[oldest] == ST_SLOT_LOADING) {
        return;  // a load of an earlier group that was not ended: not allowed
    }
    int32_t evicted = 12345;
    const int s = st_residency_claim(r, key, &evicted);
    CHECK("residency-claims while a slot is left", (s < 0) == (oldest < 0));
    if (s < 0) {
        CHECK("residency-evicts nothing when it refuses", evicted == -1);
        return;
    }
    CHECK("residency-spares the homes", !m->home[s]);
    CHECK("residency-spares the running group", !m->in_group[s]);
    CHECK("residency-claims the least recently used", s == oldest);
    CHECK("residency-tells whom it evicted", evicted == (m->state[s] == ST_SLOT_RESIDENT ? m->key[s] : -1));
    CHECK("residency-evicted is gone", evicted < 0 || st_residency_find(r, evicted) < 0);
    CHECK("residency-not found while loading", st_residency_find(r, key) < 0);
    m->key[s]   = key;
    m->state[s] = ST_SLOT_LOADING;
    model_touch(m, s);
}

static void set_home(struct st_residency * r, struct model * m, int s, bool home) {
    st_residency_set_home(r, s, home);
    if (m->home[s] != home) {
        m->home[s] = home;
        m->used[s] = ++m->now;  // the newest of its new neighbours
    }
}

static void claim_home(struct st_residency * r, struct model * m, int s, int key) {
    int32_t evicted = 12345;
    st_residency_claim_home(r, s, key, &evicted);
    CHECK("residency-tells whom it evicted", evicted == (m->state[s] == ST_SLOT_RESIDENT ? m->key[s] : -1));
    CHECK("residency-evicted is gone", evicted < 0 || st_residency_find(r, evicted) < 0);
    CHECK("residency-not found while loading", st_residency_find(r, key) < 0);
    m->key[s]   = key;
    m->state[s] = ST_SLOT_LOADING;
    model_touch(m, s);
}

// A lent slot keeps its expert and its place, and is not found; one that comes back is LOADING as after a claim.
static void lend_or_return(struct st_residency * r, struct model * m, int s) {
    if (m->state[s] == ST_SLOT_RESIDENT) {
        st_residency_lend(r, s);
        m->state[s] = ST_SLOT_LENT;
    } else if (m->state[s] == ST_SLOT_LENT) {
        st_residency_return(r, s);
        m->state[s] = ST_SLOT_LOADING;
    } else {
        return;
    }
    CHECK("residency-not found while lent or loading", st_residency_find(r, m->key[s]) < 0);
}

static bool any_lent(const struct model * m) {
    for (int s = 0; s < m->n_slots; s++) {
        if (m->state[s] == ST_SLOT_LENT) {
            return true;
        }
    }
    return false;
}

static uint64_t life(uint64_t steps) {
    struct st_residency r;
    struct model m = { .n_keys = 1 + below(&rng, MAX_KEYS), .n_slots = 1 + below(&rng, one_in(&rng, 2) ? 4 : MAX_SLOTS) };
    const bool tidy  = !one_in(&rng, 4);  // all loads end before the next group, as the loader does it
    const bool homes = !one_in(&rng, 3);
    const bool lends = one_in(&rng, 2);
    CHECK("residency-init", st_residency_init(&r, m.n_keys, m.n_slots));
    for (int s = 0; s < m.n_slots; s++) {
        m.key[s]  = -1;
        m.used[s] = ++m.now;  // slots are first taken in order
    }
    compare(&r, &m);
    begin(&r, &m);
    uint64_t n = 0;
    for (; n < steps; n++) {
        const int key = below(&rng, m.n_keys), what = below(&rng, lends ? 24 : homes ? 19 : 16), slot = below(&rng, m.n_slots);
        const int s   = st_residency_find(&r, key), expected = model_find(&m, key);
        CHECK("residency-find", s == (expected >= 0 && m.state[expected] == ST_SLOT_RESIDENT ? expected : -1));
        if (one_in(&rng, 6)) {
            st_residency_hold(&r, slot);
            m.in_group[slot] = true;
        } else if (what == 0) {
            for (int i = 0; i < m.n_slots && tidy; i++) {
                if (m.state[i] == ST_SLOT_LOADING && !(m.home[i] && one_in(&rng, 2))) {  // a swap may go on
                    end_load(&r, &m, i);
                }
            }
            begin(&r, &m);
        } else if (what < 10) {
            if (s >= 0) {
                st_residency_touch(&r, s);
                model_touch(&m, s);
            } else if (expected < 0 && !any_lent(&m)) {
                claim(&r, &m, key);
            }
        } else if (what < 16) {
            if (expected >= 0 && m.state[expected] == ST_SLOT_LOADING) {
                end_load(&r, &m, expected);
            }
        } else if (what >= 19) {  // a few at once, or all back
            const int first = below(&rng, m.n_slots), n_slots = what == 23 ? m.n_slots : 1 + below(&rng, 3);
            for (int i = first; i < first + n_slots; i++) {
                if (what < 23 || m.state[i % m.n_slots] == ST_SLOT_LENT) {
                    lend_or_return(&r, &m, i % m.n_slots);
                }
            }
        } else if (what == 18) {
            if (s >= 0) {
                st_residency_reopen(&r, s);
                m.state[s] = ST_SLOT_LOADING;
                model_touch(&m, s);
                CHECK("residency-not found while loading", st_residency_find(&r, key) < 0);
            }
        } else {
            if (what == 16 && m.state[slot] != ST_SLOT_LOADING) {
                set_home(&r, &m, slot, one_in(&rng, 2));
            } else if (what == 17 && m.home[slot] && m.state[slot] != ST_SLOT_LOADING && !m.in_group[slot] && expected < 0 && !any_lent(&m)) {
                claim_home(&r, &m, slot, key);
            }
        }
        if (n % 32 == 0) {
            compare(&r, &m);
        }
    }
    compare(&r, &m);
    st_residency_free(&r);
    return n;
}

// In a process of its own, because it ends with an assertion.
static void claims_nothing_while_lent(void) {
    const pid_t child = fork();
    CHECK("residency-fork", child >= 0);
    if (child == 0) {
        struct st_residency r;
        int32_t evicted;
        if (freopen("/dev/null", "w", stderr) && st_residency_init(&r, 4, 2)) {
            st_residency_begin(&r);
            st_residency_publish(&r, st_residency_claim(&r, 0, &evicted));
            st_residency_lend(&r, 0);
            st_residency_begin(&r);
            (void) st_residency_claim(&r, 1, &evicted);
        }
        _exit(0);
    }
    int status = 0;
    CHECK("residency-fork", waitpid(child, &status, 0) == child);
    CHECK("residency-claims nothing while slots are lent", WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

int main(int argc, char ** argv) {
    check_start(argc, argv);
    rng = check_args.seed;
    struct st_residency r;
    CHECK("residency-init refuses nothing", !st_residency_init(&r, 0, 1) && !st_residency_init(&r, 1, 0) && !st_residency_init(&r, -1, -1));
    claims_nothing_while_lent();
    for (uint64_t done = 0; done < check_args.steps;) {
        const uint64_t left = check_args.steps - done;
        done += life(left < 5000 ? left : 5000);
    }
    printf("ok: %llu steps\n", (unsigned long long) check_args.steps);
    return 0;
}
