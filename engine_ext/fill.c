// How jobs are filled: piece by piece, from the page cache or the disk, wherever the bytes are.
#include "tier.h"

#define PIECE_BYTES ((size_t) 256 << 10)

static int pieces_of(size_t bytes) {
    return (int) ((bytes + PIECE_BYTES - 1) / PIECE_BYTES);
}

void st_job_blob(const struct st_tier * t, struct st_job * job, int class_index, int32_t key) {
    const struct st_class * c = &t->classes[class_index];
    *job = (struct st_job) { .key = key, .tag = -1, .class_index = class_index, .slice = -1, .counted = true };
    for (int s = 0; s < c->n_slices; s++) {  // in pieces, so that several threads share the one blob that decode waits for
        job->n_pieces += pieces_of(ggml_row_size(c->type[s], c->ne0[s]) * (size_t) c->ne1[s]);
    }
}

void st_job_slices(const struct st_tier * t, struct st_job * job, const struct st_slice * slice, int32_t expert, int32_t count) {
    const struct st_group * g = &t->groups[slice->group];
    *job = (struct st_job) { .key = g->first_key + expert, .tag = -1, .class_index = g->class_index, .slice = slice->index, .count = count,
                             .counted = true, .n_pieces = pieces_of(slice->bytes * (size_t) count) };
}

// With a chosen profile nothing is asked. With profile auto each piece is, while the page cache is thought to hold
// them (the question is the read then), and one of each blob while it is not. What a direct read does depends on
// the answer, so there each piece is asked.
static unsigned how_to_read(struct st_tier * t, int piece) {
    const bool direct = atomic_load_explicit(&t->direct, memory_order_relaxed);
    const bool ram    = st_stager_profile(&t->stager) == ST_PROFILE_RAM;
    if (!atomic_load_explicit(&t->asking, memory_order_relaxed)) {
        return direct && !ram ? ST_DIRECT : 0;
    }
    return direct ? ST_ASK | ST_DIRECT : ram || piece == 0 ? ST_ASK : 0;
}

// Piece `piece` of `bytes` bytes that begin with an expert's slice; `part` counts from there.
static int read_part(struct st_tier * t, const struct st_job * job, int piece, int part, const struct st_slice * slice, int32_t expert, size_t bytes,
                     char * dst, struct st_filled * filled) {
    const size_t offset = (size_t) part * PIECE_BYTES;
    const size_t size   = bytes - offset < PIECE_BYTES ? bytes - offset : PIECE_BYTES;
    struct st_read got;
    const int result = st_experts_read(t, slice, expert, offset, size, dst + offset, how_to_read(t, piece), &got);
    *filled = (struct st_filled) { size, got.cached };
    if (job->counted) {
        struct st_phase_counters * count = st_now(t);
        ST_COUNT(count, bytes_filled, size);
        ST_COUNT(count, bytes_direct, got.bytes_direct);
        if (got.cached >= 0) {
            ST_COUNT(count, asks, 1);
            ST_COUNT(count, asks_cached, got.cached);
            ST_COUNT(count, ask_ns, got.ask_ns);
        }
    }
    return result;
}

int st_fill_piece(void * ctx, const struct st_job * job, int piece, struct st_filled * filled) {
    struct st_tier * t        = ctx;
    const struct st_class * c = &t->classes[job->class_index];
    const struct st_group * g = &t->groups[c->key_group[job->key]];
    int32_t expert = job->key - g->first_key;
    if (t->fault == ST_FAULT_NEXT_EXPERT) {
        expert = (expert + 1) % g->n_experts;
    }
    if (job->slice >= 0) {
        const struct st_slice * slice = &g->slices[job->slice];
        return read_part(t, job, piece, piece, slice, expert, slice->bytes * (size_t) job->count, job->dst, filled);
    }
    int part = piece;
    for (int s = 0; s < g->n_slices; s++) {
        const struct st_slice * slice = &g->slices[s];
        const int n = pieces_of(slice->bytes);
        if (part < n) {
            return read_part(t, job, piece, part, slice, expert, slice->bytes, (char *) job->dst + slice->slot_offset, filled);
        }
        part -= n;
    }
    return -1;
}

// Asks for pages of experts that would be read from the file, each time for others: asking may bring them in.
void st_fill_sample(struct st_tier * t, bool counted) {
    const uint64_t begun = st_now_ns();
    int asked = 0, cached = 0;
    bool tells = t->n_groups > 0;
    for (int i = 0; i < ST_PACE_ANSWERS && tells; i++) {
        uint64_t x = t->sample_seed += UINT64_C(0x9E3779B97F4A7C15);
        x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);  // splitmix64
        x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
        x ^= x >> 31;
        const struct st_group * g = &t->groups[x % (uint64_t) t->n_groups];
        const struct st_class * c = &t->classes[g->class_index];
        const struct st_slice * s = &g->slices[(x >> 20) % (uint64_t) g->n_slices];
        const int32_t expert      = (int32_t) ((x >> 24) % (uint64_t) g->n_experts);
        if (c->mirror && c->mirror[g->first_key + expert]) {
            continue;
        }
        const int answer = st_experts_ask(t, s, expert, (size_t) (x >> 32) % s->bytes);
        tells = answer >= 0;
        asked += answer >= 0;
        cached += answer > 0;
    }
    st_stager_sampled(&t->stager, asked, cached);
    if (!counted) {
        return;
    }
    struct st_phase_counters * count = st_now(t);
    ST_COUNT(count, asks, asked);
    ST_COUNT(count, asks_cached, cached);
    ST_COUNT(count, ask_ns, st_now_ns() - begun);
}
