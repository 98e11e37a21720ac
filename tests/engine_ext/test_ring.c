// The ring on the simulated transport, with failures: streams of units of random sizes through random memory, one to
// many under way, against a model of what lies where. The simulation knows when a copy or a read has really ended.
#include "check.h"
#include "ring.h"
#include "transport_sim.h"

#define MEMORY 8192u
#define FILE_BYTES 8192u
#define MOST_UNITS 400  // of a stream
#define COMPUTES 2

struct reader {  // a compute stream
    void * compute;
    uint64_t n_calls;  // of expect: one at the start of each read, one at its end
    uint64_t n_queued;
};

struct placed {
    size_t at, size;
    uint64_t tag;
    uint64_t n_reads;  // of its reader's stream when it was released
};

static uint64_t rng;
static uint8_t memory[MEMORY], slots[FILE_BYTES];  // of the device: the ring's, and one with the file's bytes
static uint64_t n_reused, n_wrapped, n_long, n_full, n_single, n_elsewhere, n_failed, n_refused;

struct world {
    struct st_transport * t;
    struct st_ring ring;
    struct st_memory file;
    void * event;
    struct reader readers[COMPUTES];
    struct reader * reader;
    uint8_t * base;  // of the running stream
    size_t size;
    bool tiny;  // more units fit than may be under way
    struct placed units[MOST_UNITS];
    uint64_t n_placed, n_released;
    uint64_t given_again;  // the memory of units before this one was given out again
    uint64_t next_tag;
    int refused;           // records that will be refused, and tried again
};

// ---- what a unit holds: a piece of the file, and a tail that is set

static size_t tail_of(uint64_t tag, size_t size) {
    return mix(tag + 77) % (size < 40 ? size : 40);
}

static size_t place_in_file(uint64_t tag, size_t size) {
    return mix(tag) % (FILE_BYTES - size + 1);
}

static bool expect(void * ctx, uint64_t tag, const uint8_t * bytes, size_t size) {
    ((struct reader *) ctx)->n_calls++;
    const size_t body = size - tail_of(tag, size);
    for (size_t i = body; i < size; i++) {
        if (bytes[i] != (uint8_t) tag) {
            return false;
        }
    }
    return memcmp(bytes, slots + place_in_file(tag, size), body) == 0;
}

// In a few pieces, from the host or from slots. 0 or -1.
static int fill(struct world * w, uint64_t tag, uint8_t * to, size_t size) {
    const struct st_transport_i * io = w->t->iface;
    const size_t body = size - tail_of(tag, size), from = place_in_file(tag, size);
    if (body < size && io->set(w->t, to + body, (uint8_t) tag, size - body) < 0) {
        return -1;
    }
    for (size_t at = 0, n; at < body; at += n) {
        n = one_in(&rng, 2) ? body - at : 1 + (size_t) below(&rng, (int) (body - at));
        const int result = one_in(&rng, 3) ? io->move(w->t, to + at, slots + from + at, n)
                                           : io->copy(w->t, to + at, (uint8_t *) w->file.data + from + at, n);
        if (result < 0) {
            return -1;
        }
    }
    return 0;
}

// ---- the calls

// A call that says -1 leaves the ring as it was. Returns whether it may be tried again.
static bool check_failure(struct world * w, const struct st_ring * before) {
    CHECK("ring-a failed call changes nothing", w->ring.n_placed == before->n_placed && w->ring.n_used == before->n_used && w->ring.n_released == before->n_released &&
                                                    memcmp(w->ring.units, before->units, sizeof before->units) == 0);
    CHECK("ring-fails only with the transport", st_sim_failed(w->t) || w->refused > 0);
    n_failed += st_sim_failed(w->t);
    return !st_sim_failed(w->t);
}

static bool overlap(const struct placed * u, size_t at, size_t size) {
    return u->size > 0 && size > 0 && u->at < at + size && at < u->at + u->size;
}

// Returns false when the transport failed.
static bool place(struct world * w) {
    const struct st_ring before = w->ring;
    static const int shares[] = { 1, 1, 2, 3, 5, 40 };
    const int share = w->tiny ? 60 : shares[below(&rng, 6)];
    size_t size     = 1 + (size_t) below(&rng, 1 + (int) (w->size / (size_t) share));
    size            = one_in(&rng, 50) ? w->size + 1 + (size_t) below(&rng, 9) : one_in(&rng, 10) ? 0 : size;  // 0: it lies elsewhere
    // Behind the last one, else at the beginning.
    size_t at = w->n_placed ? w->units[w->n_placed - 1].at + w->units[w->n_placed - 1].size : 0;
    at        = (at + ST_RING_ALIGN - 1) / ST_RING_ALIGN * ST_RING_ALIGN;
    const bool wraps = at + size > w->size;
    at               = wraps ? 0 : at;
    bool room = size <= w->size && w->n_placed - w->n_released < ST_RING_AHEAD;
    uint64_t again = w->given_again;
    for (uint64_t n = 0; n < w->n_placed && room; n++) {
        if (overlap(&w->units[n], at, size)) {
            room  = n < w->n_released;
            again = n + 1 > again ? n + 1 : again;
        }
    }
    const int result = st_ring_place(&w->ring, size);
    if (result < 0) {
        (void) check_failure(w, &before);
        return false;
    }
    CHECK("ring-gives room when the reader of what lay there is queued", result == room);
    CHECK("ring-gives room to one unit", result == 1 || size > w->size || w->n_placed > w->n_released);
    n_full += !room;
    if (!result) {
        return true;
    }
    const uint64_t tag = w->next_tag++;
    CHECK("ring-a unit lies behind the last one or at the beginning", st_ring_placed(&w->ring) == w->base + at);
    n_reused += again > w->given_again;
    n_wrapped += wraps && w->n_placed > 0;
    n_long += w->n_placed >= 3 * ST_RING_UNITS && again + ST_RING_UNITS < w->n_placed;
    n_single += again == w->n_placed && again > 0;
    n_elsewhere += size == 0;
    w->given_again           = again;
    w->units[w->n_placed++] = (struct placed) { .at = at, .size = size, .tag = tag };
    CHECK("ring-the host runs ahead by a few units only",
          w->n_placed <= ST_RING_AHEAD || w->reader->n_calls / 2 >= w->units[w->n_placed - 1 - ST_RING_AHEAD].n_reads);
    CHECK("ring-tells how many were read to their end", w->ring.n_ended == 0 || w->reader->n_calls / 2 >= w->units[w->ring.n_ended - 1].n_reads);
    if (size > 0 && fill(w, tag, w->base + at, size) < 0) {
        CHECK("ring-fails only with the transport", st_sim_failed(w->t));
        n_failed++;
        return false;
    }
    const struct st_ring filled = w->ring;
    while (st_ring_arrived(&w->ring) < 0) {
        if (!check_failure(w, &filled)) {
            return false;
        }
        w->refused--;
        n_refused++;
    }
    return true;
}

// Returns false when the transport failed.
static bool compute(struct world * w) {
    if (w->n_released == w->n_placed) {
        return true;
    }
    struct placed * u = &w->units[w->n_released];
    struct st_ring before = w->ring;
    uint8_t * data    = NULL;
    if (st_ring_use(&w->ring, w->reader->compute, &data) < 0) {
        (void) check_failure(w, &before);
        return false;
    }
    CHECK("ring-units are used in the order in which they were placed", data == w->base + u->at);
    for (int i = below(&rng, 3); i >= 0 && u->size > 0; i--) {
        st_sim_read(w->t, w->reader->compute, data, u->size, expect, w->reader, u->tag);
        w->reader->n_queued++;
    }
    before = w->ring;
    if (st_ring_release(&w->ring, w->reader->compute) < 0) {
        (void) check_failure(w, &before);
        return false;
    }
    u->n_reads = w->reader->n_queued;
    w->n_released++;
    return true;
}

// Another stream of units, perhaps on another compute stream; what was placed for the last one is given up. As the
// ring is taken for a batch. Returns false when the transport failed.
static bool begin(struct world * w) {
    static const size_t sizes[] = { 1, 100, 128, 129, 300, 1000, 3000, MEMORY };
    for (int i = 0; i < COMPUTES; i++) {
        if (w->t->iface->copies_wait(w->t, w->readers[i].compute) < 0) {
            return false;
        }
    }
    if (w->t->iface->record(w->t, w->event) < 0) {  // moves of units that were given up
        return false;
    }
    w->reader = &w->readers[below(&rng, COMPUTES)];
    w->size   = sizes[below(&rng, 8)];
    w->tiny   = one_in(&rng, 2);
    w->base   = memory + below(&rng, (int) (MEMORY - w->size) + 1);
    w->n_placed = w->n_released = w->given_again = 0;
    st_ring_begin(&w->ring, w->base, w->size);
    return true;
}

static uint64_t life(uint64_t steps) {
    static struct world w;
    w = (struct world) { .t = st_sim_new(&(struct st_sim_options) { .seed = draw(&rng) }) };
    const struct st_transport_i * io = w.t->iface;
    CHECK("ring-world", w.t && io->memory_new(w.t, FILE_BYTES, false, &w.file) == 0 && (w.event = io->event_new(w.t)));
    memcpy(w.file.data, slots, FILE_BYTES);
    for (int i = 0; i < COMPUTES; i++) {
        CHECK("ring-world", (w.readers[i].compute = st_sim_compute_new(w.t)));
    }
    if (one_in(&rng, 4)) {
        st_sim_fail_at(w.t, ST_SIM_EVENT_NEW, (uint64_t) (1 + below(&rng, 2 * ST_RING_UNITS)));
        CHECK("ring-init says when events are short", st_ring_init(&w.ring, w.t) == -1);
        st_ring_free(&w.ring);
    }
    CHECK("ring-init", st_ring_init(&w.ring, w.t) == 0);
    if (one_in(&rng, 3)) {
        static const enum st_sim_call kinds[] = { ST_SIM_RECORD, ST_SIM_WAIT, ST_SIM_COMPUTE_WAITS, ST_SIM_MARK, ST_SIM_COPIES_AFTER, ST_SIM_COPY, ST_SIM_MOVE, ST_SIM_SET };
        st_sim_fail_at(w.t, kinds[below(&rng, 8)], 1 + draw(&rng) % 300);
    }
    bool going      = begin(&w);
    const bool busy = one_in(&rng, 2);  // as many units under way as possible
    uint64_t n      = 0;
    for (; going && n < steps; n++) {
        const int what = below(&rng, 40);
        if (what == 0 || w.n_placed == MOST_UNITS) {
            going = w.n_placed < MOST_UNITS && w.n_placed > 0 && !one_in(&rng, 8) ? true : begin(&w);
        } else if (what == 1) {
            w.refused = 1;
            st_sim_fail_at(w.t, ST_SIM_REFUSE_RECORD, 1);
            going     = place(&w);
            w.refused = 0;
            st_sim_fail_at(w.t, ST_SIM_REFUSE_RECORD, 0);
        } else if (what == 2) {
            st_sim_synchronize(w.t, w.reader->compute);
        } else if (what < (busy ? 30 : 20)) {
            going = place(&w);
        } else {
            going = compute(&w);
        }
    }
    for (int i = 0; i < COMPUTES; i++) {
        st_sim_compute_free(w.t, w.readers[i].compute);
    }
    (void) (io->record(w.t, w.event) == 0 && io->wait(w.t, w.event));
    st_ring_free(&w.ring);
    st_ring_free(&w.ring);  // harmless
    io->event_free(w.t, w.event);
    io->memory_free(w.t, &w.file);
    io->free(w.t);
    return n ? n : 1;
}

int main(int argc, char ** argv) {
    check_start(argc, argv);
    rng = check_args.seed;
    for (size_t i = 0; i < FILE_BYTES; i++) {
        slots[i] = (uint8_t) draw(&rng);
    }
    for (uint64_t done = 0; done < check_args.steps;) {
        const uint64_t left = check_args.steps - done;
        done += life(left < 2000 ? left : 2000);
    }
    CHECK("ring-all kinds of runs were seen", check_args.steps < 20000 || (n_reused && n_wrapped && n_long && n_full && n_single && n_elsewhere && n_failed && n_refused));
    printf("ok: %llu steps; reused %llu, wrapped %llu, beyond the events %llu, without room %llu, one unit %llu, failed %llu, refused %llu\n",
           (unsigned long long) check_args.steps, (unsigned long long) n_reused, (unsigned long long) n_wrapped, (unsigned long long) n_long,
           (unsigned long long) n_full, (unsigned long long) n_single, (unsigned long long) n_failed, (unsigned long long) n_refused);
    return 0;
}
