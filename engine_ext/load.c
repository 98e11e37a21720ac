// Brings experts into slots: from the mirror straight, else through the stage pool.
#include <string.h>

#include "tier.h"

static char * slot_address(const struct st_class * c, int32_t slot) {
    return (char *) ggml_backend_buffer_get_base(c->arena) + (size_t) slot * c->stride;
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

// Queues the copy of one staged blob. 0 or -1.
static int queue_staged(struct st_tier * t, struct st_class * c, const struct st_load * load, int buffer) {
    struct st_copy copies[ST_MAX_SLICES];
    for (int i = 0; i < c->n_runs; i++) {
        copies[i] = (struct st_copy) { c->runs[i].offset, slot_address(c, load->slot) + c->runs[i].offset, c->runs[i].size };
    }
    st_stage_ready(&t->pool, buffer);
    if (st_stage_queue(&t->pool, buffer, copies, c->n_runs) < 0) {
        return st_fail(t, "a copy to slot %d failed", load->slot);
    }
    return 0;
}

// Queues the copy of a blob that stays where it is (the mirror's).
int st_queue_blob(struct st_tier * t, struct st_class * c, int32_t slot, const uint8_t * blob) {
    for (int i = 0; i < c->n_runs; i++) {
        if (t->transport->iface->copy(t->transport, slot_address(c, slot) + c->runs[i].offset, blob + c->runs[i].offset, c->runs[i].size) < 0) {
            return st_fail(t, "a copy to slot %d failed", slot);
        }
    }
    return 0;
}

#define PIECE_BYTES ((size_t) 256 << 10)

// A blob is filled in pieces, so that several threads share the one blob that decode waits for.
int st_fill_pieces(const struct st_class * c) {
    int n = 0;
    for (int s = 0; s < c->n_slices; s++) {
        n += (int) ((ggml_row_size(c->type[s], c->ne0[s]) * (size_t) c->ne1[s] + PIECE_BYTES - 1) / PIECE_BYTES);
    }
    return n;
}

int st_fill_piece(void * ctx, const struct st_job * job, int piece) {
    const struct st_tier * t  = ctx;
    const struct st_class * c = &t->classes[job->class_index];
    const struct st_group * g = &t->groups[c->key_group[job->key]];
    int32_t expert = job->key - g->first_key;
    if (t->fault == ST_FAULT_NEXT_EXPERT) {
        expert = (expert + 1) % g->n_experts;
    }
    for (int s = 0; s < g->n_slices; s++) {
        const struct st_slice * slice = &g->slices[s];
        const int n = (int) ((slice->bytes + PIECE_BYTES - 1) / PIECE_BYTES);
        if (piece < n) {
            const size_t offset = (size_t) piece * PIECE_BYTES;
            const size_t size   = slice->bytes - offset < PIECE_BYTES ? slice->bytes - offset : PIECE_BYTES;
            return st_experts_read(t, slice, expert, offset, size, (char *) job->dst + slice->slot_offset + offset, job->mapped);
        }
        piece -= n;
    }
    return -1;
}

int st_load_blobs(struct st_tier * t, struct st_class * c, const struct st_load * loads, int n, ggml_backend_t compute) {
    const struct st_transport_i * io = t->transport->iface;
    struct st_phase_counters * count = st_now(t);
    const uint64_t start = st_now_ns();
    uint64_t n_mirror = 0, n_staged = 0;
    int result = 0, next = 0, open = 0;
    // jobs[i] belongs to loads[i]; tag >= 0: the stage buffer; -1: not staged (mirror, or not loaded)
    struct st_job * jobs = t->jobs;

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
    while (result == 0 && (next < n || open > 0)) {
        if (atomic_load_explicit(&t->cancel, memory_order_relaxed)) {
            result = 1;
            break;
        }
        bool claimed = false;
        if (next < n) {
            const uint8_t * blob = c->mirror ? c->mirror[loads[next].key] : NULL;
            jobs[next].tag = -1;
            if (blob) {
                result = st_queue_blob(t, c, loads[next].slot, blob);
                next++;
                n_mirror++;
                continue;
            }
            const int buffer = st_stage_try_claim(&t->pool);
            if (buffer == -2) {
                result = st_fail(t, "the copy stream failed");
                break;
            }
            if (buffer >= 0) {
                claimed = true;
                jobs[next].key      = loads[next].key;
                jobs[next].dst      = t->pool.buffers[buffer].data;
                jobs[next].tag      = buffer;
                jobs[next].class_index = (int) (c - t->classes);
                jobs[next].n_pieces = st_fill_pieces(c);
                jobs[next].mapped   = t->modes.profile == ST_PROFILE_RAM;
                st_stager_submit(&t->stager, &jobs[next]);
                next++;
                open++;
            }
        }
        if (claimed && next < n) {
            continue;  // start every fill that has a buffer before waiting for one
        }
        if (open > 0) {
            struct st_job * job = st_stager_collect(&t->stager);
            const int i = (int) (job - jobs);
            open--;
            if (job->failed) {
                st_stage_give_up(&t->pool, job->tag);
                job->tag = -1;
                const struct st_group * g = &t->groups[c->key_group[job->key]];
                result = st_fail(t, "expert %d of layer %d could not be read from %s (is the file still whole?)", job->key - g->first_key,
                                 g->layer, t->shards[g->slices[0].shard].path);
                break;
            }
            result = queue_staged(t, c, &loads[i], job->tag);
            n_staged++;
        } else if (st_stage_wait_oldest(&t->pool) <= 0) {  // every buffer is in flight: back-pressure
            result = st_fail(t, "no stage buffer can become free");
        }
    }
    for (; open > 0; open--) {  // a failure or a cancel: nothing more is queued, but no fill may be left running
        struct st_job * job = st_stager_collect(&t->stager);
        st_stage_give_up(&t->pool, job->tag);
        job->tag = -1;
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
        ST_COUNT(count, loads_mirror, n_mirror);
        ST_COUNT(count, loads_staged, n_staged);
        ST_COUNT(count, bytes_copied, (uint64_t) n * c->blob_bytes);
    }
    if (compute) {
        ST_COUNT(count, wait_ns, st_now_ns() - start);
    }
    return result;
}
