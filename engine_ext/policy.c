// The residency policy: which slots are homes, and the swaps of the adaptive tier.
#include "tier.h"

#define ADAPT_EVERY 4  // rounds
static const struct st_adapt_rule rule = { .decay = 0.7f, .margin = 1.5f, .minimum = 2.0f, .cap = 32 };

void st_trace_add(struct st_tier * t, struct st_class * c, int32_t slot, char what, int32_t key) {
    struct st_trace * trace = &c->traces[slot];
    const uint32_t i = trace->n++ % ST_TRACE;
    trace->entry[i].round = t->round;
    trace->entry[i].key   = key;
    trace->entry[i].what  = what;
}

// Guests need room for what one layer's batch misses; the rest are homes.
static int32_t guest_slots(const struct st_class * c) {
    const int32_t share = c->n_slots / 8;
    return share > c->min_slots ? share : c->min_slots < c->n_slots ? c->min_slots : c->n_slots;
}

// The most recently used residents become homes until there are enough: the guests keep the oldest slots, and
// those that are still empty.
static void find_homes(struct st_tier * t) {
    for (int k = 0; k < t->n_classes; k++) {
        struct st_residency * r = &t->classes[k].residency;
        const int32_t homes = r->n_slots - guest_slots(&t->classes[k]);
        for (int32_t s = r->newest[0]; s >= 0 && r->n_homes < homes;) {
            const int32_t next = r->older[s];
            if (r->state[s] == ST_SLOT_RESIDENT) {
                st_residency_set_home(r, s, true);
            }
            s = next;
        }
    }
}

int st_policy_set(struct st_tier * t, enum st_policy policy) {
    if (st_policy_finish(t, NULL) < 0) {
        return -1;
    }
    for (int k = 0; k < t->n_classes; k++) {
        struct st_residency * r = &t->classes[k].residency;
        if (t->classes[k].n_slots == 0) {
            return st_fail(t, "the slots were not allocated");
        }
        for (int32_t s = 0; policy == ST_POLICY_LRU && s < r->n_slots; s++) {
            st_residency_set_home(r, s, false);
        }
    }
    if (policy != ST_POLICY_LRU) {
        find_homes(t);
    }
    t->policy = policy;
    return 0;
}

int st_policy_finish(struct st_tier * t, ggml_backend_t compute) {
    if (t->n_pending == 0) {
        return 0;
    }
    const struct st_transport_i * io = t->transport->iface;
    const int r = compute ? io->compute_waits(t->transport, compute, t->swap_event) : io->wait(t->transport, t->swap_event);
    if (r < 0 || io->record(t->transport, t->group_event) < 0) {  // which stands behind all that a stream may find, see change_stream
        return st_fail(t, "the copy stream failed");
    }
    t->loaded = true;
    for (int i = 0; i < t->n_pending; i++) {
        struct st_class * c = &t->classes[t->pending[i].class_index];
        st_residency_publish(&c->residency, t->pending[i].slot);
        st_trace_add(t, c, t->pending[i].slot, 'p', c->residency.key_of[t->pending[i].slot]);
    }
    t->n_pending = 0;
    return 0;
}

// One swap. A newcomer that is resident as a guest changes places with the home without a copy; one that is
// only in the mirror is copied into the home's slot, beside the next round. One that is nowhere but in the file
// waits until it is picked: then it comes as a guest. Returns 1 swapped, 0 not now, -1 failed.
static int swap(struct st_tier * t, int class_index, const struct st_swap * s) {
    struct st_class * c     = &t->classes[class_index];
    struct st_residency * r = &c->residency;
    const int32_t guest = st_residency_find(r, s->key);
    if (guest >= 0) {
        st_residency_set_home(r, guest, true);
        st_residency_set_home(r, s->home, false);
        st_trace_add(t, c, guest, 'h', s->key);
        st_trace_add(t, c, s->home, 'g', r->key_of[s->home]);
        return 1;
    }
    if (!c->mirror || !c->mirror[s->key] || t->n_pending == ST_ADAPT_CAP) {
        return 0;
    }
    int32_t evicted;
    st_residency_claim_home(r, s->home, s->key, &evicted);
    st_trace_add(t, c, s->home, 'c', s->key);
    t->pending[t->n_pending].class_index = class_index;
    t->pending[t->n_pending++].slot      = s->home;
    return st_queue_blob(t, c, s->home, c->mirror[s->key]) < 0 ? -1 : 1;
}

int st_policy_round(struct st_tier * t, ggml_backend_t compute) {
    const struct st_transport_i * io = t->transport->iface;
    t->round++;
    if (t->n_pending > 0) {
        const int done = io->query(t->transport, t->swap_event);
        if (done < 0) {
            return st_fail(t, "the copy stream failed");
        }
        if (!done) {
            return 0;  // their slots are not found meanwhile
        }
        if (st_policy_finish(t, compute) < 0) {
            return -1;
        }
    }
    if (t->policy != ST_POLICY_LRU && t->round % ADAPT_EVERY == 0) {
        find_homes(t);
    }
    if (t->policy != ST_POLICY_ADAPTIVE || t->round % ADAPT_EVERY != 0 || atomic_load_explicit(&t->phase, memory_order_relaxed) != ST_PHASE_DECODE) {
        return 0;
    }
    const uint64_t start = st_now_ns();
    // WAR: a home's slot may still be read by work queued on the compute stream.
    int result = io->copies_wait(t->transport, compute) < 0 ? st_fail(t, "the copy stream failed") : 0;
    uint64_t swaps = 0;
    for (int k = 0; k < t->n_classes && result == 0; k++) {
        struct st_swap list[ST_ADAPT_CAP];
        const int n = st_adapt_plan(&t->classes[k].residency, t->classes[k].usage, &rule, list);
        for (int i = 0; i < n && result >= 0; i++) {
            result = swap(t, k, &list[i]);
            swaps += result > 0;
        }
        result = result < 0 ? -1 : 0;
    }
    if (t->n_pending > 0 && io->record(t->transport, t->swap_event) < 0) {
        result = st_fail(t, "the copy stream failed");
    }
    // A refused copy, or no event behind them: none of these may be published. What was queued all the same still
    // runs, but before any later copy to these slots.
    for (; result < 0 && t->n_pending > 0; t->n_pending--) {
        struct st_class * c = &t->classes[t->pending[t->n_pending - 1].class_index];
        const int32_t slot  = t->pending[t->n_pending - 1].slot;
        st_trace_add(t, c, slot, 'a', c->residency.key_of[slot]);
        st_residency_abandon(&c->residency, slot);
    }
    atomic_fetch_add_explicit(&t->swaps, swaps, memory_order_relaxed);
    atomic_fetch_add_explicit(&t->swap_rounds, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&t->swap_ns, st_now_ns() - start, memory_order_relaxed);
    return result;
}
