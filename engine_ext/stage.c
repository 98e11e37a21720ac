#include "stage.h"

#include <assert.h>
#include <stdlib.h>

int st_stage_init(struct st_stage_pool * p, struct st_transport * t, int n, size_t size, bool pin) {
    *p = (struct st_stage_pool) { .transport = t, .buffer_size = size };  // without buffers until all is there: nothing can be claimed
    if (n <= 0 || size == 0 || size > SIZE_MAX / (size_t) n) {
        return -1;
    }
    p->buffers = calloc((size_t) n, sizeof *p->buffers);
    if (!p->buffers) {
        return -1;
    }
    if (t->iface->memory_new(t, size * (size_t) n, pin, &p->slab) < 0) {
        free(p->buffers);
        p->buffers = NULL;
        return -1;
    }
    p->n_buffers = n;
    for (int b = 0; b < n; b++) {
        p->buffers[b].data  = (uint8_t *) p->slab.data + (size_t) b * size;
        p->buffers[b].event = t->iface->event_new(t);
        if (!p->buffers[b].event) {
            st_stage_free(p);
            return -1;
        }
    }
    return 0;
}

void st_stage_free(struct st_stage_pool * p) {
    if (!p->buffers) {
        return;
    }
    (void) st_stage_drain(p);
    for (int b = 0; b < p->n_buffers; b++) {
        assert(p->buffers[b].state != ST_STAGE_FILLING);
        if (p->buffers[b].event) {
            p->transport->iface->event_free(p->transport, p->buffers[b].event);
        }
    }
    p->transport->iface->memory_free(p->transport, &p->slab);
    free(p->buffers);
    p->buffers   = NULL;
    p->n_buffers = 0;
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
            buf->state    = ST_STAGE_FREE;
            buf->recorded = false;
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
    oldest->state    = ST_STAGE_FREE;
    oldest->recorded = false;
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
