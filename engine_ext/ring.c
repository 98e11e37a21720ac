#include "ring.h"

#include <assert.h>

static struct st_unit * unit(const struct st_ring * r, uint64_t n) {
    return (struct st_unit *) &r->units[n % ST_RING_UNITS];
}

int st_ring_init(struct st_ring * r, struct st_transport * t) {
    *r = (struct st_ring) { .transport = t };
    for (int i = 0; i < ST_RING_UNITS; i++) {
        r->units[i].arrived = t->iface->event_new(t);
        r->units[i].read    = t->iface->event_new(t);
        if (!r->units[i].arrived || !r->units[i].read) {
            return -1;
        }
    }
    return 0;
}

void st_ring_free(struct st_ring * r) {
    for (int i = 0; r->transport && i < ST_RING_UNITS; i++) {
        if (r->units[i].arrived) {
            r->transport->iface->event_free(r->transport, r->units[i].arrived);
        }
        if (r->units[i].read) {
            r->transport->iface->event_free(r->transport, r->units[i].read);
        }
    }
    *r = (struct st_ring) { 0 };
}

void st_ring_begin(struct st_ring * r, void * base, size_t size) {
    r->base     = base;
    r->size     = size;
    r->n_placed = r->n_used = r->n_released = r->n_ended = 0;
    for (int i = 0; i < ST_RING_UNITS; i++) {
        r->units[i].state = ST_UNIT_NONE;
    }
}

static bool overlap(const struct st_unit * u, size_t at, size_t size) {
    return size > 0 && u->size > 0 && u->at < at + size && at < u->at + u->size;
}

int st_ring_place(struct st_ring * r, size_t size) {
    const struct st_transport_i * io = r->transport->iface;
    if (size > r->size || r->n_placed - r->n_released >= ST_RING_AHEAD) {
        return 0;
    }
    // Behind the last unit, or at the beginning again.
    size_t at = 0;
    if (r->n_placed > 0) {
        const struct st_unit * last = unit(r, r->n_placed - 1);
        at = (last->at + last->size + ST_RING_ALIGN - 1) / ST_RING_ALIGN * ST_RING_ALIGN;
        at = at > r->size || size > r->size - at ? 0 : at;
    }
    for (uint64_t n = r->n_released; n < r->n_placed; n++) {
        if (overlap(unit(r, n), at, size)) {
            return 0;
        }
    }
    if (r->n_placed >= ST_RING_AHEAD && r->n_ended < r->n_placed - ST_RING_AHEAD + 1) {
        if (io->wait(r->transport, unit(r, r->n_placed - ST_RING_AHEAD)->read) < 0) {
            return -1;
        }
        r->n_ended = r->n_placed - ST_RING_AHEAD + 1;
    }
    // WAR: what is copied there starts when the readers of what lay there have ended. The compute stream runs in
    // order, so the last of them stands for all.
    uint64_t last = r->n_ended;
    for (uint64_t n = r->n_ended; n < r->n_released; n++) {
        last = overlap(unit(r, n), at, size) ? n + 1 : last;
    }
    if (last > r->n_ended && io->copies_after(r->transport, unit(r, last - 1)->read) < 0) {
        return -1;
    }
    struct st_unit * u = unit(r, r->n_placed);
    assert(u->state == ST_UNIT_NONE || u->state == ST_UNIT_RELEASED);
    u->at    = at;
    u->size  = size;
    u->state = ST_UNIT_PLACED;
    r->n_placed++;
    return 1;
}

uint8_t * st_ring_placed(const struct st_ring * r) {
    assert(r->n_placed > 0);
    return r->base + unit(r, r->n_placed - 1)->at;
}

int st_ring_arrived(struct st_ring * r) {
    assert(r->n_placed > 0);
    struct st_unit * u = unit(r, r->n_placed - 1);
    assert(u->state == ST_UNIT_PLACED);
    if (r->transport->iface->record(r->transport, u->arrived) < 0) {
        return -1;
    }
    u->state = ST_UNIT_ARRIVED;
    return 0;
}

int st_ring_use(struct st_ring * r, void * compute, uint8_t ** data) {
    assert(r->n_used < r->n_placed && r->n_used == r->n_released);
    struct st_unit * u = unit(r, r->n_used);
    assert(u->state == ST_UNIT_ARRIVED);
    if (r->transport->iface->compute_waits(r->transport, compute, u->arrived) < 0) {
        return -1;
    }
    u->state = ST_UNIT_USED;
    *data    = r->base + u->at;
    r->n_used++;
    return 0;
}

int st_ring_release(struct st_ring * r, void * compute) {
    assert(r->n_released + 1 == r->n_used);
    struct st_unit * u = unit(r, r->n_released);
    assert(u->state == ST_UNIT_USED);
    if (r->transport->iface->mark(r->transport, compute, u->read) < 0) {
        return -1;
    }
    u->state = ST_UNIT_RELEASED;
    r->n_released++;
    return 0;
}
