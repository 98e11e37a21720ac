// Brings units of a streamed batch into the ring: what is resident is moved from its slot, the mirror's is copied
// straight, the rest comes through the stage pool.
#include <stdlib.h>
#include <string.h>

#include "prompt.h"

// The first of neighbouring slots that hold all experts of the group in order, or -1.
static int32_t find_direct(const struct st_tier * t, const struct st_group * g) {
    const struct st_residency * r = &t->classes[g->class_index].residency;
    const int32_t first = st_residency_find(r, g->first_key);
    for (int32_t e = 0; e < g->n_experts; e++) {
        if (first < 0 || st_residency_find(r, g->first_key + e) != first + e) {
            return -1;
        }
    }
    return first;
}

// The experts of a unit in the ring: as slots (slice NULL), or a slice of each as in the file.
struct filling {
    struct st_tier * t;
    const struct st_group * g;
    const struct st_class * c;
    const struct st_slice * slice;
    const struct st_range * ranges;
    uint8_t * at;
    size_t stride;
};

static int never_straight(void * ctx, int i) {
    (void) ctx, (void) i;
    return 0;
}

static void range_job(void * ctx, int i, struct st_job * job) {
    const struct filling * f = ctx;
    if (f->slice) {
        st_job_slices(f->t, job, f->slice, f->ranges[i].expert, f->ranges[i].count);
    } else {
        st_job_blob(f->t, job, f->g->class_index, f->g->first_key + f->ranges[i].expert);
    }
}

static int queue_range(void * ctx, int i, int buffer) {
    const struct filling * f = ctx;
    if (!f->slice) {
        st_zero_pads(f->c, f->t->pool.buffers[buffer].data);
    }
    const struct st_copy copy = { 0, f->at + (size_t) f->ranges[i].expert * f->stride, (size_t) f->ranges[i].count * f->stride };
    return st_stage_queue(&f->t->pool, buffer, &copy, 1) < 0 ? st_fail(f->t, "a copy to the ring failed") : 0;
}

enum source { FROM_FILE, FROM_SLOT, FROM_MIRROR };

// Where expert `e` comes from, and where its part of a unit lies there.
static enum source find_source(const struct filling * f, int32_t e, const uint8_t ** from) {
    const int32_t key    = f->g->first_key + e;
    const int32_t slot   = st_residency_find(&f->c->residency, key);
    const size_t offset  = f->slice ? f->slice->slot_offset : 0;
    const uint8_t * blob = f->c->mirror ? f->c->mirror[key] : NULL;
    *from = slot >= 0 ? (const uint8_t *) st_slot_address(f->c, slot) + offset : blob ? blob + offset : NULL;
    return slot >= 0 ? FROM_SLOT : blob ? FROM_MIRROR : FROM_FILE;
}

// Queues all copies of a unit. 0, 1 cancelled, -1 failed.
static int fill(struct st_tier * t, const struct st_unit_plan * u, uint8_t * at) {
    const struct st_transport_i * io = t->transport->iface;
    const struct st_slice * slice    = u->slice;
    const struct st_group * g        = &t->groups[slice->group];
    struct filling f = { t, g, &t->classes[g->class_index], t->batch.blobs ? NULL : slice, t->batch.ranges, at, slice->bytes };
    f.stride = f.slice ? f.stride : f.c->stride;
    const int32_t most = t->fault ? 1 : (int32_t) (t->pool.buffer_size / f.stride);  // a blob fits, and so a slice
    uint64_t moved = 0, mirrored = 0;
    int n_ranges = 0, result = 0;
    if (f.slice) {
        const size_t all = slice->bytes * (size_t) g->n_experts;
        result           = io->set(t->transport, at + all, 0, st_unit_bytes(t, slice) - all);
    }
    for (int32_t e = 0, n; e < g->n_experts && result >= 0; e += n) {
        // Neighbours that lie behind each other at their source, too, are copied at once.
        const uint8_t * from, * next;
        const enum source source = find_source(&f, e, &from);
        for (n = 1; e + n < g->n_experts && find_source(&f, e + n, &next) == source; n++) {
            if (source == FROM_FILE ? n == (f.slice ? most : 1) : f.slice || next != from + (size_t) n * f.stride) {
                break;
            }
        }
        uint8_t * to = at + (size_t) e * f.stride;
        if (source == FROM_SLOT) {
            result = io->move(t->transport, to, from, (size_t) n * f.stride);
            moved += (uint64_t) n;
        } else if (source == FROM_MIRROR) {
            result = io->copy(t->transport, to, from, (size_t) n * f.stride);
            mirrored += (uint64_t) n;
        } else {
            t->batch.ranges[n_ranges++] = (struct st_range) { e, n };
        }
    }
    if (result < 0) {
        return st_fail(t, "a copy to the ring failed");
    }
    if (n_ranges > 0) {
        result = st_stage_run(t, &(struct st_staged) { &f, never_straight, range_job, queue_range }, n_ranges);
    }
    if (result == 0) {
        struct st_phase_counters * count = st_now(t);
        const uint64_t all = (uint64_t) g->n_experts, first = !f.slice || slice->index == 0;  // a blob counts with its first slice
        ST_COUNT(count, streamed, first * all);
        ST_COUNT(count, moved, first * moved);
        ST_COUNT(count, loads, first * (all - moved));
        ST_COUNT(count, loads_mirror, first * mirrored);
        ST_COUNT(count, loads_staged, first * (all - moved - mirrored));
        ST_COUNT(count, bytes_copied, (all - moved) * f.stride);
    }
    return result;
}

// The next unit. 1 done, 0 no room yet, -1 failed, -2 cancelled.
int st_unit_bring(struct st_tier * t) {
    struct st_unit_plan * u   = &t->batch.units[t->batch.brought];
    const struct st_group * g = &t->groups[u->slice->group];
    const uint64_t start      = st_now_ns();
    u->direct         = find_direct(t, g);
    const size_t size = u->direct >= 0 ? 0 : t->batch.blobs ? t->classes[g->class_index].stride * (size_t) g->n_experts : st_unit_bytes(t, u->slice);
    int result        = st_ring_place(&t->ring, size);
    if (result > 0) {
        const int filled = size > 0 ? fill(t, u, st_ring_placed(&t->ring)) : 0;
        // What was queued of a unit that is given up needs an event behind it, too: moves have no order without one.
        const int event = filled != 0 ? st_ring_settle(t) : st_ring_arrived(&t->ring);
        result          = event < 0 || filled < 0 ? -1 : filled > 0 ? -2 : 1;
        t->batch.brought += result > 0;
    }
    ST_COUNT(st_now(t), wait_ns, st_now_ns() - start);
    return result == -1 ? st_fail(t, "the copy stream failed") : result;
}

int st_batch_begin(struct st_tier * t, ggml_backend_t compute) {
    t->batch.brought = 0;
    for (int i = 0; i < t->batch.n_units; i++) {
        if (find_direct(t, &t->groups[t->batch.units[i].slice->group]) < 0) {
            return st_ring_take(t, compute);  // which may lend slots: only then is known what lies where
        }
    }
    st_ring_begin(&t->ring, NULL, 0);  // nothing passes through it
    return 0;
}

int st_batch_ahead(struct st_tier * t) {
    struct st_batch * st = &t->batch;
    if (t->stream_from <= 0 || st->n_units == 0 || !t->compute || st->brought > 0 || st->blobs != st_batch_by_layers(t)) {
        return 0;  // nothing is known yet, or all is under way
    }
    int result = st_policy_finish(t, t->compute) < 0 ? -1 : st_batch_begin(t, t->compute);
    while (result == 0 && st->brought < st->n_units) {
        const int r = st_unit_bring(t);
        if (r <= 0) {
            result = r == -2 ? 1 : r;
            break;
        }
    }
    if (result != 0) {
        st->brought = 0;  // the batch begins anew
    }
    return result < 0 ? -1 : 0;
}

bool st_batch_by_layers(const struct st_tier * t) {
    return t->ring_bytes >= 2 * st_ring_layer(t);
}

void st_batch_free(struct st_tier * t) {
    if (t->batch.ids.data) {
        t->transport->iface->memory_free(t->transport, &t->batch.ids);
    }
    free(t->batch.steps);
    free(t->batch.units);
    free(t->batch.ranges);
    memset(&t->batch, 0, sizeof t->batch);
}
