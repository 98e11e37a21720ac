#include "adapt.h"

#include <assert.h>

struct ranked {
    float usage;
    int32_t item;
};

// Keeps the `cap` first of what is offered, in order: `sign` 1: largest usage first, -1: smallest first.
static void offer(struct ranked * list, int * n, int cap, float sign, struct ranked x) {
    if (*n == cap && sign * x.usage <= sign * list[cap - 1].usage) {
        return;  // the usual case: most experts are neither hot nor cold enough
    }
    int at = *n < cap ? (*n)++ : cap - 1;
    while (at > 0 && sign * x.usage > sign * list[at - 1].usage) {
        list[at] = list[at - 1];
        at--;
    }
    list[at] = x;
}

int st_adapt_plan(const struct st_residency * r, float * usage, const struct st_adapt_rule * rule, struct st_swap * swaps) {
    assert(rule->cap >= 0 && rule->cap <= ST_ADAPT_CAP);
    struct ranked hot[ST_ADAPT_CAP], cold[ST_ADAPT_CAP];
    int n_hot = 0, n_cold = 0, n = 0;
    if (rule->cap > 0) {
        for (int32_t k = 0; k < r->n_keys; k++) {
            const int32_t s = r->slot_of[k];
            if (s >= 0 && r->home[s]) {
                if (r->state[s] == ST_SLOT_RESIDENT) {
                    offer(cold, &n_cold, rule->cap, -1, (struct ranked) { usage[k], s });
                }
            } else if (usage[k] >= rule->minimum && (s < 0 || r->state[s] == ST_SLOT_RESIDENT)) {
                offer(hot, &n_hot, rule->cap, 1, (struct ranked) { usage[k], k });
            }
        }
    }
    while (n < n_hot && n < n_cold && hot[n].usage >= cold[n].usage + rule->margin) {
        swaps[n] = (struct st_swap) { hot[n].item, cold[n].item };
        n++;
    }
    for (int32_t k = 0; k < r->n_keys; k++) {
        usage[k] *= rule->decay;
    }
    return n;
}
