// The plan of the adaptive tier against a naive reference that sorts everything; and that it comes to rest.
#include "adapt.h"
#include "check.h"

#define MAX_KEYS 200
#define MAX_SLOTS 96

struct entry {
    float usage;
    int32_t key, slot;
};

static uint64_t rng;
static uint64_t n_planned, n_full, n_quiet;

static int by_usage(const void * a, const void * b) {  // coldest first, equals by key
    const struct entry * x = a, * y = b;
    return x->usage != y->usage ? (x->usage < y->usage ? -1 : 1) : x->key < y->key ? -1 : x->key > y->key;
}

static int by_heat(const void * a, const void * b) {  // hottest first, equals by key
    const struct entry * x = a, * y = b;
    return x->usage != y->usage ? (x->usage > y->usage ? -1 : 1) : x->key < y->key ? -1 : x->key > y->key;
}

// Sorts all homes and all others, pairs them up, and stops at the first pair that is not worth it.
static int naive(const struct st_residency * r, const float * usage, const struct st_adapt_rule * rule, struct st_swap * swaps) {
    struct entry hot[MAX_KEYS], cold[MAX_KEYS];
    int n_hot = 0, n_cold = 0, n = 0;
    for (int32_t k = 0; k < r->n_keys; k++) {
        int32_t slot = -1;
        for (int32_t s = 0; s < r->n_slots; s++) {
            slot = r->key_of[s] == k ? s : slot;
        }
        if (slot >= 0 && r->state[slot] == ST_SLOT_LOADING) {
            continue;
        }
        if (slot >= 0 && r->home[slot]) {
            cold[n_cold++] = (struct entry) { usage[k], k, slot };
        } else {
            hot[n_hot++] = (struct entry) { usage[k], k, slot };
        }
    }
    qsort(hot, (size_t) n_hot, sizeof *hot, by_heat);
    qsort(cold, (size_t) n_cold, sizeof *cold, by_usage);
    while (n < rule->cap && n < n_hot && n < n_cold && hot[n].usage >= rule->minimum && hot[n].usage >= cold[n].usage + rule->margin) {
        swaps[n] = (struct st_swap) { hot[n].key, cold[n].slot };
        n++;
    }
    return n;
}

// Slots in all states, homes and guests.
static void make(struct st_residency * r, int n_keys, int n_slots, bool loading) {
    CHECK("adapt-init", st_residency_init(r, n_keys, n_slots));
    st_residency_begin(r);
    for (int i = 0; i < n_slots; i++) {
        const int32_t key = below(&rng, n_keys);
        int32_t evicted;
        if (one_in(&rng, 8) || r->slot_of[key] >= 0) {
            continue;  // slots stay free
        }
        const int32_t s = st_residency_claim(r, key, &evicted);
        CHECK("adapt-init", s >= 0);
        if (!loading || !one_in(&rng, 5)) {
            st_residency_publish(r, s);
        }
        st_residency_set_home(r, s, !one_in(&rng, 4));
    }
}

static void against_reference(void) {
    struct st_residency r;
    struct st_swap got[ST_ADAPT_CAP], expected[ST_ADAPT_CAP];
    float usage[MAX_KEYS], before[MAX_KEYS];
    const int n_keys = 1 + below(&rng, one_in(&rng, 2) ? 12 : MAX_KEYS), n_slots = 1 + below(&rng, one_in(&rng, 2) ? 8 : MAX_SLOTS);
    make(&r, n_keys, n_slots, true);
    const bool equals = one_in(&rng, 2);  // few different numbers, so that many are equal and many just at the margin
    for (int k = 0; k < n_keys; k++) {
        usage[k] = before[k] = equals ? 0.5f * (float) below(&rng, 12) : (float) below(&rng, 1 << 20) / 65536;
    }
    static const int caps[] = { 0, 1, 2, 5, 32, ST_ADAPT_CAP };
    const struct st_adapt_rule rule = { .decay = 0.125f * (float) below(&rng, 9), .margin = 0.5f * (float) below(&rng, 6), .minimum = 0.5f * (float) below(&rng, 8),
                                        .cap = caps[below(&rng, 6)] };
    const int n = st_adapt_plan(&r, usage, &rule, got), want = naive(&r, before, &rule, expected);
    CHECK("adapt-at most the cap", n <= rule.cap);
    for (int i = 0; i < n; i++) {
        const int32_t s = r.slot_of[got[i].key], key = r.key_of[got[i].home];
        CHECK("adapt-leaves alone what is LOADING", r.state[got[i].home] == ST_SLOT_RESIDENT && (s < 0 || r.state[s] == ST_SLOT_RESIDENT));
        CHECK("adapt-exchanges homes for what has none", r.home[got[i].home] && (s < 0 || !r.home[s]));
        CHECK("adapt-a newcomer has the least usage", before[got[i].key] >= rule.minimum);
        CHECK("adapt-a newcomer leads by the margin", before[got[i].key] >= before[key] + rule.margin);
        CHECK("adapt-hottest for coldest", i >= want || (got[i].key == expected[i].key && got[i].home == expected[i].home));
    }
    CHECK("adapt-as many as are worth it", n == want);
    for (int k = 0; k < n_keys; k++) {
        CHECK("adapt-usage decays", usage[k] == before[k] * rule.decay);
    }
    n_planned += (uint64_t) n;
    n_full += n > 0 && n == rule.cap;
    st_residency_free(&r);
}

// Usage that keeps to a level of each expert, within less than half the margin: each swap must raise the level of
// the homes, so that nothing goes back and forth, and it ends.
static void comes_to_rest(void) {
    struct st_residency r;
    struct st_swap swaps[ST_ADAPT_CAP];
    float level[MAX_KEYS], usage[MAX_KEYS];
    const int n_keys = 2 + below(&rng, 60), n_slots = 1 + below(&rng, 24);
    const struct st_adapt_rule rule = { .decay = 0.7f, .margin = 1.5f, .minimum = (float) below(&rng, 3), .cap = 1 + below(&rng, 32) };
    make(&r, n_keys, n_slots, false);
    for (int k = 0; k < n_keys; k++) {
        level[k] = (float) below(&rng, one_in(&rng, 2) ? 4 : 40);
    }
    int total = 0, quiet = 0;
    for (int round = 0; round < 40; round++) {
        for (int k = 0; k < n_keys; k++) {
            usage[k] = level[k] + 0.7f * (float) below(&rng, 1024) / 1024;
        }
        const int n = st_adapt_plan(&r, usage, &rule, swaps);
        for (int i = 0; i < n; i++) {
            const int32_t guest = st_residency_find(&r, swaps[i].key), old = r.key_of[swaps[i].home];
            CHECK("adapt-never goes back", level[swaps[i].key] > level[old]);
            if (guest >= 0) {
                st_residency_set_home(&r, guest, true);
                st_residency_set_home(&r, swaps[i].home, false);
            } else {
                int32_t evicted;
                st_residency_begin(&r);
                st_residency_claim_home(&r, swaps[i].home, swaps[i].key, &evicted);
                st_residency_publish(&r, swaps[i].home);
            }
        }
        total += n;
        quiet = n > 0 ? 0 : quiet + 1;
    }
    CHECK("adapt-comes to rest", total <= r.n_homes * (n_keys - 1));
    n_quiet += quiet >= 8;
    st_residency_free(&r);
}

int main(int argc, char ** argv) {
    check_start(argc, argv);
    rng = check_args.seed;
    uint64_t n_rest = 0;
    for (uint64_t i = 0; i < check_args.steps; i++) {
        if (one_in(&rng, 8)) {
            comes_to_rest();
            n_rest++;
        } else {
            against_reference();
        }
    }
    CHECK("adapt-all kinds of plans were seen", check_args.steps < 1000 || (n_planned && n_full && n_quiet * 10 > n_rest * 9));
    printf("ok: %llu steps; %llu swaps planned, %llu plans at the cap, at rest %llu of %llu\n", (unsigned long long) check_args.steps,
           (unsigned long long) n_planned, (unsigned long long) n_full, (unsigned long long) n_quiet, (unsigned long long) n_rest);
    return 0;
}
