// Pre-fill: slots are filled at the start with the hottest experts of the usage profile, several threads filling
// stage buffers while copies run.
#include <stdlib.h>

#include "tier.h"

// Blobs between two reports: at the end of a batch the threads run out of work, so it is long, but a slow disk's
// is short.
#define BATCH_FIRST 64
#define BATCH_MOST 512
#define BATCH_NS 100000000u

struct ranked {
    float usage;
    int32_t tie;  // spreads equals over the layers
    int32_t key;
};

static int later_key(const void * a, const void * b) {
    const struct ranked * x = a, * y = b;
    return x->key > y->key ? -1 : 1;
}

static int hotter(const void * a, const void * b) {
    const struct ranked * x = a, * y = b;
    if (x->usage != y->usage) {
        return x->usage > y->usage ? -1 : 1;
    }
    return x->tie < y->tie ? -1 : x->tie > y->tie;
}

// The keys of a class, hottest first.
static struct ranked * rank(const struct st_tier * t, int k, const float * usage) {
    const struct st_class * c = &t->classes[k];
    struct ranked * list = malloc((size_t) c->n_keys * sizeof *list);
    size_t at = 0;
    for (int i = 0; list && i < t->n_groups; i++) {
        const struct st_group * g = &t->groups[i];
        for (int32_t e = 0; g->class_index == k && e < g->n_experts; e++) {
            const int32_t key = g->first_key + e;
            list[key] = (struct ranked) { usage && usage[at + (size_t) e] > 0 ? usage[at + (size_t) e] : 0, e * t->n_groups + i, key };
        }
        at += (size_t) g->n_experts;
    }
    if (list) {
        qsort(list, (size_t) c->n_keys, sizeof *list, hotter);
    }
    return list;
}

int64_t st_prefill(struct st_tier * t, const float * usage, bool (*step)(void * ctx, int64_t done, int64_t total), void * ctx) {
    int64_t total = 0, done = 0;
    for (int k = 0; k < t->n_classes; k++) {
        if (t->n_lent > 0 || t->classes[k].residency.n_resident > 0 || t->classes[k].n_slots == 0) {
            return st_fail(t, "pre-fill wants empty slots");
        }
        total += t->classes[k].n_slots;
    }
    t->compute = NULL;  // these copies are ordered before no stream yet: the next one that reads takes over
    struct st_load loads[BATCH_MOST];
    int most = BATCH_FIRST;
    for (int k = 0; k < t->n_classes; k++) {
        struct st_class * c  = &t->classes[k];
        struct ranked * list = rank(t, k, usage);
        if (!list) {
            return st_fail(t, "out of memory");
        }
        // Those that are chosen come in the order of the file: the disk likes it, and a layer's experts lie as
        // neighbours, so that prompts find them together.
        const int32_t chosen = c->n_slots < c->n_keys ? c->n_slots : c->n_keys;
        qsort(list, (size_t) chosen, sizeof *list, later_key);
        for (int32_t left = chosen; left > 0;) {
            st_residency_begin(&c->residency);
            int n = 0;
            while (n < most && left > 0) {
                int32_t evicted;
                const int32_t key  = list[--left].key;
                const int32_t slot = st_residency_claim(&c->residency, key, &evicted);
                loads[n++] = (struct st_load) { key, slot };
                st_trace_add(t, c, slot, 'c', key);
            }
            const uint64_t begun = st_now_ns();
            const int result = st_load_blobs(t, c, loads, n, NULL);
            const uint64_t ns = st_now_ns() - begun;
            most = ns > 2 * BATCH_NS && most > 1 ? most / 2 : ns < BATCH_NS && most < BATCH_MOST ? most * 2 : most;
            done += result == 0 ? n : 0;
            atomic_store_explicit(&t->slots_used, done, memory_order_relaxed);
            if (result < 0 || result > 0 || (step && !step(ctx, done, total))) {
                free(list);
                return result < 0 ? -1 : done;
            }
        }
        qsort(list, (size_t) chosen, sizeof *list, hotter);
        st_residency_begin(&c->residency);
        for (int32_t i = chosen; i-- > 0;) {  // the hottest end as the newest
            st_residency_touch(&c->residency, c->residency.slot_of[list[i].key]);
        }
        if (usage) {
            for (int32_t i = 0; i < c->n_keys; i++) {
                c->usage[list[i].key] = list[i].usage;
            }
        }
        free(list);
    }
    return done;
}

int64_t st_refill(struct st_tier * t, int64_t n) {
    struct st_load loads[BATCH_MOST];
    const int most = BATCH_MOST;
    int64_t done   = 0;
    for (int k = 0; k < t->n_classes; k++) {
        struct st_class * c = &t->classes[k];
        for (int32_t s = 0; s < c->n_slots && done < n;) {
            st_residency_begin(&c->residency);
            int count = 0;
            for (; s < c->n_slots && count < most && done + count < n; s++) {
                if (c->residency.state[s] == ST_SLOT_RESIDENT) {
                    st_residency_reopen(&c->residency, s);
                    loads[count++] = (struct st_load) { c->residency.key_of[s], s };
                    st_trace_add(t, c, s, 'c', c->residency.key_of[s]);
                }
            }
            const int result = count ? st_load_blobs(t, c, loads, count, t->compute) : 0;
            if (result != 0) {
                return result < 0 ? -1 : done;
            }
            done += count;
        }
    }
    if (t->loaded && t->transport->iface->wait(t->transport, t->group_event) < 0) {
        return st_fail(t, "the copy stream failed");
    }
    return done;
}

double st_fill_rate(struct st_tier * t, int n) {
    uint64_t bytes = 0;
    int open = 0;
    const uint64_t begun = st_now_ns();
    for (int i = 0; i < n || open > 0;) {
        const int buffer = i < n ? st_stage_try_claim(&t->pool) : -1;
        if (buffer >= 0 && buffer < t->n_jobs) {  // a job of its own for each buffer
            struct st_class * c = &t->classes[i % t->n_classes];
            st_job_blob(t, &t->jobs[buffer], i % t->n_classes, (int32_t) ((int64_t) i * 7919 % c->n_keys));
            t->jobs[buffer].dst = t->pool.buffers[buffer].data;
            t->jobs[buffer].tag = buffer;
            t->jobs[buffer].counted = false;
            st_stager_submit(&t->stager, &t->jobs[buffer]);
            i++;
            open++;
            continue;
        }
        if (buffer >= 0) {
            st_stage_give_up(&t->pool, buffer);
        }
        const struct st_job * job = st_stager_collect(&t->stager);
        if (!job) {
            return -1;  // nothing is free and nothing runs
        }
        st_stage_give_up(&t->pool, job->tag);
        bytes += t->classes[job->class_index].blob_bytes;
        open--;
    }
    return (double) bytes / (1e-9 * (double) (st_now_ns() - begun));
}
