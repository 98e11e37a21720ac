// Brings experts into slots: from the mirror straight, else through the stage pool.
#include <assert.h>
#include <string.h>

#include "tier.h"

char * st_slot_address(const struct st_class * c, int32_t slot) {
    return (char *) ggml_backend_buffer_get_base(c->arena) + (size_t) slot * c->stride;
}

void st_zero_pads(const struct st_class * c, uint8_t * blob) {
    for (int i = 0; i < c->n_runs; i++) {
        const size_t end  = c->runs[i].offset + c->runs[i].size;
        const size_t next = i + 1 < c->n_runs ? c->runs[i + 1].offset : c->stride;
        memset(blob + end, 0, next - end);
    }
}

#ifdef ST_POISON
// The slot's slices, and never the pads, which batched kernels read.
void st_poison_slot(struct st_class * c, int32_t slot) {
    for (int s = 0; s < c->n_slices; s++) {
        const size_t bytes = ggml_row_size(c->type[s], c->ne0[s]) * (size_t) c->ne1[s];
        ggml_backend_tensor_memset(&c->weights[s], 0xff, (size_t) slot * c->stride, bytes);
    }
}
#endif

// Queues the copy of a blob that stays where it is (the mirror's).
int st_queue_blob(struct st_tier * t, struct st_class * c, int32_t slot, const uint8_t * blob) {
    for (int i = 0; i < c->n_runs; i++) {
        if (t->transport->iface->copy(t->transport, st_slot_address(c, slot) + c->runs[i].offset, blob + c->runs[i].offset, c->runs[i].size) < 0) {
            return st_fail(t, "a copy to slot %d failed", slot);
        }
    }
    return 0;
}

// What could not be read.
static int fail_read(struct st_tier * t, const struct st_job * job) {
    const struct st_class * c = &t->classes[job->class_index];
    const struct st_group * g = &t->groups[c->key_group[job->key]];
    return st_fail(t, "expert %d of layer %d could not be read from %s (is the file still whole?)", job->key - g->first_key, g->layer,
                   t->shards[g->slices[0].shard].path);
}

int st_stage_run(struct st_tier * t, const struct st_staged * work, int n) {
    int result = 0, next = 0, open = 0;
    struct st_job * jobs = t->jobs;  // jobs[i] belongs to item i; its tag is the stage buffer
    assert(n <= t->n_jobs);
    while (result == 0 && (next < n || open > 0)) {
        if (st_cancelled(t)) {
            result = 1;
            break;
        }
        bool claimed = false;
        if (next < n) {
            const int straight = work->straight(work->ctx, next);
            if (straight != 0) {
                result = straight < 0 ? -1 : 0;
                next++;
                continue;
            }
            const int buffer = st_stage_try_claim(&t->pool);
            if (buffer == -2) {
                result = st_fail(t, "the copy stream failed");
                break;
            }
            if (buffer >= 0) {
                claimed = true;
                work->job(work->ctx, next, &jobs[next]);
                jobs[next].dst = t->pool.buffers[buffer].data;
                jobs[next].tag = buffer;
                st_stager_submit(&t->stager, &jobs[next]);
                next++;
                open++;
            }
        }
        if (claimed && next < n) {
            continue;  // start every fill that has a buffer before waiting for one
        }
        if (open > 0) {
            atomic_store_explicit(&t->filling, st_stager_profile(&t->stager) == ST_PROFILE_SSD, memory_order_relaxed);
            struct st_job * job = st_stager_collect(&t->stager);
            atomic_store_explicit(&t->filling, false, memory_order_relaxed);
            open--;
            if (job->failed) {
                st_stage_give_up(&t->pool, job->tag);
                result = fail_read(t, job);
                break;
            }
            st_stage_ready(&t->pool, job->tag);
            result = work->queue(work->ctx, (int) (job - jobs), job->tag);
        } else if (st_stage_wait_oldest(&t->pool) <= 0) {  // every buffer is in flight: back-pressure
            result = st_fail(t, "no stage buffer can become free");
        }
    }
    for (; open > 0; open--) {  // a failure or a cancel: nothing more is queued, but no fill may be left running
        st_stage_give_up(&t->pool, st_stager_collect(&t->stager)->tag);
    }
    return result;
}

// ---- blobs into slots

struct blobs {
    struct st_tier * t;
    struct st_class * c;
    const struct st_load * loads;
    uint64_t n_mirror, n_staged;
    bool counted;  // as part of a reply
};

static int straight_blob(void * ctx, int i) {
    struct blobs * b     = ctx;
    const uint8_t * blob = b->c->mirror ? b->c->mirror[b->loads[i].key] : NULL;
    if (!blob) {
        return 0;
    }
    b->n_mirror++;
    return st_queue_blob(b->t, b->c, b->loads[i].slot, blob) < 0 ? -1 : 1;
}

static void blob_job(void * ctx, int i, struct st_job * job) {
    const struct blobs * b = ctx;
    st_job_blob(b->t, job, (int) (b->c - b->t->classes), b->loads[i].key);
    job->counted = b->counted;
}

static int queue_blob(void * ctx, int i, int buffer) {
    struct blobs * b         = ctx;
    const struct st_class * c = b->c;
    struct st_copy copies[ST_MAX_SLICES];
    for (int k = 0; k < c->n_runs; k++) {
        copies[k] = (struct st_copy) { c->runs[k].offset, st_slot_address(c, b->loads[i].slot) + c->runs[k].offset, c->runs[k].size };
    }
    b->n_staged++;
    return st_stage_queue(&b->t->pool, buffer, copies, c->n_runs) < 0 ? st_fail(b->t, "a copy to slot %d failed", b->loads[i].slot) : 0;
}

int st_load_blobs(struct st_tier * t, struct st_class * c, const struct st_load * loads, int n, ggml_backend_t compute) {
    const struct st_transport_i * io = t->transport->iface;
    struct st_phase_counters * count = st_now(t);
    const uint64_t start = st_now_ns();
    struct blobs blobs = { .t = t, .c = c, .loads = loads, .counted = compute != NULL };
    int result = 0;

    // WAR: the slots that are about to change may still be read by work queued on the compute stream.
    // (Without one, at the start, nothing has read a slot yet.)
    if (compute && io->copies_wait(t->transport, compute) < 0) {
        result = st_fail(t, "the copy stream failed");
    }
#ifdef ST_POISON
    if (compute) {
        ggml_backend_synchronize(compute);  // memset is ordered behind nothing
    }
    for (int i = 0; i < n && result == 0; i++) {
        st_poison_slot(c, loads[i].slot);
    }
#endif
    if (result == 0) {
        result = st_stage_run(t, &(struct st_staged) { &blobs, straight_blob, blob_job, queue_blob }, n);
    }
    const bool recorded = io->record(t->transport, t->group_event) == 0;
    t->loaded = t->loaded || recorded;
    // RAW: later work on the compute stream starts when all these copies have completed. Published in stream
    // order from here on. (Without one, graph.c orders the first that comes behind the recorded event.)
    if (result == 0 && (!recorded || (compute && io->compute_waits(t->transport, compute, t->group_event) < 0))) {
        result = st_fail(t, "the copy stream failed");
    }
    // Slots that are given up below must not change any more.
    if (result != 0 && recorded && io->wait(t->transport, t->group_event) < 0) {
        st_fail(t, "the copy stream failed");
    }
    for (int i = 0; i < n; i++) {
        if (result == 0) {
            st_residency_publish(&c->residency, loads[i].slot);
        } else {
            st_residency_abandon(&c->residency, loads[i].slot);
        }
        st_trace_add(t, c, loads[i].slot, result == 0 ? 'p' : 'a', loads[i].key);
    }
    if (result == 0 && compute) {  // the phases count what a reply needed, not what fills slots before it
        ST_COUNT(count, loads, n);
        ST_COUNT(count, loads_mirror, blobs.n_mirror);
        ST_COUNT(count, loads_staged, blobs.n_staged);
        ST_COUNT(count, bytes_copied, (uint64_t) n * c->blob_bytes);
    }
    if (compute) {
        ST_COUNT(count, wait_ns, st_now_ns() - start);
    }
    return result;
}
