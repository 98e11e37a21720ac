#include "stage.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

// Allocates the slabs and gives each buffer its place. 0 or -1.
static int allocate(struct st_stage_pool * p, int n, int per_slab, bool pin) {
    for (int first = 0; first < n; first += per_slab) {
        const int count        = n - first < per_slab ? n - first : per_slab;
        const size_t size      = (size_t) count * p->buffer_size;
        struct st_memory * slab = &p->slabs[p->n_slabs];
        if (p->transport->iface->memory_new(p->transport, size, pin, slab) < 0) {
            return -1;
        }
        p->n_slabs++;
        *(slab->pinned ? &p->pinned : &p->pageable) += size;
        if (pin && !slab->pinned) {
            p->refused += size;
            pin = false;  // a driver that refuses once is not asked for every slab
        }
        for (int i = 0; i < count; i++) {
            p->buffers[first + i].data = (uint8_t *) slab->data + (size_t) i * p->buffer_size;
        }
    }
    return 0;
}

int st_stage_init(struct st_stage_pool * p, struct st_transport * t, int n, size_t size, size_t slab_size, bool pin) {
    *p = (struct st_stage_pool) { .transport = t, .buffer_size = size };  // without buffers until all is there: nothing can be claimed
    if (n <= 0 || size == 0 || size > SIZE_MAX / (size_t) n) {
        return -1;
    }
    const size_t fit   = slab_size / size;
    const int per_slab = fit < 1 ? 1 : fit > (size_t) n ? n : (int) fit;
    p->buffers = calloc((size_t) n, sizeof *p->buffers);
    p->slabs   = calloc((size_t) n, sizeof *p->slabs);
    bool good  = p->buffers && p->slabs && allocate(p, n, per_slab, pin) == 0;
    for (int b = 0; good && b < n; b++) {
        p->buffers[b].event = t->iface->event_new(t);
        good = p->buffers[b].event != NULL;
    }
    p->n_buffers = n;
    if (!good) {
        st_stage_free(p);
        return -1;
    }
    return 0;
}

void st_stage_free(struct st_stage_pool * p) {
    if (p->buffers) {
        (void) st_stage_drain(p);
        for (int b = 0; b < p->n_buffers; b++) {
            assert(p->buffers[b].state != ST_STAGE_FILLING);
            if (p->buffers[b].event) {
                p->transport->iface->event_free(p->transport, p->buffers[b].event);
            }
        }
    }
    for (int i = 0; i < p->n_slabs; i++) {
        p->transport->iface->memory_free(p->transport, &p->slabs[i]);
    }
    free(p->buffers);
    free(p->slabs);
    *p = (struct st_stage_pool) { .transport = p->transport, .buffer_size = p->buffer_size };
}

// IN_FLIGHT -> FREE. The pads of a slot are never copied, so poison in a buffer does not reach them.
static void set_free(struct st_stage_pool * p, struct st_stage_buffer * buf) {
    buf->state    = ST_STAGE_FREE;
    buf->recorded = false;
#ifdef ST_POISON
    memset(buf->data, 0xff, p->buffer_size);
#else
    (void) p;
#endif
}

// Frees the buffers whose copies have completed. Returns 0 or -2.
static int reap(struct st_stage_pool * p) {
    for (int b = 0; b < p->n_buffers; b++) {
        struct st_stage_buffer * buf = &p->buffers[b];
        if (buf->state != ST_STAGE_IN_FLIGHT || !buf->recorded) {
            continue;
        }
        const int done = p->transport->iface->query(p->transport, buf->event);
        if (done < 0) {
            return -2;
        }
        if (done) {
            set_free(p, buf);
        }
    }
    return 0;
}

static int first_free(const struct st_stage_pool * p) {
    for (int b = 0; b < p->n_buffers; b++) {
        if (p->buffers[b].state == ST_STAGE_FREE) {
            return b;
        }
    }
    return -1;
}

int st_stage_try_claim(struct st_stage_pool * p) {
    int b = first_free(p);
    if (b < 0) {
        if (reap(p) < 0) {
            return -2;
        }
        b = first_free(p);
    }
    if (b >= 0) {
        p->buffers[b].state = ST_STAGE_FILLING;
    }
    return b;
}

int st_stage_wait_oldest(struct st_stage_pool * p) {
    struct st_stage_buffer * oldest = NULL;
    for (int b = 0; b < p->n_buffers; b++) {
        struct st_stage_buffer * buf = &p->buffers[b];
        if (buf->state == ST_STAGE_IN_FLIGHT && buf->recorded && (!oldest || buf->queued < oldest->queued)) {
            oldest = buf;
        }
    }
    if (!oldest) {
        return 0;
    }
    if (p->transport->iface->wait(p->transport, oldest->event) < 0) {
        return -2;
    }
    set_free(p, oldest);
    return 1;
}

void st_stage_ready(struct st_stage_pool * p, int b) {
    assert(p->buffers[b].state == ST_STAGE_FILLING);
    p->buffers[b].state = ST_STAGE_READY;
}

int st_stage_queue(struct st_stage_pool * p, int b, const struct st_copy * copies, int n) {
    struct st_stage_buffer * buf = &p->buffers[b];
    assert(buf->state == ST_STAGE_READY);
    buf->state    = ST_STAGE_IN_FLIGHT;  // before the first copy: a failure half-way must not free it
    buf->recorded = false;
    buf->queued   = p->n_queued++;
    int result = 0;
    for (int i = 0; i < n && result == 0; i++) {
        assert(copies[i].src_offset + copies[i].size <= p->buffer_size);
        if (p->transport->iface->copy(p->transport, copies[i].dst, buf->data + copies[i].src_offset, copies[i].size) < 0) {
            result = -2;
        }
    }
    if (p->transport->iface->record(p->transport, buf->event) < 0) {
        return -2;
    }
    buf->recorded = true;
    return result;
}

void st_stage_give_up(struct st_stage_pool * p, int b) {
    assert(p->buffers[b].state == ST_STAGE_FILLING || p->buffers[b].state == ST_STAGE_READY);
    p->buffers[b].state = ST_STAGE_FREE;
}

int st_stage_drain(struct st_stage_pool * p) {
    for (;;) {
        const int r = st_stage_wait_oldest(p);
        if (r <= 0) {
            return r;
        }
    }
}
