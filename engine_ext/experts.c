// The experts of a GGUF: where each one's slices lie in the files, and which experts share a layout.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tier.h"

#define ALIGN ((size_t) 256)

static int open_shard(struct st_tier * t, struct st_shard * shard) {
    if (st_source_open(&shard->source, shard->path) < 0) {
        return st_fail(t, "cannot open %s: %s", shard->path, strerror(errno));
    }
    shard->size = shard->source.size;
    return shard->size > 0 ? 0 : st_fail(t, "cannot read the size of %s", shard->path);
}

static size_t gcd(size_t a, size_t b) {
    while (b) {
        const size_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

static size_t round_up(size_t n, size_t multiple) {
    return (n + multiple - 1) / multiple * multiple;
}

// Lays out a slot: slices in order, each run followed by a zeroed pad of at least 512 values, because the
// batched CUDA kernels read whole tiles past a row's end. What they read is multiplied by zero, so it must be
// finite: the next slice of the same type is (its bytes are quantised weights), other bytes may not be, so
// only slices of one type are neighbours without a pad. The stride is a multiple of every type's size, because the
// kernels count the stride in blocks, and of ALIGN, so that each expert begins a cache line, as in llama.cpp's tensors.
static int lay_out(struct st_tier * t, struct st_class * c) {
    size_t offset = 0, unit = ALIGN;
    for (int s = 0; s < c->n_slices; s++) {
        const size_t bytes = ggml_row_size(c->type[s], c->ne0[s]) * (size_t) c->ne1[s];
        const size_t ts    = ggml_type_size(c->type[s]);
        const bool joins   = s > 0 && c->type[s] == c->type[s - 1] && offset % 32 == 0;
        if (s > 0 && !joins) {
            offset = round_up(offset + ggml_row_size(c->type[s - 1], 512), ALIGN);
        }
        c->slot_offset[s] = offset;
        if (joins) {
            c->runs[c->n_runs - 1].size += bytes;
        } else {
            c->runs[c->n_runs++] = (struct st_run) { offset, bytes };
        }
        c->blob_bytes += bytes;
        offset += bytes;
        unit = unit / gcd(unit, ts) * ts;
    }
    const size_t pad = ggml_row_size(c->type[c->n_slices - 1], 512);
    if (offset > SIZE_MAX - pad - unit) {
        return st_fail(t, "an expert is too large");
    }
    c->stride = round_up(offset + pad, unit);
    return 0;
}

static bool same_layout(const struct st_class * c, const struct st_group * g) {
    if (c->n_slices != g->n_slices) {
        return false;
    }
    for (int s = 0; s < g->n_slices; s++) {
        if (c->type[s] != g->slices[s].type || c->ne0[s] != g->slices[s].ne0 || c->ne1[s] != g->slices[s].ne1) {
            return false;
        }
    }
    return true;
}

static int check_slice(struct st_tier * t, const struct st_group * g, struct st_slice * s) {
    if (s->shard < 0 || s->shard >= t->n_shards || s->type < 0 || s->type >= GGML_TYPE_COUNT || s->ne0 <= 0 || s->ne1 <= 0 ||
        ggml_blck_size(s->type) <= 0 || s->ne0 % ggml_blck_size(s->type) != 0) {
        return st_fail(t, "tensor %s: shard, type or shape is not valid", s->name);
    }
    const size_t row = ggml_row_size(s->type, s->ne0);
    if ((uint64_t) s->ne1 > SIZE_MAX / row || row * (size_t) s->ne1 > SIZE_MAX / (size_t) g->n_experts) {
        return st_fail(t, "tensor %s: its size overflows", s->name);
    }
    s->bytes = row * (size_t) s->ne1;
    const size_t all = s->bytes * (size_t) g->n_experts, size = t->shards[s->shard].size;
    if (s->file_offset > size || all > size - s->file_offset) {
        return st_fail(t, "tensor %s ends beyond the end of %s", s->name, t->shards[s->shard].path);
    }
    return 0;
}

int st_experts_init(struct st_tier * t) {
    for (int i = 0; i < t->n_shards; i++) {
        if (open_shard(t, &t->shards[i]) < 0) {
            return -1;
        }
    }
    t->classes = calloc((size_t) t->n_groups + 1, sizeof *t->classes);
    if (!t->classes) {
        return st_fail(t, "out of memory");
    }
    for (int i = 0; i < t->n_groups; i++) {
        struct st_group * g = &t->groups[i];
        if (g->n_experts <= 0 || g->n_used <= 0 || g->n_used > g->n_experts || g->n_slices < 1 || g->n_slices > ST_MAX_SLICES) {
            return st_fail(t, "layer %d: %d experts, %d used and %d slices cannot be", g->layer, g->n_experts, g->n_used, g->n_slices);
        }
        for (int s = 0; s < g->n_slices; s++) {
            g->slices[s].group = i;
            g->slices[s].index = s;
            if (check_slice(t, g, &g->slices[s]) < 0) {
                return -1;
            }
        }
        int k = 0;
        while (k < t->n_classes && !same_layout(&t->classes[k], g)) {
            k++;
        }
        struct st_class * c = &t->classes[k];
        if (k == t->n_classes) {
            t->n_classes++;
            c->n_slices = g->n_slices;
            for (int s = 0; s < g->n_slices; s++) {
                c->type[s] = g->slices[s].type;
                c->ne0[s]  = g->slices[s].ne0;
                c->ne1[s]  = g->slices[s].ne1;
            }
            if (lay_out(t, c) < 0) {
                return -1;
            }
        }
        if (g->n_experts > INT32_MAX - c->n_keys) {
            return st_fail(t, "too many experts");
        }
        g->class_index = k;
        g->first_key   = c->n_keys;
        c->n_keys += g->n_experts;
        c->min_slots = g->n_used > c->min_slots ? g->n_used : c->min_slots;
        for (int s = 0; s < g->n_slices; s++) {
            g->slices[s].slot_offset = c->slot_offset[s];
        }
        t->n_experts_all += g->n_experts;
        t->blob_bytes_all += c->blob_bytes * (size_t) g->n_experts;
        t->max_experts = g->n_experts > t->max_experts ? g->n_experts : t->max_experts;
        t->max_stride  = c->stride > t->max_stride ? c->stride : t->max_stride;
    }
    for (int k = 0; k < t->n_classes; k++) {
        struct st_class * c = &t->classes[k];
        c->key_group = malloc((size_t) c->n_keys * sizeof *c->key_group);
        if (!c->key_group) {
            return st_fail(t, "out of memory");
        }
    }
    for (int i = 0; i < t->n_groups; i++) {
        const struct st_group * g = &t->groups[i];
        for (int32_t e = 0; e < g->n_experts; e++) {
            t->classes[g->class_index].key_group[g->first_key + e] = i;
        }
    }
    return 0;
}

void st_experts_free(struct st_tier * t) {
    for (int k = 0; t->classes && k < t->n_classes; k++) {
        free(t->classes[k].key_group);
    }
    free(t->classes);
    t->classes   = NULL;
    t->n_classes = 0;
    for (int i = 0; t->shards && i < t->n_shards; i++) {
        st_source_close(&t->shards[i].source);
        free(t->shards[i].path);
    }
    free(t->shards);
    free(t->groups);
    t->shards = NULL;
    t->groups = NULL;
    t->n_shards = t->n_groups = 0;
}

struct st_slice * st_experts_find(const struct st_tier * t, const char * name) {
    for (int i = 0; i < t->n_groups; i++) {
        for (int s = 0; s < t->groups[i].n_slices; s++) {
            if (strcmp(t->groups[i].slices[s].name, name) == 0) {
                return &t->groups[i].slices[s];
            }
        }
    }
    return NULL;
}

int st_experts_read(const struct st_tier * t, const struct st_slice * s, int32_t expert, size_t offset, size_t size, void * dst, unsigned how,
                    struct st_read * out) {
    const uint64_t at = s->file_offset + (uint64_t) expert * s->bytes + offset;  // checked by check_slice
    return st_source_read(&t->shards[s->shard].source, at, size, dst, how, out);
}

int st_experts_ask(const struct st_tier * t, const struct st_slice * s, int32_t expert, size_t offset) {
    return st_source_ask(&t->shards[s->shard].source, s->file_offset + (uint64_t) expert * s->bytes + offset);
}
