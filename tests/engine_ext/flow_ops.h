// What comes between layers: rounds and their swaps, policies, pre-fill, refill, the self-test, modes, the mirror.
#ifndef STRATA_FLOW_OPS_H
#define STRATA_FLOW_OPS_H

#include "flow_layer.h"
#include "flow_stream.h"

// What a graph begins with. Returns false when the world has to end.
static bool begin_round(void) {
    struct st_tier * t = &w.t;
    bool back;
    if (!give_back(&back)) {
        return false;
    }
    if (!back) {
        return true;  // the graph failed
    }
    if (t->window.rows > 0) {
        st_window_settle(&t->window, below(&rng, t->window.rows + 1));
        n_windows++;
    }
    if (one_in(&rng, 3)) {
        st_window_open(&t->window, 2 + below(&rng, ST_WINDOW_ROWS - 1));
    }
    const enum st_policy policy = t->policy;
    struct { int class_index; int32_t slot, key; } pending[ST_ADAPT_CAP];
    int32_t n_homes[2] = { 0, 0 };
    const int n_pending = t->n_pending;
    const uint64_t swaps = atomic_load(&t->swaps);
    for (int i = 0; i < n_pending; i++) {
        pending[i].class_index = t->pending[i].class_index;
        pending[i].slot        = t->pending[i].slot;
        pending[i].key         = w.classes[pending[i].class_index].residency.key_of[pending[i].slot];
    }
    for (int k = 0; k < t->n_classes; k++) {
        n_homes[k] = t->classes[k].residency.n_homes;
    }
    atomic_store(&t->phase, one_in(&rng, 4) ? ST_PHASE_PROMPT : ST_PHASE_DECODE);
    w.hot += one_in(&rng, 12);
    for (int i = below(&rng, 4); i > 0; i--) {  // hot, but not resident: as after another talk
        const struct st_class * c = &w.classes[below(&rng, t->n_classes)];
        const int32_t key         = below(&rng, c->n_keys);
        c->usage[key] += c->residency.slot_of[key] < 0 && c->mirror && c->mirror[key] ? 12 : 0;
    }
    if (one_in(&rng, 4)) {
        st_sim_fail_at(t->transport, one_in(&rng, 2) ? ST_SIM_REFUSE : ST_SIM_REFUSE_RECORD, (uint64_t) (1 + below(&rng, 3)));
    }
    ggml_backend_t compute = w.contexts[w.at].inner;
    const int result       = (t->compute != compute && change_stream(t, compute) < 0) || st_policy_round(t, compute) < 0 ? -1 : 0;
    if (st_sim_failed(t->transport)) {
        return false;
    }
    const bool refused = strstr(t->error, "a copy to slot") || strstr(t->error, "the copy stream failed");
    st_sim_fail_at(t->transport, ST_SIM_REFUSE, 0);
    st_sim_fail_at(t->transport, ST_SIM_REFUSE_RECORD, 0);
    st_error_clear(t);
    CHECK("flow-a round begins", (result == 0) == !refused);
    n_refused_swaps += result < 0;
    int n_published = 0;
    for (int i = 0; i < n_pending; i++) {  // a slot may be taken again in the same round
        struct st_class * c = &w.classes[pending[i].class_index];
        const bool same     = c->residency.key_of[pending[i].slot] == pending[i].key;
        const bool found    = same && c->residency.state[pending[i].slot] == ST_SLOT_RESIDENT;
        CHECK("flow-a round publishes only what has arrived", !found || st_sim_writing(t->transport, slot_address(c, pending[i].slot), c->stride) == 0);
        n_published += !same || found;
    }
    CHECK("flow-a round publishes all or none", n_published == 0 || n_published == n_pending);
    const uint64_t more = atomic_load(&t->swaps) - swaps;
    if (result < 0) {
        CHECK("flow-a failed round leaves no swap of its own", t->n_pending == 0 || t->n_pending == n_pending);
        check_slots();
        return true;
    }
    CHECK("flow-swaps only of the adaptive tier, in decode", more == 0 || (policy == ST_POLICY_ADAPTIVE && t->phase == ST_PHASE_DECODE));
    CHECK("flow-begins no swaps while some are pending", n_pending == n_published || (more == 0 && t->n_pending == n_pending));
    for (int k = 0; k < t->n_classes; k++) {
        CHECK("flow-homes stay homes", t->classes[k].residency.n_homes >= n_homes[k]);
    }
    n_swaps += more;
    n_copied_swaps += more > 0 ? (uint64_t) t->n_pending : 0;
    check_slots();
    return true;
}

static bool set_policy(void) {
    struct st_tier * t = &w.t;
    const enum st_policy policy = (enum st_policy) below(&rng, 3);
    int class_index[ST_ADAPT_CAP], slot[ST_ADAPT_CAP];
    const int n_pending = t->n_pending;
    for (int i = 0; i < n_pending; i++) {
        class_index[i] = t->pending[i].class_index;
        slot[i]        = t->pending[i].slot;
    }
    const int result = st_policy_set(t, policy);
    if (st_sim_failed(t->transport)) {
        return false;
    }
    CHECK("flow-a policy is set", result == 0 && t->policy == policy && t->n_pending == 0);
    for (int i = 0; i < n_pending; i++) {  // whoever reads next was not told of the copies
        const struct st_class * c = &w.classes[class_index[i]];
        CHECK("flow-a switch publishes only what has arrived", st_sim_writing(t->transport, slot_address(c, slot[i]), c->stride) == 0);
    }
    check_slots();
    return true;
}

static int steps_left;

static bool step(void * ctx, int64_t done, int64_t total) {
    CHECK("flow-pre-fill counts", ctx == &steps_left && done >= 0 && done <= total);
    return --steps_left != 0;
}

static float hidden_usage[MAX_LAYERS * MAX_EXPERTS];

static float usage_of(int k, int32_t key) {
    const struct st_group * g = &w.groups[w.key_group[k][key]];
    size_t at = 0;
    for (int i = 0; i < g - w.groups; i++) {
        at += (size_t) w.groups[i].n_experts;
    }
    return hidden_usage[at + (size_t) (key - g->first_key)];
}

// The slots that a full pre-fill leaves: of each class the hottest experts, the hottest as the newest; without a
// profile evenly over the layers.
static void check_prefilled(bool by_usage, bool stopped) {
    for (int k = 0; k < w.t.n_classes; k++) {
        const struct st_class * c     = &w.classes[k];
        const struct st_residency * r = &c->residency;
        CHECK("flow-pre-fill fills all slots", r->n_resident == c->n_slots && r->n_homes == 0);
        float coldest = -1, last = -1;
        for (int32_t s = r->newest[0]; s >= 0; s = r->older[s]) {
            const float usage = by_usage ? usage_of(k, r->key_of[s]) : 0;
            CHECK("flow-pre-fill takes the hottest last", stopped || last < 0 || usage <= last);
            last    = usage;
            coldest = coldest < 0 || usage < coldest ? usage : coldest;
        }
        int taken[MAX_LAYERS] = { 0 }, least = MAX_EXPERTS, most = 0;
        for (int32_t key = 0; key < c->n_keys; key++) {
            const struct st_group * g = &w.groups[c->key_group[key]];
            CHECK("flow-pre-fill takes the hottest", !by_usage || r->slot_of[key] >= 0 || usage_of(k, key) <= coldest);
            CHECK("flow-pre-fill hands the usage on", !by_usage || stopped || c->usage[key] == usage_of(k, key));
            taken[g - w.groups] += r->slot_of[key] >= 0;
        }
        for (int i = 0; i < w.t.n_groups; i++) {
            most = w.groups[i].class_index == k && taken[i] > most ? taken[i] : most;
        }
        for (int i = 0; i < w.t.n_groups; i++) {
            least = w.groups[i].class_index == k && taken[i] < w.groups[i].n_experts && taken[i] < least ? taken[i] : least;
        }
        CHECK("flow-pre-fill spreads over the layers", by_usage || most - least <= 1);
    }
}

// Returns false when the world has to end.
static bool prefill(void) {
    struct st_tier * t = &w.t;
    int64_t total = 0, resident = 0, before = 0;
    for (int k = 0; k < t->n_classes; k++) {
        total += t->classes[k].n_slots;
        before += t->classes[k].residency.n_resident;
    }
    const bool by_usage = one_in(&rng, 2), with_step = one_in(&rng, 2);
    for (int i = 0; i < MAX_LAYERS * MAX_EXPERTS; i++) {
        hidden_usage[i] = (float) below(&rng, 30);
    }
    steps_left    = one_in(&rng, 2) ? 1 + below(&rng, 4) : -1;
    w.read_failed = false;
    const bool had_pool = t->pool_built;
    const int64_t done  = st_prefill(t, by_usage ? hidden_usage : NULL, with_step ? step : NULL, &steps_left);
    w.cancel_in_calls   = 0;
    w.cancel_in_reads = w.fail_read_in = -1;
    const bool refused = done < 0 && strstr(t->error, "a copy to slot");
    w.n_refused += refused;
    if (st_sim_failed(t->transport)) {
        return false;
    }
    for (int k = 0; k < t->n_classes; k++) {
        resident += t->classes[k].residency.n_resident;
    }
    if (before > 0 || t->n_lent > 0) {
        CHECK("flow-pre-fill wants empty slots", done < 0 && strstr(t->error, "wants empty slots") && resident == before);
    } else if (done < 0) {
        CHECK("flow-a failed pre-fill has a cause", w.read_failed || refused || !had_pool || w.n_refused >= t->pool.n_buffers);
    } else {
        CHECK("flow-pre-fill tells how many", done == resident && t->slots_used == done && (!w.read_failed || atomic_load(&t->cancel)));
        CHECK("flow-pre-fill stops only when asked", done == total || atomic_load(&t->cancel) || (with_step && steps_left == 0));
        if (done == total) {
            check_prefilled(by_usage, with_step && steps_left == 0);
        }
        n_prefilled += (uint64_t) done;
    }
    if (had_pool) {
        check_pool();
    }
    check_slots();
    st_error_clear(t);
    atomic_store(&t->cancel, false);
    return true;
}

// Returns false when the world has to end.
static bool refill(void) {
    struct st_tier * t = &w.t;
    const int64_t most = below(&rng, 40);
    int64_t before = 0, after = 0;
    for (int k = 0; k < t->n_classes; k++) {
        before += t->classes[k].residency.n_resident;
    }
    const bool had_pool = t->pool_built;
    w.read_failed       = false;
    const int64_t done  = st_refill(t, most);
    w.cancel_in_calls   = 0;
    w.cancel_in_reads = w.fail_read_in = -1;
    const bool refused = done < 0 && strstr(t->error, "a copy to slot");
    w.n_refused += refused;
    if (st_sim_failed(t->transport)) {
        return false;
    }
    for (int k = 0; k < t->n_classes; k++) {
        after += t->classes[k].residency.n_resident;
        for (int32_t s = 0; s < t->classes[k].n_slots && done >= 0 && t->n_pending == 0; s++) {
            CHECK("flow-refill waits", t->classes[k].residency.state[s] != ST_SLOT_RESIDENT || st_sim_writing(t->transport, slot_address(&w.classes[k], s), w.classes[k].stride) == 0);
        }
    }
    if (done < 0) {
        CHECK("flow-a failed refill has a cause", w.read_failed || refused || !had_pool || w.n_refused >= t->pool.n_buffers);
    } else if (!atomic_load(&t->cancel)) {
        CHECK("flow-refill tells how many", done == (most < before ? most : before) && after == before);
    }
    check_slots();
    st_error_clear(t);
    atomic_store(&t->cancel, false);
    return true;
}

static bool selftest(void) {
    struct st_tier * t = &w.t;
    char line[256] = "";
    const bool empty = t->classes[0].residency.n_resident == 0 && t->n_lent == 0, had_pool = t->pool_built;
    const int result = st_selftest(t, line, sizeof line);
    if (st_sim_failed(t->transport)) {
        return false;
    }
    const bool refused = result < 0 && strstr(t->error, "a copy was refused");
    w.n_refused += refused;
    CHECK("flow-self-test passes when copies work", (result == 0) == (empty && had_pool && !refused));
    CHECK("flow-self-test says what it did", (line[0] != '\0') == (result == 0) && (t->error[0] == '\0') == (result == 0));
    check_pool();
    check_slots();
    st_error_clear(t);
    return true;
}

static void apply_modes(void) {
    struct st_tier * t = &w.t;
    const enum st_pin pin         = (enum st_pin) below(&rng, 3);
    const enum st_profile profile = (enum st_profile) below(&rng, 3);
    const bool refuse_pin = one_in(&rng, 3), refuse_memory = one_in(&rng, 8);
    st_sim_fail_at(t->transport, ST_SIM_PIN, refuse_pin);
    st_sim_fail_at(t->transport, ST_SIM_MEMORY, refuse_memory);
    // Floors of pinning and of the page cache are far from each other: experts are small here.
    const int64_t available = one_in(&rng, 3) ? -1 : one_in(&rng, 4) ? INT64_MAX : (int64_t) (draw(&rng) % (2 * t->blob_bytes_all));
    w.warm                  = one_in(&rng, 4) ? -1 : one_in(&rng, 2) ? 100 * below(&rng, 2) : below(&rng, 101);
    const int threads       = below(&rng, 5), result = st_pool_apply(t, pin, profile, available, threads);
    st_sim_fail_at(t->transport, ST_SIM_PIN, 0);
    st_sim_fail_at(t->transport, ST_SIM_MEMORY, 0);
    if (st_sim_failed(t->transport)) {
        st_error_clear(t);
        return;
    }
    CHECK("flow-modes fail only without memory", (result < 0) == refuse_memory && (t->error[0] != '\0') == refuse_memory);
    st_error_clear(t);
    w.n_refused = 0;
    if (result < 0) {
        return;
    }
    const size_t bytes = t->max_stride * (size_t) t->pool_buffers;
    const struct st_modes * m = &t->modes;
    CHECK("flow-modes say where the bytes are", m->pinned == (t->pool.pinned > 0) && m->pinned_bytes + m->pageable_bytes == bytes && m->pinned == (m->pinned_bytes > 0));
    CHECK("flow-automatic pinning keeps its floor", pin != ST_PIN_AUTO || available < 0 || available >= INT64_C(3) << 30 || !m->pinned);
    CHECK("flow-pinned as asked", pin == ST_PIN_ON || (pin == ST_PIN_AUTO && (available < 0 || available == INT64_MAX)) ? m->pinned == (t->transport->iface->can_pin && !refuse_pin) : pin == ST_PIN_AUTO || !m->pinned);
    CHECK("flow-a refused pin is counted and said", m->refused_bytes == (refuse_pin && t->transport->iface->can_pin && pin == ST_PIN_ON ? bytes : m->refused_bytes));
    CHECK("flow-pool size", t->pool.n_buffers == t->pool_buffers && m->pool_buffers == t->pool_buffers);
    struct st_stager_state state;
    st_pool_state(t, &state);
    CHECK("flow-the stager is as asked", (profile == ST_PROFILE_AUTO || state.profile == profile) && (threads ? state.threads == threads : state.threads >= 1));
    CHECK("flow-past the page cache where the experts do not fit", m->direct_reason[0] ? available >= 0 && (double) available < 1.05 * (double) t->blob_bytes_all
                                                                                      : available < 0 || (double) available >= (double) t->blob_bytes_all - (double) t->mirror.bytes);
}

static void fill_mirror(void) {
    struct st_tier * t = &w.t;
    if (one_in(&rng, 6)) {
        st_sim_fail_at(t->transport, one_in(&rng, 2) ? ST_SIM_PIN : ST_SIM_MEMORY, 1);
    }
    w.filling_mirror = true;
    w.read_failed    = false;
    w.fail_read_in   = one_in(&rng, 6) ? 1 + below(&rng, 20) : -1;
    const int64_t left = st_mirror_fill(t, w.mirror_limit, 1 + below(&rng, 8));
    w.filling_mirror   = false;
    w.fail_read_in     = -1;
    st_sim_fail_at(t->transport, ST_SIM_PIN, 0);
    st_sim_fail_at(t->transport, ST_SIM_MEMORY, 0);
    CHECK("flow-mirror fails only with a read", (left < 0) == w.read_failed && (t->error[0] != '\0') == w.read_failed);
    CHECK("flow-mirror stays below its limit", t->mirror.bytes <= w.mirror_limit);
    CHECK("flow-no fill is left running", st_stager_open(&t->stager) == 0);
    st_error_clear(t);
}

#endif
