// The mirror: blobs in pinned RAM, in slot layout, so that a hit there is copied straight to its slot. (On the
// CPU device, where nothing can be pinned, it is plain RAM: of no use there, but it runs the same lines.)
//
// It is filled once, in the order of the file, and then constant: its bytes need no ticket, only the slot does.
#include <stdlib.h>

#include "tier.h"

#define CHUNK_BYTES ((size_t) 256 << 20)  // a driver that refuses 20 GiB at once may grant 12; pinning one takes 0.1 s

// Room for at least one more blob of `stride` bytes in the last chunk, or a new chunk. NULL: nothing more.
static uint8_t * place(struct st_tier * t, size_t stride, size_t limit, size_t * used) {
    struct st_mirror * m = &t->mirror;
    if (m->n_chunks > 0 && m->chunks[m->n_chunks - 1].size - *used > stride) {
        // A byte stays free: blobs of two chunks never touch, so what is copied at once lies in one allocation.
        uint8_t * at = (uint8_t *) m->chunks[m->n_chunks - 1].data + *used;
        *used += stride;
        return at;
    }
    size_t size = limit - m->bytes < CHUNK_BYTES ? limit - m->bytes : CHUNK_BYTES;
    if (size <= stride || limit < m->bytes) {
        return NULL;
    }
    struct st_memory * chunks = realloc(m->chunks, ((size_t) m->n_chunks + 1) * sizeof *chunks);
    if (!chunks) {
        return NULL;
    }
    m->chunks = chunks;
    struct st_memory * chunk = &chunks[m->n_chunks];
    if (t->transport->iface->memory_new(t->transport, size, true, chunk) < 0) {
        return NULL;
    }
    if (t->transport->iface->can_pin && !chunk->pinned) {  // pageable memory would be slower than the page cache it duplicates
        t->transport->iface->memory_free(t->transport, chunk);
        t->mirror_refused = size;
        return NULL;
    }
    t->mirror_refused = 0;
    m->n_chunks++;
    m->bytes += size;
    *used = stride;
    return chunk->data;
}

int64_t st_mirror_fill(struct st_tier * t, size_t limit, int step) {
    int64_t left = 0;
    int open     = 0;
    bool full = t->mirror_full, failed = false;
    for (int k = 0; k < t->n_classes; k++) {
        struct st_class * c = &t->classes[k];
        if (!c->mirror) {
            c->mirror = calloc((size_t) c->n_keys, sizeof *c->mirror);
            if (!c->mirror) {
                return st_fail(t, "out of memory");
            }
        }
        for (int32_t key = 0; key < c->n_keys && !full; key++) {
            if (c->mirror[key]) {
                continue;
            }
            if (open == step || open == t->n_jobs) {
                left++;
                continue;
            }
            uint8_t * at = place(t, c->stride, limit, &t->mirror_used);
            if (!at) {
                full = true;
                break;
            }
            st_job_blob(t, &t->jobs[open], k, key);
            t->jobs[open].dst     = at;
            t->jobs[open].counted = false;
            st_zero_pads(c, at);
            st_stager_submit(&t->stager, &t->jobs[open]);
            open++;
        }
    }
    for (; open > 0; open--) {
        const struct st_job * job = st_stager_collect(&t->stager);
        if (job->failed) {
            failed = true;
        } else {
            t->classes[job->class_index].mirror[job->key] = job->dst;
        }
    }
    t->mirror_full = full;
    if (failed) {
        return st_fail(t, "an expert could not be read while the mirror was filled (is the file still whole?)");
    }
    return full ? 0 : left;
}

void st_mirror_free(struct st_tier * t) {
    for (int k = 0; t->classes && k < t->n_classes; k++) {
        free(t->classes[k].mirror);
        t->classes[k].mirror = NULL;
    }
    for (int i = 0; i < t->mirror.n_chunks; i++) {
        t->transport->iface->memory_free(t->transport, &t->mirror.chunks[i]);
    }
    free(t->mirror.chunks);
    t->mirror = (struct st_mirror) { 0 };
}
