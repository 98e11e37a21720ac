// What holds between any two calls, and one layer of a batch that decodes.
#ifndef STRATA_FLOW_LAYER_H
#define STRATA_FLOW_LAYER_H

#include "flow_world.h"

static void check_pool(void) {
    int n_lost_buffers = 0;
    for (int b = 0; b < w.t.pool.n_buffers; b++) {
        const enum st_stage_state s = w.t.pool.buffers[b].state;
        CHECK("flow-no buffer is left FILLING or READY", s == ST_STAGE_FREE || s == ST_STAGE_IN_FLIGHT);
        n_lost_buffers += s == ST_STAGE_IN_FLIGHT && !w.t.pool.buffers[b].recorded;
    }
    CHECK("flow-a buffer is lost only to a failed copy", st_sim_failed(w.t.transport) || n_lost_buffers <= w.n_refused);
    CHECK("flow-no fill is left running", st_stager_open(&w.t.stager) == 0);
}

// What holds between any two calls, whatever went wrong before.
static void check_slots(void) {
    const struct st_tier * t = &w.t;
    int n_loading = 0;
    for (int k = 0; k < t->n_classes; k++) {
        const struct st_class * c     = &w.classes[k];
        const struct st_residency * r = &c->residency;
        const int32_t share = c->n_slots / 8, guests_least = share > c->min_slots ? share : c->min_slots < c->n_slots ? c->min_slots : c->n_slots;
        CHECK("flow-homes leave room for guests", r->n_homes <= c->n_slots - guests_least);
        CHECK("flow-no homes with plain LRU", t->policy != ST_POLICY_LRU || r->n_homes == 0);
        for (int32_t s = 0; s < c->n_slots; s++) {
            const struct st_trace * trace = &c->traces[s];
            const char what = trace->n ? trace->entry[(trace->n - 1) % ST_TRACE].what : 0;
            if (r->state[s] == ST_SLOT_LOADING) {
                bool pending = false;
                for (int i = 0; i < t->n_pending; i++) {
                    pending = pending || (t->pending[i].class_index == k && t->pending[i].slot == s);
                }
                CHECK("flow-what is LOADING is a pending swap", pending && r->home[s]);
                n_loading++;
            }
            CHECK("flow-what is LENT is the ring's", r->state[s] != ST_SLOT_LENT || (k == t->lent_class && s < t->n_lent));
            CHECK("flow-a home is not empty", r->state[s] != ST_SLOT_FREE || !r->home[s]);
            CHECK("flow-the trace ends with what is", r->state[s] == ST_SLOT_RESIDENT  ? what == 'p' || what == 'h' || what == 'g'
                                                      : r->state[s] == ST_SLOT_LOADING ? what == 'c'
                                                      : r->state[s] == ST_SLOT_LENT    ? what == 'l'
                                                                                       : what == 'a' || !trace->n);
            CHECK("flow-the trace names the expert", r->key_of[s] < 0 || trace->entry[(trace->n - 1) % ST_TRACE].key == r->key_of[s]);
        }
    }
    CHECK("flow-what is LOADING is a pending swap", n_loading == t->n_pending);
}

// One layer's batch, in as many passes as it takes (as run_split). Returns false when the world has to end.
static bool layer(const struct st_group * g) {
    struct st_tier * t   = &w.t;
    struct st_class * c  = &w.classes[g->class_index];
    struct st_backend * b = &w.contexts[w.at];
    const int n          = w.wanted >= 0 && w.alone ? 1 : one_in(&rng, 4) ? 1 + below(&rng, g->n_experts) : g->n_used;
    struct picks p       = { .group = g, .class_ = c, .n_distinct = n, .tokens = t->window.rows > 0 ? t->window.rows : 1 };
    for (int i = 0; i < g->n_experts; i++) {
        const int k = below(&rng, i + 1);
        b->order[i] = b->order[k];
        b->order[k] = i;
    }
    for (int i = 0; i < g->n_used; i++) {  // some are picked more often than others
        const int32_t e = (w.hot + i) % g->n_experts;
        const bool picked = one_in(&rng, 2);
        for (int k = i; k < g->n_experts; k++) {
            if (picked && b->order[k] == e) {
                b->order[k] = b->order[i];
                b->order[i] = e;
            }
        }
    }
    for (int k = 0; k < g->n_experts; k++) {
        if (b->order[k] == w.wanted) {
            b->order[k] = b->order[0];
            b->order[0] = w.wanted;
            w.wanted    = -1;
        }
    }
    for (int i = 0; i < n; i++) {
        b->count[b->order[i]] = 1 + below(&rng, n == g->n_used ? 4 : 12);
        b->rows[b->order[i]]  = 1 + (uint32_t) below(&rng, (1 << p.tokens) - 1);
    }
    int32_t end = 0;
    for (int32_t first = 0; first < n; first = end) {
        int32_t left = st_room(&p);
        for (end = first; end < n && (left -= st_guests(b, &p, end, end + 1)) >= 0; end++) {
        }
        CHECK("flow-room for one at least", end > first);
        n_splits += first > 0;
        const bool had_pool = t->pool_built;
        bool missed[MAX_EXPERTS];
        int n_missed = 0;
        for (int32_t i = first; i < end; i++) {
            const int32_t key = g->first_key + b->order[i], s = c->residency.slot_of[key];
            missed[i] = s < 0;
            n_missed += s < 0;
            w.awaited = w.awaited || (s >= 0 && c->residency.state[s] == ST_SLOT_LOADING);
        }
        w.read_failed = false;
        const int result = st_make_resident(b, &p, first, end, first == 0);
        w.cancel_in_calls = 0;
        w.cancel_in_reads = w.fail_read_in = -1;
        const bool refused = result < 0 && strstr(t->error, "a copy to slot");
        w.n_refused += refused;
        if (had_pool) {
            check_pool();
        }
        for (int32_t i = first; i < end && result == 0; i++) {
            const int32_t e = b->order[i], key = g->first_key + e;
            CHECK("flow-published when all is well, else not", b->slot[e] >= 0 && st_residency_find(&c->residency, key) == b->slot[e]);
            for (int32_t k = first; k < i; k++) {
                CHECK("flow-one slot, one expert", b->slot[e] != b->slot[b->order[k]]);
            }
        }
        for (int32_t i = first; i < end && result != 0; i++) {
            CHECK("flow-published when all is well, else not", !missed[i] || c->residency.slot_of[g->first_key + b->order[i]] < 0);
        }
        for (int32_t s = 0; s < c->n_slots && result != 0 && !st_sim_failed(t->transport); s++) {
            CHECK("flow-a slot that was given up does not change any more",
                  c->residency.state[s] != ST_SLOT_FREE || st_sim_writing(t->transport, slot_address(c, s), c->stride) == 0);
        }
        check_slots();
        if (result == 0) {
            CHECK("flow-no success with a failed read", !w.read_failed);
            CHECK("flow-no error text without a failure", t->error[0] == '\0');
            read_experts(b, g, first, end);
            n_loaded += (uint64_t) n_missed;
            n_hits += (uint64_t) (end - first - n_missed);
        } else if (result == 1) {
            CHECK("flow-cancelled only when asked", atomic_load(&t->cancel));
            n_cancelled++;
            break;
        } else {
            CHECK("flow-result", result == -1);
            CHECK("flow-a failure says why", t->error[0] != '\0');
            CHECK("flow-a failure has a cause", w.read_failed || st_sim_failed(t->transport) || refused || !had_pool || w.n_refused >= t->pool.n_buffers);
            CHECK("flow-names the file", !w.read_failed || refused || st_sim_failed(t->transport) || strstr(t->error, "could not be read from the file"));
            n_failed_reads += w.read_failed;
            break;
        }
    }
    st_error_clear(t);
    atomic_store(&t->cancel, false);
    return !st_sim_failed(t->transport);
}

#endif
