#include "transport_sim.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POISON 0xA5
#define FREED 0xDB

enum op_kind { OP_NOTHING = 0, OP_COPY, OP_MOVE, OP_SET, OP_READ, OP_WAIT };

struct op {
    enum op_kind kind;
    bool started;
    uint64_t seq;  // order of queueing over all streams
    uint8_t * dst;
    const uint8_t * src;
    size_t size;
    unsigned char value;  // OP_SET
    uint64_t hash;  // of the source when the copy was queued, or when the move started
    st_sim_expect_fn expect;
    void * ctx;
    uint64_t tag;
    const struct stream * other;  // OP_WAIT: until `number` operations of this stream are done
    uint64_t number;
};

struct stream {
    unsigned char user[ST_SIM_USER_BYTES];  // the caller's
    struct op * queue;  // ring
    size_t capacity, head, count;
    uint64_t n_queued, n_done;
    unsigned speed;  // 0 stalled .. 3
    struct stream * next;
};

struct event {
    const struct stream * stream;
    uint64_t number;
    bool recorded;
};

struct block {
    uint8_t * data;
    size_t size;
    struct block * next;
};

struct sim {
    struct st_transport base;
    struct st_sim_options options;
    uint64_t random;
    struct stream copies;
    struct stream * streams;  // all; the copy stream is the last
    int n_streams;
    struct block * blocks;
    int n_events;
    uint64_t seq, n_calls, n_copied, n_read;
    uint64_t unrecorded;  // seq of the first operation since the last record
    uint64_t fail_at[ST_SIM_CALLS];
    bool failed;
    bool lossy;  // a copy was dropped after the failure: bytes are unknown from here on
};

static struct sim * SIM(struct st_transport * t) {
    return (struct sim *) t;
}

static uint64_t next_random(struct sim * t) {  // splitmix64 (Steele, Lea, Flood, 2014)
    uint64_t z = (t->random += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static uint64_t hash_of(const uint8_t * p, size_t n) {
    uint64_t h = n;
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        h = (h ^ word) * UINT64_C(0x9E3779B97F4A7C15);
        h ^= h >> 32;
    }
    for (; n > 0; p++, n--) {
        h = (h ^ *p) * UINT64_C(0x100000001B3);
    }
    return h;
}

const char * st_sim_violation_name(enum st_sim_violation what) {
    static const char * const names[ST_SIM_VIOLATIONS] = {
        [ST_SIM_SOURCE_CHANGED] = "SOURCE_CHANGED",   [ST_SIM_SOURCE_UNKNOWN] = "SOURCE_UNKNOWN",
        [ST_SIM_READ_TOO_EARLY] = "READ_TOO_EARLY",   [ST_SIM_OVERWRITTEN_TOO_EARLY] = "OVERWRITTEN_TOO_EARLY",
        [ST_SIM_WRONG_BYTES] = "WRONG_BYTES",         [ST_SIM_EVENT_NOT_RECORDED] = "EVENT_NOT_RECORDED",
        [ST_SIM_FREED_IN_FLIGHT] = "FREED_IN_FLIGHT", [ST_SIM_DEADLOCK] = "DEADLOCK",
        [ST_SIM_LEAK] = "LEAK",                       [ST_SIM_NO_ORDER] = "NO_ORDER",
    };
    return names[what];
}

static void violated(struct sim * t, enum st_sim_violation what) {
    if (t->options.violated) {
        t->options.violated(t->options.ctx, what);
        return;
    }
    fprintf(stderr, "transport_sim: %s (seed %llu, call %llu)\n", st_sim_violation_name(what), (unsigned long long) t->options.seed,
            (unsigned long long) t->n_calls);
    abort();
}

static bool overlap(const uint8_t * a, size_t a_size, const uint8_t * b, size_t b_size) {
    return a < b + b_size && b < a + a_size;
}

// ---- streams

static struct op * at(const struct stream * s, size_t i) {
    return &s->queue[(s->head + i) % s->capacity];
}

static void push(struct sim * t, struct stream * s, struct op op) {
    if (s->count == s->capacity) {
        const size_t capacity = s->capacity ? 2 * s->capacity : 64;
        struct op * queue     = malloc(capacity * sizeof *queue);
        if (!queue) {
            abort();
        }
        for (size_t i = 0; i < s->count; i++) {
            queue[i] = *at(s, i);
        }
        free(s->queue);
        s->queue    = queue;
        s->capacity = capacity;
        s->head     = 0;
    }
    op.seq = t->seq++;
    s->count++;
    s->n_queued++;
    *at(s, s->count - 1) = op;
}

static void check_read(struct sim * t, const struct op * op) {
    if (!t->lossy && !op->expect(op->ctx, op->tag, op->src, op->size)) {
        violated(t, ST_SIM_WRONG_BYTES);
    }
}

static bool writes(const struct op * op) {
    return op->kind == OP_COPY || op->kind == OP_MOVE || op->kind == OP_SET;
}

// The first half of a copy or read.
static void start(struct sim * t, struct op * op) {
    op->started = true;
    if (writes(op)) {
        for (const struct stream * s = t->streams; s; s = s->next) {
            for (size_t i = 0; i < s->count; i++) {
                const struct op * r = at(s, i);
                if (r->kind == OP_READ && r->seq < op->seq && overlap(r->src, r->size, op->dst, op->size)) {
                    violated(t, ST_SIM_OVERWRITTEN_TOO_EARLY);
                }
            }
        }
        if (op->kind == OP_MOVE) {
            op->hash = hash_of(op->src, op->size);
        }
        memset(op->dst, POISON, op->size);
    } else {
        for (size_t i = 0; i < t->copies.count && !t->lossy; i++) {
            const struct op * c = at(&t->copies, i);
            if (writes(c) && c->seq < op->seq && overlap(c->dst, c->size, op->src, op->size)) {
                violated(t, ST_SIM_READ_TOO_EARLY);
            }
        }
        check_read(t, op);
    }
}

// One step of a stream. Returns false when it is empty or has to wait.
static bool step(struct sim * t, struct stream * s) {
    if (s->count == 0) {
        return false;
    }
    struct op * op = at(s, 0);
    if (op->kind == OP_WAIT && op->other->n_done < op->number) {
        return false;
    }
    if ((writes(op) || op->kind == OP_READ) && !op->started) {
        start(t, op);
        return true;
    }
    if (op->kind == OP_SET) {
        memset(op->dst, op->value, op->size);
        t->n_copied++;
    } else if (op->kind == OP_COPY || op->kind == OP_MOVE) {
        if (hash_of(op->src, op->size) != op->hash) {
            violated(t, ST_SIM_SOURCE_CHANGED);
        }
        memcpy(op->dst, op->src, op->size);
        t->n_copied++;
    } else if (op->kind == OP_READ) {
        check_read(t, op);
        t->n_read++;
    }
    s->head = (s->head + 1) % s->capacity;
    s->count--;
    s->n_done++;
    return true;
}

static void advance(struct sim * t) {
    t->n_calls++;
    const uint64_t r = next_random(t);
    if (r % 64 == 0) {
        for (struct stream * s = t->streams; s; s = s->next) {
            s->speed = (unsigned) next_random(t) % 4;
        }
    }
    for (struct stream * s = t->streams; s; s = s->next) {
        static const unsigned most[4] = { 0, 2, 6, 24 };
        const unsigned n = most[s->speed] ? (unsigned) (next_random(t) % (most[s->speed] + 1)) : 0;
        for (unsigned i = 0; i < n && step(t, s); i++) {
        }
    }
}

// Runs the streams in random turns until `s` has done `number` operations. 0 or -1 (nothing can run).
static int run_until(struct sim * t, const struct stream * s, uint64_t number) {
    while (s->n_done < number) {
        uint64_t skip  = next_random(t) % (uint64_t) t->n_streams;
        bool moved     = false;
        struct stream * turn = t->streams;
        for (; skip > 0; skip--) {
            turn = turn->next;
        }
        for (int i = 0; i < t->n_streams && !moved; i++) {
            moved = step(t, turn);
            turn  = turn->next ? turn->next : t->streams;
        }
        if (!moved) {
            violated(t, ST_SIM_DEADLOCK);
            t->failed = true;
            return -1;
        }
    }
    return 0;
}

// ---- the interface

// Whether this call is the one that fails.
static bool hit(struct sim * t, enum st_sim_call call) {
    return t->fail_at[call] > 0 && --t->fail_at[call] == 0;
}

// Begins a call. Returns false when the transport has failed, or fails now.
static bool begin(struct sim * t, enum st_sim_call call) {
    if (t->options.called) {
        t->options.called(t->options.ctx);
    }
    advance(t);
    if (hit(t, call)) {
        t->failed = true;
    }
    return !t->failed;
}

// Since the last record the order of moves and of other writes is not given (transport.h), so they must not meet.
// What a transport that failed does is unknown anyway.
static void check_order(struct sim * t, bool move, const void * dst, const void * src, size_t size) {
    for (size_t i = 0; i < t->copies.count && !t->failed; i++) {
        const struct op * op = at(&t->copies, i);
        if (op->seq < t->unrecorded || !writes(op) || (op->kind == OP_MOVE) == move) {
            continue;
        }
        if (overlap(op->dst, op->size, dst, size) || overlap(op->dst, op->size, move ? src : dst, size) || (op->kind == OP_MOVE && overlap(op->src, op->size, dst, size))) {
            violated(t, ST_SIM_NO_ORDER);
        }
    }
}

static int sim_copy(struct st_transport * base, void * dst, const void * src, size_t size) {
    struct sim * t   = SIM(base);
    const bool before = t->failed;
    const bool ok    = begin(t, ST_SIM_COPY) && !hit(t, ST_SIM_REFUSE);
    const struct block * b = t->blocks;
    while (b && !(b->data <= (const uint8_t *) src && (const uint8_t *) src + size <= b->data + b->size)) {
        b = b->next;
    }
    if (!b) {
        violated(t, ST_SIM_SOURCE_UNKNOWN);
    }
    if (ok || (!before && next_random(t) % 2)) {  // what a failure leaves queued is unknown
        check_order(t, false, dst, NULL, size);
        push(t, &t->copies, (struct op) { .kind = OP_COPY, .dst = dst, .src = src, .size = size, .hash = hash_of(src, size) });
    }
    return ok ? 0 : -1;
}

static int sim_move(struct st_transport * base, void * dst, const void * src, size_t size) {
    struct sim * t   = SIM(base);
    const bool before = t->failed;
    const bool ok    = begin(t, ST_SIM_MOVE);
    if (ok || (!before && next_random(t) % 2)) {
        check_order(t, true, dst, src, size);
        push(t, &t->copies, (struct op) { .kind = OP_MOVE, .dst = dst, .src = src, .size = size });
    }
    return ok ? 0 : -1;
}

static int sim_set(struct st_transport * base, void * dst, unsigned char value, size_t size) {
    struct sim * t   = SIM(base);
    const bool before = t->failed;
    const bool ok    = begin(t, ST_SIM_SET);
    if (ok || (!before && next_random(t) % 2)) {
        check_order(t, false, dst, NULL, size);
        push(t, &t->copies, (struct op) { .kind = OP_SET, .dst = dst, .value = value, .size = size });
    }
    return ok ? 0 : -1;
}

static void * sim_event_new(struct st_transport * base) {
    struct sim * t = SIM(base);
    advance(t);
    struct event * event = hit(t, ST_SIM_EVENT_NEW) || t->failed ? NULL : calloc(1, sizeof *event);
    if (event) {
        event->stream = &t->copies;  // not recorded, it counts as completed, as on CUDA
        t->n_events++;
    }
    return event;
}

static void sim_event_free(struct st_transport * base, void * event) {
    SIM(base)->n_events--;
    free(event);
}

static int sim_record(struct st_transport * base, void * event) {
    struct sim * t = SIM(base);
    if (!begin(t, ST_SIM_RECORD) || hit(t, ST_SIM_REFUSE_RECORD)) {
        return -1;
    }
    push(t, &t->copies, (struct op) { .kind = OP_NOTHING });
    *(struct event *) event = (struct event) { .stream = &t->copies, .number = t->copies.n_queued, .recorded = true };
    t->unrecorded = t->seq;
    return 0;
}

static int sim_mark(struct st_transport * base, void * compute, void * event) {
    struct sim * t = SIM(base);
    if (!begin(t, ST_SIM_MARK)) {
        return -1;
    }
    *(struct event *) event = (struct event) { .stream = compute, .number = ((struct stream *) compute)->n_queued, .recorded = true };
    return 0;
}

static void want_recorded(struct sim * t, const struct event * event) {
    if (!event->recorded) {
        violated(t, ST_SIM_EVENT_NOT_RECORDED);
    }
}

static int sim_query(struct st_transport * base, void * event) {
    struct sim * t = SIM(base);
    if (!begin(t, ST_SIM_QUERY)) {
        return -1;
    }
    want_recorded(t, event);
    return ((struct event *) event)->stream->n_done >= ((struct event *) event)->number;
}

static int sim_wait(struct st_transport * base, void * event) {
    struct sim * t = SIM(base);
    if (!begin(t, ST_SIM_WAIT)) {
        return -1;
    }
    want_recorded(t, event);
    return run_until(t, ((struct event *) event)->stream, ((struct event *) event)->number);
}

static int sim_compute_waits(struct st_transport * base, void * compute, void * event) {
    struct sim * t = SIM(base);
    if (!begin(t, ST_SIM_COMPUTE_WAITS)) {
        return -1;
    }
    want_recorded(t, event);
    push(t, compute, (struct op) { .kind = OP_WAIT, .other = ((struct event *) event)->stream, .number = ((struct event *) event)->number });
    return 0;
}

static int sim_copies_after(struct st_transport * base, void * event) {
    struct sim * t = SIM(base);
    if (!begin(t, ST_SIM_COPIES_AFTER)) {
        return -1;
    }
    want_recorded(t, event);
    push(t, &t->copies, (struct op) { .kind = OP_WAIT, .other = ((struct event *) event)->stream, .number = ((struct event *) event)->number });
    return 0;
}

static int sim_copies_wait(struct st_transport * base, void * compute) {
    struct sim * t = SIM(base);
    if (!begin(t, ST_SIM_COPIES_WAIT)) {
        return -1;
    }
    push(t, &t->copies, (struct op) { .kind = OP_WAIT, .other = compute, .number = ((struct stream *) compute)->n_queued });
    return 0;
}

static int sim_memory_new(struct st_transport * base, size_t size, bool pin, struct st_memory * m) {
    struct sim * t = SIM(base);
    advance(t);
    *m = (struct st_memory) { 0 };
    const bool refused    = pin && hit(t, ST_SIM_PIN);
    struct block * block = hit(t, ST_SIM_MEMORY) ? NULL : malloc(sizeof *block);
    uint8_t * data       = block ? malloc(size ? size : 1) : NULL;
    if (!data) {
        free(block);
        return -1;
    }
    memset(data, POISON, size);
    *block    = (struct block) { data, size, t->blocks };
    t->blocks = block;
    *m        = (struct st_memory) { .data = data, .size = size, .pinned = pin && !refused && t->options.can_pin };
    return 0;
}

static void sim_memory_free(struct st_transport * base, struct st_memory * m) {
    struct sim * t = SIM(base);
    advance(t);
    struct block ** link = &t->blocks;
    while (*link && (*link)->data != m->data) {
        link = &(*link)->next;
    }
    assert(*link);
    struct block * block = *link;
    for (size_t i = 0; i < t->copies.count; i++) {
        struct op * op = at(&t->copies, i);
        if (op->kind == OP_COPY && overlap(op->src, op->size, block->data, block->size)) {
            if (!t->failed) {
                violated(t, ST_SIM_FREED_IN_FLIGHT);
            }
            op->kind = OP_NOTHING;
            t->lossy = true;
        }
    }
    memset(block->data, FREED, block->size);
    *link = block->next;
    free(block->data);
    free(block);
    *m = (struct st_memory) { 0 };
}

static void sim_free(struct st_transport * base) {
    struct sim * t = SIM(base);
    (void) run_until(t, &t->copies, t->copies.n_queued);
    if (t->blocks || t->n_events != 0 || t->n_streams != 1) {
        violated(t, ST_SIM_LEAK);
    }
    free(t->copies.queue);
    free(t);
}

// ---- for tests

void * st_sim_compute_new(struct st_transport * base) {
    struct sim * t   = SIM(base);
    struct stream * s = calloc(1, sizeof *s);
    if (!s) {
        return NULL;
    }
    s->speed   = (unsigned) next_random(t) % 4;
    s->next    = t->streams;
    t->streams = s;
    t->n_streams++;
    return s;
}

void st_sim_compute_free(struct st_transport * base, void * compute) {
    struct sim * t   = SIM(base);
    struct stream * s = compute;
    (void) run_until(t, s, s->n_queued);
    for (size_t i = 0; i < t->copies.count; i++) {
        struct op * op = at(&t->copies, i);
        if (op->kind == OP_WAIT && op->other == s) {
            op->kind = OP_NOTHING;  // what it waits for is done
        }
    }
    struct stream ** link = &t->streams;
    while (*link != s) {
        link = &(*link)->next;
    }
    *link = s->next;
    t->n_streams--;
    free(s->queue);
    free(s);
}

void st_sim_read(struct st_transport * base, void * compute, const void * src, size_t size, st_sim_expect_fn expect, void * ctx, uint64_t tag) {
    struct sim * t = SIM(base);
    advance(t);
    push(t, compute, (struct op) { .kind = OP_READ, .src = src, .size = size, .expect = expect, .ctx = ctx, .tag = tag });
}

void st_sim_synchronize(struct st_transport * base, void * compute) {
    (void) run_until(SIM(base), compute, ((struct stream *) compute)->n_queued);
}

void st_sim_advance(struct st_transport * base) {
    advance(SIM(base));
}

int st_sim_reading(const struct st_transport * base, const void * host, size_t size) {
    const struct sim * t = (const struct sim *) base;
    int n = 0;
    for (size_t i = 0; i < t->copies.count; i++) {
        const struct op * op = at(&t->copies, i);
        n += op->kind == OP_COPY && overlap(op->src, op->size, host, size);
    }
    return n;
}
int st_sim_writing(const struct st_transport * base, const void * dst, size_t size) {
    const struct sim * t = (const struct sim *) base;
    int n = 0;
    for (size_t i = 0; i < t->copies.count; i++) {
        const struct op * op = at(&t->copies, i);
        n += writes(op) && overlap(op->dst, op->size, dst, size);
    }
    return n;
}

uint64_t st_sim_n_copied(const struct st_transport * base) {
    return ((const struct sim *) base)->n_copied;
}

uint64_t st_sim_n_read(const struct st_transport * base) {
    return ((const struct sim *) base)->n_read;
}

void st_sim_fail_at(struct st_transport * base, enum st_sim_call call, uint64_t k) {
    SIM(base)->fail_at[call] = k;
}

bool st_sim_failed(const struct st_transport * base) {
    return ((const struct sim *) base)->failed;
}

static const struct st_transport_i pinning_iface = {
    .name = "simulation", .can_pin = true, .copy = sim_copy, .event_new = sim_event_new, .event_free = sim_event_free,
    .record = sim_record, .query = sim_query, .wait = sim_wait, .compute_waits = sim_compute_waits, .copies_wait = sim_copies_wait,
    .mark = sim_mark, .copies_after = sim_copies_after, .move = sim_move, .set = sim_set,
    .memory_new = sim_memory_new, .memory_free = sim_memory_free, .free = sim_free,
};

static const struct st_transport_i pageable_iface = {
    .name = "simulation", .can_pin = false, .copy = sim_copy, .event_new = sim_event_new, .event_free = sim_event_free,
    .record = sim_record, .query = sim_query, .wait = sim_wait, .compute_waits = sim_compute_waits, .copies_wait = sim_copies_wait,
    .mark = sim_mark, .copies_after = sim_copies_after, .move = sim_move, .set = sim_set,
    .memory_new = sim_memory_new, .memory_free = sim_memory_free, .free = sim_free,
};

struct st_transport * st_sim_new(const struct st_sim_options * options) {
    struct sim * t = calloc(1, sizeof *t);
    if (!t) {
        return NULL;
    }
    t->base.iface   = options->can_pin ? &pinning_iface : &pageable_iface;
    t->options      = *options;
    t->random       = options->seed;
    t->copies.speed = (unsigned) next_random(t) % 4;
    t->streams      = &t->copies;
    t->n_streams    = 1;
    return &t->base;
}
