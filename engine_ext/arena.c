// Room for blobs on the device: one arena per size class.
#include <stdlib.h>
#include <string.h>

#include "tier.h"

// Slots are shared out in proportion to the number of experts, never below what one token needs nor above
// what there is to hold.
void st_arena_divide(const struct st_tier * t, int64_t slots, int32_t * per_class) {
    int64_t given = 0;
    for (int k = 0; k < t->n_classes; k++) {
        const struct st_class * c = &t->classes[k];
        int64_t n = (int64_t) ((double) slots * c->n_keys / (double) t->n_experts_all);
        n = n < c->min_slots ? c->min_slots : n > c->n_keys ? c->n_keys : n;
        per_class[k] = (int32_t) n;
        given += n;
    }
    for (int k = 0; given < slots && k < t->n_classes; k++) {  // what rounding left over
        int64_t more = t->classes[k].n_keys - per_class[k];
        more = more < slots - given ? more : slots - given;
        per_class[k] += (int32_t) more;
        given += more;
    }
}

size_t st_arena_bytes(const struct st_tier * t, int64_t slots) {
    size_t bytes = 0;
    int32_t per_class[t->n_classes + 1];
    st_arena_divide(t, slots, per_class);
    for (int k = 0; k < t->n_classes; k++) {
        bytes += (size_t) per_class[k] * t->classes[k].stride;
    }
    return bytes;
}

static int allocate_class(struct st_tier * t, int k, int32_t n_slots) {
    struct st_class * c = &t->classes[k];
    if (c->stride > SIZE_MAX / (size_t) n_slots) {
        return st_fail(t, "%d slots of %zu bytes overflow", n_slots, c->stride);
    }
    const size_t bytes = c->stride * (size_t) n_slots;
    ggml_backend_buffer_type_t type = ggml_backend_dev_buffer_type(t->inner);
    c->arena = ggml_backend_buft_alloc_buffer(type, bytes);
    if (!c->arena) {
        return st_fail(t, "%s cannot give %zu MiB for %d slots; ask for fewer with --slots or --vram-gib", ggml_backend_dev_name(t->inner),
                       bytes >> 20, n_slots);
    }
    ggml_backend_buffer_clear(c->arena, 0);  // the pads stay zero from here on
    ggml_backend_buffer_set_usage(c->arena, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    for (int s = 0; s < c->n_slices; s++) {
        struct ggml_tensor * w = &c->weights[s];
        memset(w, 0, sizeof *w);
        w->type   = c->type[s];
        w->ne[0]  = c->ne0[s];
        w->ne[1]  = c->ne1[s];
        w->ne[2]  = n_slots;
        w->ne[3]  = 1;
        w->nb[0]  = ggml_type_size(w->type);
        w->nb[1]  = ggml_row_size(w->type, w->ne[0]);
        w->nb[2]  = c->stride;
        w->nb[3]  = bytes;
        w->buffer = c->arena;
        w->data   = (char *) ggml_backend_buffer_get_base(c->arena) + c->slot_offset[s];
        snprintf(w->name, sizeof w->name, "slots.%d.%d", k, s);
    }
    c->traces = calloc((size_t) n_slots, sizeof *c->traces);
    c->usage  = calloc((size_t) c->n_keys, sizeof *c->usage);
    if (!c->traces || !c->usage || !st_residency_init(&c->residency, c->n_keys, n_slots)) {
        return st_fail(t, "out of memory");
    }
    c->n_slots = n_slots;
    return 0;
}

int st_arena_allocate(struct st_tier * t, int64_t slots) {
    if (t->slots_total > 0) {
        return st_fail(t, "the arena was allocated already");
    }
    st_device_loaded(t);
    int32_t per_class[t->n_classes + 1];
    st_arena_divide(t, slots, per_class);
    for (int k = 0; k < t->n_classes; k++) {
        if (allocate_class(t, k, per_class[k]) < 0) {
            return -1;
        }
        t->slots_total += per_class[k];
    }
    return 0;
}

void st_arena_free(struct st_tier * t) {
    for (int k = 0; t->classes && k < t->n_classes; k++) {
        struct st_class * c = &t->classes[k];
        st_residency_free(&c->residency);
        free(c->traces);
        free(c->usage);
        c->traces = NULL;
        c->usage  = NULL;
        if (c->arena) {
            ggml_backend_buffer_free(c->arena);
            c->arena = NULL;
        }
        c->n_slots = 0;
    }
    t->slots_total = 0;
}
