// The self-test at the start: patterns go through the whole stage pool into empty slots, several times around,
// and are compared. A pool that is reused too early, or a copy that is not one, shows here.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tier.h"

static uint8_t pattern(int copy, size_t i) {
    return (uint8_t) ((size_t) copy * 37 + i * 11 + (i >> 8));
}

int st_selftest(struct st_tier * t, char * line, size_t line_size) {
    struct st_class * c = t->n_classes > 0 ? &t->classes[0] : NULL;
    if (!c || c->n_slots == 0 || t->n_lent > 0 || c->residency.n_resident > 0 || !t->pool_built) {
        return st_fail(t, "the self-test wants empty slots and a stage pool");
    }
    const size_t slice = ggml_row_size(c->type[0], c->ne0[0]) * (size_t) c->ne1[0];
    const size_t size  = slice < ((size_t) 1 << 20) ? slice : (size_t) 1 << 20;
    const int n       = 3 * t->pool.n_buffers;
    uint8_t * back    = malloc(size);
    if (!back) {
        return st_fail(t, "out of memory");
    }
    int result = 0, copy = 0;
    for (; copy < n && result == 0; copy++) {
        int b;
        while ((b = st_stage_try_claim(&t->pool)) == -1) {
            if (st_stage_wait_oldest(&t->pool) <= 0) {
                break;
            }
        }
        if (b < 0) {
            result = st_fail(t, "self-test: no stage buffer becomes free");
            break;
        }
        for (size_t i = 0; i < size; i++) {
            t->pool.buffers[b].data[i] = pattern(copy, i);
        }
        char * slot = (char *) ggml_backend_buffer_get_base(c->arena) + (size_t) (copy % c->n_slots) * c->stride;
        const struct st_copy piece = { 0, slot + c->slot_offset[0], size };
        st_stage_ready(&t->pool, b);
        if (st_stage_queue(&t->pool, b, &piece, 1) < 0) {
            result = st_fail(t, "self-test: a copy was refused");
        }
    }
    if (st_stage_drain(&t->pool) < 0) {
        result = st_fail(t, "self-test: a copy failed");
    }
    for (int last = copy - 1; last >= 0 && last >= copy - c->n_slots && result == 0; last--) {
        ggml_backend_tensor_get(&c->weights[0], back, (size_t) (last % c->n_slots) * c->stride, size);
        for (size_t i = 0; i < size && result == 0; i++) {
            if (back[i] != pattern(last, i)) {
                result = st_fail(t, "self-test: copy %d came out wrong at byte %zu of %zu: this machine's copies cannot be trusted", last, i, size);
            }
        }
    }
    free(back);
    if (result == 0) {
        snprintf(line, line_size, "self-test: %d copies of %zu KiB through %d %s buffers, equal", n, size >> 10, t->pool.n_buffers,
                 t->pool.pinned ? "pinned" : "pageable");
    }
    return result;
}
