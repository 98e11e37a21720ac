// Windows of drafts over some layers: who is in which place of the order of use afterwards, and what counts as usage,
// against what the tokens say. A token is a list of experts for each layer; nobody here knows of bits.
#include "check.h"
#include "window.h"

#define LAYERS 6
#define EXPERTS 10
#define KEYS (LAYERS * EXPERTS)
#define MAX_SLOTS 48
#define ROWS 9
#define MOST_PICKS (LAYERS * EXPERTS)

static uint64_t rng;
static uint64_t n_rejected, n_evicted_early, n_held, n_kept_homes;

struct token {
    bool picks[LAYERS][EXPERTS];
};

static struct st_residency r;
static struct st_window window;
static float usage[KEYS];
static int n_layers, n_experts, n_used, n_slots;

static int key_of(int layer, int expert) {
    return layer * n_experts + expert;
}

static void make_token(struct token * t) {
    memset(t, 0, sizeof *t);
    for (int l = 0; l < n_layers; l++) {
        for (int n = 0; n < n_used;) {
            bool * pick = &t->picks[l][below(&rng, n_experts)];
            n += !*pick;
            *pick = true;
        }
    }
}

// One layer: what any token picks becomes resident. Appends keys to `seen`.
static int layer(int l, const struct token * tokens, int rows, int32_t * seen, int n_seen) {
    int order[EXPERTS], n = 0;
    uint32_t bits[EXPERTS] = { 0 };
    for (int t = 0; t < rows; t++) {
        for (int e = 0; e < n_experts; e++) {
            if (tokens[t].picks[l][e]) {
                if (!bits[e]) {
                    order[n++] = e;
                }
                bits[e] |= UINT32_C(1) << t;
            }
        }
    }
    st_residency_begin(&r);
    int32_t slot[EXPERTS];
    const int first = n_seen;
    for (int i = 0; i < n; i++) {
        const int e = order[i];
        slot[i]     = st_residency_find(&r, key_of(l, e));
        if (slot[i] >= 0) {
            const int32_t newer = r.newer[slot[i]], older = r.older[slot[i]];
            st_window_hit(&r, slot[i], rows > 1 ? bits[e] : 1);
            if (tokens[0].picks[l][e]) {
                CHECK("window-the first token's picks are the last used", r.newest[r.home[slot[i]]] == slot[i]);
            } else {
                CHECK("window-drafts change no place", r.newer[slot[i]] == newer && r.older[slot[i]] == older);
            }
            n_held += rows > 1 && !tokens[0].picks[l][e];
        }
        seen[n_seen++] = key_of(l, e);
        if (rows > 1) {
            CHECK("window-holds its own batch", st_window_holds(&window, rows) && !st_window_holds(&window, rows + 1));
            const struct st_window_pick pick = { &r, usage, key_of(l, e), bits[e] };
            CHECK("window-notes", st_window_note(&window, &pick));
        } else {
            usage[key_of(l, e)]++;
        }
    }
    for (int i = 0; i < n; i++) {
        if (slot[i] < 0) {
            int32_t evicted;
            slot[i] = st_residency_claim(&r, key_of(l, order[i]), &evicted);
            CHECK("window-a layer has room", slot[i] >= 0);
            for (int k = 0; k < first && evicted >= 0; k++) {
                n_evicted_early += seen[k] == evicted;
            }
            st_residency_publish(&r, slot[i]);
        }
    }
    for (int i = 0; i < n; i++) {
        CHECK("window-what a layer picks stays while it runs", st_residency_find(&r, key_of(l, order[i])) == slot[i]);
    }
    return n_seen;
}

static int guests(int32_t * keys) {  // oldest first, empty slots left out
    int n = 0;
    for (int32_t s = r.oldest[0]; s >= 0; s = r.newer[s]) {
        if (r.key_of[s] >= 0) {
            keys[n++] = r.key_of[s];
        }
    }
    return n;
}

static bool stands(const struct token * tokens, int stand, int32_t key) {
    for (int t = 0; t < stand; t++) {
        if (tokens[t].picks[key / n_experts][key % n_experts]) {
            return true;
        }
    }
    return false;
}

static void pass(int rows) {
    struct token tokens[ROWS];
    int32_t seen[MOST_PICKS];  // picks of the window, in the order in which layers and experts came
    int n_seen = 0;
    for (int t = 0; t < rows; t++) {
        if (t > 0 && one_in(&rng, 3)) {
            tokens[t] = tokens[t - 1];  // as tokens that follow each other often do
        } else {
            make_token(&tokens[t]);
        }
    }
    float usage_before[KEYS];
    int32_t before[MAX_SLOTS];
    memcpy(usage_before, usage, sizeof usage);
    const int n_before = guests(before);
    if (rows > 1) {
        st_window_open(&window, rows);
    }
    const int done = one_in(&rng, 8) ? below(&rng, n_layers) : n_layers;  // cancelled between two layers
    for (int l = 0; l < done; l++) {
        n_seen = layer(l, tokens, rows, seen, n_seen);
    }
    if (rows == 1) {
        return;
    }
    const int stand = done < n_layers || one_in(&rng, 8) ? 0 : 1 + below(&rng, rows);
    st_window_settle(&window, stand);
    CHECK("window-is over", !st_window_holds(&window, rows) && window.n == 0);

    // Usage: of the tokens that stand, each pick once, up to a limit for all of them together.
    for (int32_t key = 0; key < n_layers * n_experts; key++) {
        int picks = 0;
        for (int t = 0; t < stand; t++) {
            picks += tokens[t].picks[key / n_experts][key % n_experts];
        }
        picks = picks < ST_USAGE_MOST ? picks : ST_USAGE_MOST;
        CHECK("window-usage counts what stands", usage[key] == usage_before[key] + (float) picks);
    }

    // The order: what was not picked, as before; what only rejected tokens picked; what tokens that stand picked.
    int32_t now[MAX_SLOTS], expected[MAX_SLOTS];
    int n = 0;
    for (int i = 0; i < n_before; i++) {
        bool picked = false;
        for (int k = 0; k < n_seen; k++) {
            picked = picked || seen[k] == before[i];
        }
        if (!picked && st_residency_find(&r, before[i]) >= 0) {
            expected[n++] = before[i];
        }
    }
    for (int last = 0; last < 2; last++) {
        for (int i = 0; i < n_seen; i++) {
            const int32_t slot = st_residency_find(&r, seen[i]);
            if (slot >= 0 && stands(tokens, stand, seen[i]) == last) {
                if (!r.home[slot]) {
                    expected[n++] = seen[i];
                }
                n_rejected += !last;
                n_kept_homes += r.home[slot];
            }
        }
    }
    CHECK("window-nobody is lost", guests(now) == n);
    for (int i = 0; i < n; i++) {
        CHECK("window-order", now[i] == expected[i]);
    }
}

static uint64_t life(uint64_t steps) {
    n_layers  = 1 + below(&rng, LAYERS);
    n_experts = 4 + below(&rng, EXPERTS - 3);
    n_used    = 1 + below(&rng, 3);
    // Guests' slots for all that one layer can pick at once; some windows of many rows do not fit, and are not tried.
    n_slots = n_experts + below(&rng, MAX_SLOTS - n_experts + 1);
    memset(usage, 0, sizeof usage);
    CHECK("window-init", st_residency_init(&r, n_layers * n_experts, n_slots));
    uint64_t n = 0;
    for (; n < steps; n++) {
        const int what = below(&rng, 6);
        if (what == 0 && r.n_homes < n_slots - n_experts) {
            const int32_t slot = below(&rng, n_slots);
            if (r.state[slot] == ST_SLOT_RESIDENT) {
                st_residency_set_home(&r, slot, !r.home[slot]);
            }
        } else {
            pass(what < 3 ? 1 : 2 + below(&rng, ROWS - 1));
        }
    }
    st_residency_free(&r);
    st_window_free(&window);
    return n;
}

int main(int argc, char ** argv) {
    check_start(argc, argv);
    rng = check_args.seed;
    for (uint64_t done = 0; done < check_args.steps;) {
        const uint64_t left = check_args.steps - done;
        done += life(left < 300 ? left : 300);
    }
    CHECK("window-all kinds of picks were seen", check_args.steps < 1000 || (n_rejected && n_evicted_early && n_held && n_kept_homes));
    printf("ok: %llu steps; picked by rejected tokens alone %llu, evicted within a window %llu, held %llu\n", (unsigned long long) check_args.steps,
           (unsigned long long) n_rejected, (unsigned long long) n_evicted_early, (unsigned long long) n_held);
    return 0;
}
