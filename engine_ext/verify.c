// The self-check that ships: compares residents with the file, byte for byte.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tier.h"

// " round 12 claimed 3/17, round 12 published 3/17, ...": layer/expert, oldest first.
static void describe(const struct st_class * c, int32_t slot, char * out, size_t size, const struct st_tier * t) {
    const struct st_trace * trace = &c->traces[slot];
    size_t used = 0;
    out[0] = '\0';
    for (uint32_t i = trace->n > ST_TRACE ? trace->n - ST_TRACE : 0; i < trace->n && used < size; i++) {
        const int32_t key         = trace->entry[i % ST_TRACE].key;
        const struct st_group * g = &t->groups[c->key_group[key]];
        const char what           = trace->entry[i % ST_TRACE].what;
        const char * word = what == 'c' ? "claimed" : what == 'p' ? "published" : what == 'a' ? "abandoned" : what == 'h' ? "home" : what == 'l' ? "lent" : "guest";
        const int n = snprintf(out + used, size - used, " round %u %s %d/%d;", trace->entry[i % ST_TRACE].round, word, g->layer, key - g->first_key);
        used += n > 0 ? (size_t) n : 0;
    }
}

// Compares one resident. 0, -1 different (or unreadable).
static int compare(struct st_tier * t, struct st_class * c, int32_t slot, uint8_t * a, uint8_t * b) {
    const int32_t key = c->residency.key_of[slot];
    const struct st_group * g = &t->groups[c->key_group[key]];
    for (int s = 0; s < g->n_slices; s++) {
        const struct st_slice * slice = &g->slices[s];
        ggml_backend_tensor_get(&c->weights[s], a, (size_t) slot * c->stride, slice->bytes);
        struct st_read got;
        if (st_experts_read(t, slice, key - g->first_key, 0, slice->bytes, b, 0, &got) < 0) {
            return st_fail(t, "expert %d of layer %d could not be read again", key - g->first_key, g->layer);
        }
        if (memcmp(a, b, slice->bytes) != 0) {
            size_t at = 0;
            while (a[at] == b[at]) {
                at++;
            }
            char history[1024];
            describe(c, slot, history, sizeof history, t);
            return st_fail(t, "slot %d does not hold expert %d of layer %d: %s differs from byte %zu on; the slot's history:%s", slot, key - g->first_key,
                           g->layer, slice->name, at, history);
        }
    }
    return 0;
}

int st_verify(struct st_tier * t, int count, uint64_t seed) {
    size_t largest = 0;
    for (int i = 0; i < t->n_groups; i++) {
        for (int s = 0; s < t->groups[i].n_slices; s++) {
            largest = t->groups[i].slices[s].bytes > largest ? t->groups[i].slices[s].bytes : largest;
        }
    }
    uint8_t * a = malloc(largest + 1), * b = malloc(largest + 1);
    int result  = a && b ? 0 : st_fail(t, "out of memory");
    uint64_t x  = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
    for (int i = 0; i < count && result == 0; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        struct st_class * c = &t->classes[x % (uint64_t) (t->n_classes ? t->n_classes : 1)];
        if (t->n_classes == 0 || c->n_slots == 0) {
            break;
        }
        const int32_t slot = (int32_t) ((x >> 16) % (uint64_t) c->n_slots);
        if (c->residency.state[slot] == ST_SLOT_RESIDENT) {
            result = compare(t, c, slot, a, b);
        }
    }
    free(a);
    free(b);
    return result;
}
