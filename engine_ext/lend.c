// The ring's memory: its own, or that of slots which are lent while a prompt is read and come back with the same
// experts before the next graph that decodes.
#include "tier.h"

size_t st_unit_bytes(const struct st_tier * t, const struct st_slice * s) {
    const size_t pad = ggml_row_size(s->type, 512);  // batched CUDA kernels read whole tiles past the last row's end
    return s->bytes * (size_t) t->groups[s->group].n_experts + pad;
}

size_t st_ring_unit(const struct st_tier * t) {
    size_t most = 0;
    for (int i = 0; i < t->n_groups; i++) {
        for (int s = 0; s < t->groups[i].n_slices; s++) {
            const size_t bytes = st_unit_bytes(t, &t->groups[i].slices[s]);
            most = bytes > most ? bytes : most;
        }
    }
    return (most + ST_RING_ALIGN - 1) / ST_RING_ALIGN * ST_RING_ALIGN;
}

size_t st_ring_layer(const struct st_tier * t) {
    size_t most = 0;
    for (int i = 0; i < t->n_groups; i++) {
        const size_t bytes = t->classes[t->groups[i].class_index].stride * (size_t) t->groups[i].n_experts;
        most = bytes > most ? bytes : most;
    }
    return (most + ST_RING_ALIGN - 1) / ST_RING_ALIGN * ST_RING_ALIGN;
}

// The class with the largest arena lends.
static int lender(const struct st_tier * t) {
    int best = 0;
    for (int k = 1; k < t->n_classes; k++) {
        if (t->classes[k].stride * (size_t) t->classes[k].n_slots > t->classes[best].stride * (size_t) t->classes[best].n_slots) {
            best = k;
        }
    }
    return best;
}

int st_ring_set(struct st_tier * t, int64_t from, size_t bytes, bool own) {
    if (t->n_classes == 0 || t->slots_total == 0) {
        return st_fail(t, "the slots were not allocated");
    }
    if (st_ring_give_back(t, NULL) < 0) {
        return -1;
    }
    if (t->ring_own) {
        if (t->compute) {
            ggml_backend_synchronize(t->compute);
        }
        if (st_ring_settle(t) < 0 || t->transport->iface->wait(t->transport, t->group_event) < 0) {
            return st_fail(t, "the copy stream failed");
        }
        ggml_backend_buffer_free(t->ring_own);
        t->ring_own = NULL;
    }
    t->stream_from = 0;
    t->ring_bytes  = 0;
    if (from <= 0) {
        return 0;
    }
    const struct st_class * c = &t->classes[lender(t)];
    if (bytes < st_ring_unit(t)) {
        return st_fail(t, "a ring of %zu KiB is too small: one unit takes %zu KiB", bytes >> 10, (st_ring_unit(t) + 1023) >> 10);
    }
    if (own) {
        t->ring_own = ggml_backend_buft_alloc_buffer(ggml_backend_dev_buffer_type(t->inner), bytes);
        if (!t->ring_own) {
            return st_fail(t, "%s cannot give %zu KiB for the ring", ggml_backend_dev_name(t->inner), bytes >> 10);
        }
        ggml_backend_buffer_set_usage(t->ring_own, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    } else if (bytes > c->stride * (size_t) c->n_slots) {
        return st_fail(t, "a ring of %zu KiB is larger than the slots that could be lent for it, %zu KiB", bytes >> 10, c->stride * (size_t) c->n_slots >> 10);
    }
    t->ring_bytes  = bytes;
    t->stream_from = from;
    return 0;
}

ggml_backend_buffer_t st_ring_buffer(const struct st_tier * t) {
    return t->ring_own ? t->ring_own : t->classes[t->lent_class].arena;
}

int st_ring_settle(struct st_tier * t) {
    if (t->transport->iface->record(t->transport, t->group_event) < 0) {
        return st_fail(t, "the copy stream failed");
    }
    t->loaded = true;
    return 0;
}

int st_ring_take(struct st_tier * t, ggml_backend_t compute) {
    if (!t->ring_own && t->n_lent == 0) {
        t->lent_class       = lender(t);
        struct st_class * c = &t->classes[t->lent_class];
        t->n_lent           = (int32_t) ((t->ring_bytes + c->stride - 1) / c->stride);
        for (int32_t s = 0; s < t->n_lent; s++) {
            if (c->residency.state[s] == ST_SLOT_RESIDENT) {
                st_residency_lend(&c->residency, s);
                st_trace_add(t, c, s, 'l', c->residency.key_of[s]);
            }
        }
    }
    // WAR: a decode may still read these slots, or a batch the ring.
    if (t->transport->iface->copies_wait(t->transport, compute) < 0) {
        return st_fail(t, "the copy stream failed");
    }
    if (st_ring_settle(t) < 0) {  // slots that came back empty were set to zero, and moves come behind that only now
        return -1;
    }
    st_ring_begin(&t->ring, ggml_backend_buffer_get_base(st_ring_buffer(t)), t->ring_bytes);
    return 0;
}

int st_ring_give_back(struct st_tier * t, ggml_backend_t compute) {
    t->batch.brought = 0;  // of what was brought ahead nothing is read
    if (t->n_lent == 0) {
        return 0;
    }
    const struct st_transport_i * io = t->transport->iface;
    struct st_class * c    = &t->classes[t->lent_class];
    ggml_backend_t readers = compute ? compute : t->compute;
    // WAR: the last units may still be read. The pads of the slots must be zero again before anybody reads a slot,
    // and what is queued behind this on the copy stream comes after it.
    int result = (readers && io->copies_wait(t->transport, readers) < 0) ||
                         io->set(t->transport, ggml_backend_buffer_get_base(c->arena), 0, (size_t) t->n_lent * c->stride) < 0
                     ? st_fail(t, "the copy stream failed")
                     : 0;
    struct st_load loads[64];
    int32_t s = 0;
    while (s < t->n_lent) {
        int n = 0;
        for (; s < t->n_lent && n < (int) (sizeof loads / sizeof *loads); s++) {
            if (c->residency.state[s] != ST_SLOT_LENT) {
                continue;
            }
            st_residency_return(&c->residency, s);
            if (result != 0) {  // its bytes do not come: the slot is empty
                st_trace_add(t, c, s, 'a', c->residency.key_of[s]);
                st_residency_abandon(&c->residency, s);
                continue;
            }
            loads[n++] = (struct st_load) { c->residency.key_of[s], s };
            st_trace_add(t, c, s, 'c', c->residency.key_of[s]);
        }
        if (n > 0) {
            result = st_load_blobs(t, c, loads, n, readers);
        }
    }
    t->n_lent = 0;
    return result;
}
