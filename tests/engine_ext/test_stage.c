// The stage pool on the simulated transport, with failures: against a model of its states, and against the
// simulation, which knows when a copy has really ended.
#include "check.h"
#include "stage.h"
#include "transport_sim.h"

#define MAX_BUFFERS 16
#define BYTES 64
#define SLOTS 6
#define MAX_COPIES 3

struct model {
    enum st_stage_state state[MAX_BUFFERS];
    bool recorded[MAX_BUFFERS];
    uint64_t queued[MAX_BUFFERS];
    uint64_t n_queued;
    uint8_t fill[MAX_BUFFERS];
    bool refused;  // a copy was refused: what the slots hold is unknown
    uint8_t in_slot[SLOTS][BYTES];  // what is there when everything has ended
};

static enum st_sim_call armed;  // the failure that was put in
static uint64_t rng;
static const int pool_sizes[] = { 1, 2, 3, 4, 16 };
static const size_t slab_sizes[] = { 0, 1, BYTES, 2 * BYTES + 1, 3 * BYTES, 5 * BYTES - 1, SIZE_MAX };
static uint8_t arena[SLOTS][BYTES];

static int count(const struct st_stage_pool * p, const struct model * m, enum st_stage_state state, bool recorded) {
    int n = 0;
    for (int b = 0; b < p->n_buffers; b++) {
        n += m->state[b] == state && m->recorded[b] == recorded;
    }
    return n;
}

static int pick(const struct st_stage_pool * p, const struct model * m, enum st_stage_state state) {
    const int first = below(&rng, p->n_buffers);
    for (int i = 0; i < p->n_buffers; i++) {
        const int b = (first + i) % p->n_buffers;
        if (m->state[b] == state) {
            return b;
        }
    }
    return -1;
}

static bool still_copied(const struct st_stage_pool * p, int b) {
    return st_sim_reading(p->transport, p->buffers[b].data, p->buffer_size) > 0;
}

// The pool's states follow the model's. A buffer in flight may have been found complete in the meantime, but
// only if it is.
static void compare(const struct st_stage_pool * p, struct model * m) {
    for (int b = 0; b < p->n_buffers; b++) {
        if (m->state[b] == ST_STAGE_IN_FLIGHT && p->buffers[b].state == ST_STAGE_FREE) {
            CHECK("stage-a failed copy never frees its buffer", m->recorded[b]);
            CHECK("stage-free means that the copy has ended", !still_copied(p, b));
            m->state[b]    = ST_STAGE_FREE;
            m->recorded[b] = false;
        }
        CHECK("stage-states", p->buffers[b].state == m->state[b]);
        CHECK("stage-recorded", p->buffers[b].recorded == m->recorded[b]);
    }
}

static void claim(struct st_stage_pool * p, struct model * m) {
    const int free_before = count(p, m, ST_STAGE_FREE, false);
    const int b = st_stage_try_claim(p);
    if (b == -2) {
        CHECK("stage-fails only with the transport", st_sim_failed(p->transport));
        compare(p, m);
        return;
    }
    if (b >= 0) {
        CHECK("stage-claims within the cap", b < p->n_buffers);
        CHECK("stage-claims nothing that is in use", m->state[b] != ST_STAGE_FILLING && m->state[b] != ST_STAGE_READY);
        CHECK("stage-claims nothing whose copy failed", m->state[b] != ST_STAGE_IN_FLIGHT || m->recorded[b]);
        CHECK("stage-claims nothing in flight", !still_copied(p, b));
        m->state[b]    = ST_STAGE_FILLING;
        m->recorded[b] = false;
        memset(p->buffers[b].data, 0xEE, p->buffer_size);  // half filled
    } else {
        CHECK("stage-says -1 when nothing is free", b == -1 && free_before == 0);
    }
    compare(p, m);
    if (b == -1) {
        CHECK("stage-cap", count(p, m, ST_STAGE_FREE, false) == 0);
    }
}

static void ready(struct st_stage_pool * p, struct model * m, int b) {
    m->fill[b] = (uint8_t) draw(&rng);
    for (size_t i = 0; i < p->buffer_size; i++) {
        p->buffers[b].data[i] = (uint8_t) (m->fill[b] + i);
    }
    st_stage_ready(p, b);
    m->state[b] = ST_STAGE_READY;
}

static void queue(struct st_stage_pool * p, struct model * m, int b) {
    struct st_copy copies[MAX_COPIES];
    const int n = below(&rng, MAX_COPIES + 1), slot = below(&rng, SLOTS);
    for (int i = 0; i < n; i++) {
        const size_t from = (size_t) below(&rng, BYTES), size = 1 + (size_t) below(&rng, BYTES - (int) from);
        copies[i] = (struct st_copy) { from, arena[slot] + from, size };
        for (size_t k = from; k < from + size; k++) {
            m->in_slot[slot][k] = (uint8_t) (m->fill[b] + k);
        }
    }
    const int result = st_stage_queue(p, b, copies, n);
    m->state[b]    = ST_STAGE_IN_FLIGHT;
    // A refused copy has an event behind it, a refused event has not.
    m->recorded[b] = !st_sim_failed(p->transport) && (result == 0 || armed != ST_SIM_REFUSE_RECORD);
    m->queued[b]   = m->n_queued++;
    CHECK("stage-queue fails only with a copy", result == 0 || (result == -2 && (n > 0 || armed == ST_SIM_REFUSE_RECORD || st_sim_failed(p->transport))));
    CHECK("stage-queue tells that the transport failed", result == -2 || !st_sim_failed(p->transport));
    m->refused = m->refused || result < 0;
    compare(p, m);
}

static void wait_oldest(struct st_stage_pool * p, struct model * m) {
    int oldest = -1;
    for (int b = 0; b < p->n_buffers; b++) {
        if (m->state[b] == ST_STAGE_IN_FLIGHT && m->recorded[b] && (oldest < 0 || m->queued[b] < m->queued[oldest])) {
            oldest = b;
        }
    }
    const int result = st_stage_wait_oldest(p);
    if (oldest < 0) {
        CHECK("stage-waits for nothing when nothing is in flight", result == 0);
    } else if (result == 1) {
        CHECK("stage-waits for the oldest", p->buffers[oldest].state == ST_STAGE_FREE);
        CHECK("stage-wait ends after the copy", !still_copied(p, oldest));
    } else {
        CHECK("stage-wait fails only with the transport", result == -2 && st_sim_failed(p->transport));
        CHECK("stage-a failed wait frees nothing", p->buffers[oldest].state == ST_STAGE_IN_FLIGHT);
    }
    compare(p, m);
}

static void drain(struct st_stage_pool * p, struct model * m) {
    const int result = st_stage_drain(p);
    CHECK("stage-drain fails only with the transport", result == 0 || (result == -2 && st_sim_failed(p->transport)));
    compare(p, m);
    CHECK("stage-drain leaves nothing in flight", result < 0 || count(p, m, ST_STAGE_IN_FLIGHT, true) == 0);
    if (!m->refused && !st_sim_failed(p->transport)) {
        CHECK("stage-every byte arrived", memcmp(arena, m->in_slot, sizeof arena) == 0);
    }
}

// Builds the pool; the driver refuses to pin the `refused`-th slab (0: none). Every byte must be counted where
// it is, and every buffer must have a place of its own in a slab.
static void check_slabs(struct st_stage_pool * p, struct st_transport * t, int n, size_t slab_size, int per_slab, bool pin, int refused) {
    const int n_slabs = (n + per_slab - 1) / per_slab;
    st_sim_fail_at(t, ST_SIM_PIN, (uint64_t) refused);
    CHECK("stage-init", st_stage_init(p, t, n, BYTES, slab_size, pin) == 0);
    st_sim_fail_at(t, ST_SIM_PIN, 0);
    CHECK("stage-as many slabs as it takes", p->n_slabs == n_slabs && p->n_buffers == n);
    // A transport that cannot pin at all refuses the first slab.
    const int first_pageable = !pin ? 0 : !t->iface->can_pin ? 0 : refused > 0 ? refused - 1 : n_slabs;
    size_t pinned = 0, pageable = 0, refused_bytes = 0;
    for (int i = 0; i < n_slabs; i++) {
        const int count  = n - i * per_slab < per_slab ? n - i * per_slab : per_slab;
        const size_t size = (size_t) count * BYTES;
        CHECK("stage-a slab is as large as allowed", p->slabs[i].size == size && (size <= slab_size || count == 1));
        CHECK("stage-pageable from the refused slab on", p->slabs[i].pinned == (i < first_pageable));
        *(p->slabs[i].pinned ? &pinned : &pageable) += size;
        refused_bytes += pin && i == first_pageable ? size : 0;
        for (int b = i * per_slab; b < i * per_slab + count; b++) {
            CHECK("stage-a place for each buffer", p->buffers[b].data == (uint8_t *) p->slabs[i].data + (size_t) (b - i * per_slab) * BYTES);
        }
    }
    CHECK("stage-pinned and pageable bytes", p->pinned == pinned && p->pageable == pageable && pinned + pageable == (size_t) n * BYTES);
    CHECK("stage-refused bytes", p->refused == refused_bytes);
}

static uint64_t life(uint64_t steps) {
    const int n_buffers = pool_sizes[below(&rng, 5)];
    struct st_transport * t = st_sim_new(&(struct st_sim_options) { .seed = draw(&rng), .can_pin = one_in(&rng, 2) });
    struct st_stage_pool p;
    struct model m = { .n_queued = 0 };
    memset(arena, 0, sizeof arena);
    CHECK("stage-init refuses nothing", st_stage_init(&p, t, 0, BYTES, SIZE_MAX, true) == -1 && st_stage_init(&p, t, 1, 0, SIZE_MAX, true) == -1 &&
                                            st_stage_init(&p, t, 3, SIZE_MAX / 2, SIZE_MAX, true) == -1);
    const size_t slab_size = slab_sizes[below(&rng, 7)];
    const int per_slab     = slab_size / BYTES == 0 ? 1 : slab_size / BYTES > (size_t) n_buffers ? n_buffers : (int) (slab_size / BYTES);
    const int n_slabs      = (n_buffers + per_slab - 1) / per_slab;
    if (one_in(&rng, 4)) {
        const bool memory = one_in(&rng, 2);
        st_sim_fail_at(t, memory ? ST_SIM_MEMORY : ST_SIM_EVENT_NEW, (uint64_t) (1 + below(&rng, memory ? n_slabs : n_buffers)));
        CHECK("stage-init says when memory or events are short", st_stage_init(&p, t, n_buffers, BYTES, slab_size, true) == -1);
        st_stage_free(&p);  // harmless
        CHECK("stage-a pool without memory has no buffer", st_stage_try_claim(&p) == -1 && st_stage_wait_oldest(&p) == 0);
    }
    const bool pin = one_in(&rng, 2);
    check_slabs(&p, t, n_buffers, slab_size, per_slab, pin, one_in(&rng, 2) ? 1 + below(&rng, n_slabs + 1) : 0);
    armed = ST_SIM_CALLS;  // none
    if (one_in(&rng, 2)) {
        static const enum st_sim_call kinds[] = { ST_SIM_COPY, ST_SIM_RECORD, ST_SIM_QUERY, ST_SIM_WAIT, ST_SIM_REFUSE, ST_SIM_REFUSE_RECORD };
        armed = kinds[below(&rng, 6)];
        st_sim_fail_at(t, armed, 1 + draw(&rng) % 500);
    }
    const bool busy = one_in(&rng, 2);  // the pool is mostly full: back-pressure
    uint64_t n = 0;
    for (int after = 0; n < steps && after < 50; n++) {
        const int what = below(&rng, busy ? 12 : 16);
        int b;
        if (what < 4) {
            claim(&p, &m);
        } else if (what < 7) {
            if ((b = pick(&p, &m, ST_STAGE_FILLING)) >= 0) {
                ready(&p, &m, b);
            }
        } else if (what < 11) {
            if ((b = pick(&p, &m, ST_STAGE_READY)) >= 0) {
                queue(&p, &m, b);
            } else if (count(&p, &m, ST_STAGE_FREE, false) == 0 && count(&p, &m, ST_STAGE_FILLING, false) == 0) {
                wait_oldest(&p, &m);
            }
        } else if (what == 11) {
            if ((b = pick(&p, &m, one_in(&rng, 2) ? ST_STAGE_FILLING : ST_STAGE_READY)) >= 0 && one_in(&rng, 4)) {
                st_stage_give_up(&p, b);
                m.state[b] = ST_STAGE_FREE;
                compare(&p, &m);
            }
        } else if (what == 12) {
            wait_oldest(&p, &m);
        } else if (what == 13 && one_in(&rng, 8)) {
            drain(&p, &m);
        } else {
            st_sim_advance(t);
        }
        after += st_sim_failed(t);
    }
    for (int b = 0; b < n_buffers; b++) {
        if (m.state[b] == ST_STAGE_FILLING || m.state[b] == ST_STAGE_READY) {
            st_stage_give_up(&p, b);
            m.state[b] = ST_STAGE_FREE;
        }
    }
    if (one_in(&rng, 2)) {
        drain(&p, &m);
    }
    if (m.refused && armed == ST_SIM_REFUSE_RECORD && !st_sim_failed(t)) {  // the pool cannot know when those copies end
        void * event = t->iface->event_new(t);
        CHECK("stage-event", event && t->iface->record(t, event) == 0 && t->iface->wait(t, event) == 0);
        t->iface->event_free(t, event);
    }
    st_stage_free(&p);  // waits by itself
    if (!m.refused && !st_sim_failed(t)) {
        CHECK("stage-free waits for every copy", memcmp(arena, m.in_slot, sizeof arena) == 0);
    }
    t->iface->free(t);
    return n ? n : 1;
}

int main(int argc, char ** argv) {
    check_start(argc, argv);
    rng = check_args.seed;
    for (uint64_t done = 0; done < check_args.steps;) {
        const uint64_t left = check_args.steps - done;
        done += life(left < 2000 ? left : 2000);
    }
    printf("ok: %llu steps\n", (unsigned long long) check_args.steps);
    return 0;
}
