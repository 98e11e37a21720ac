// The simulation's own checks: each rule of transport.h is broken on purpose, and must be noticed by its name;
// and the same calls in the right order must be silent.
#include "check.h"
#include "transport_sim.h"

#define N 64

static int seen[ST_SIM_VIOLATIONS];

static void note(void * ctx, enum st_sim_violation what) {
    (void) ctx;
    seen[what]++;
}

static bool expect_tag(void * ctx, uint64_t tag, const uint8_t * bytes, size_t size) {
    (void) ctx;
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != (uint8_t) tag) {
            return false;
        }
    }
    return true;
}

enum broken {
    NOTHING, REFILL, EARLY_READ, EARLY_COPY, WRONG, NOT_RECORDED, FREED, UNKNOWN, LEAK,  // of play
    EARLY_MOVE, EARLY_SET, EARLY_READ_OF_MOVE, EARLY_READ_OF_SET, NOT_MARKED, MOVE_AFTER_COPY, COPY_AFTER_MOVE, COPY_TO_MOVED, SET_AFTER_MOVE,  // of shift
};

// Two copies to one destination with a read after each; `b` is the rule that is broken.
static void play(uint64_t seed, enum broken b) {
    struct st_transport * t = st_sim_new(&(struct st_sim_options) { .seed = seed, .can_pin = true, .violated = note });
    CHECK("sim-new", t);
    const struct st_transport_i * io = t->iface;
    uint8_t dst[N];
    static uint8_t stranger[N];
    memset(dst, 1, N);
    void * compute = st_sim_compute_new(t);
    void * event   = io->event_new(t);
    struct st_memory m, m2;
    CHECK("sim-memory", compute && event && io->memory_new(t, N, true, &m) == 0 && io->memory_new(t, N, false, &m2) == 0 && m.pinned && !m2.pinned);
    if (b == NOT_RECORDED) {
        (void) io->query(t, event);
    }
    st_sim_read(t, compute, dst, N, expect_tag, NULL, b == WRONG ? 9 : 1);
    memset(m.data, 2, N);
    if (b != EARLY_COPY) {
        CHECK("sim-call", io->copies_wait(t, compute) == 0);
    }
    CHECK("sim-call", io->copy(t, dst, m.data, N) == 0);
    CHECK("sim-call", io->record(t, event) == 0);
    if (b != EARLY_READ) {
        CHECK("sim-call", io->compute_waits(t, compute, event) == 0);
    }
    st_sim_read(t, compute, dst, N, expect_tag, NULL, 2);
    const bool done = io->query(t, event) == 1;
    CHECK("sim-event", !done || (dst[0] == 2 && st_sim_reading(t, m.data, N) == 0));
    if (b != REFILL) {
        CHECK("sim-call", io->wait(t, event) == 0);
        CHECK("sim-wait", st_sim_reading(t, m.data, N) == 0);
    }
    memset(m.data, 3, N);
    CHECK("sim-call", io->copies_wait(t, compute) == 0);
    CHECK("sim-call", io->copy(t, dst, b == UNKNOWN ? stranger : (uint8_t *) m.data, N) == 0);
    if (b != FREED) {
        CHECK("sim-call", io->record(t, event) == 0 && io->wait(t, event) == 0);
        CHECK("sim-bytes", dst[0] == (b == UNKNOWN ? 0 : 3) && dst[N - 1] == dst[0]);
    }
    io->memory_free(t, &m);
    io->memory_free(t, &m2);
    st_sim_compute_free(t, compute);
    if (b == LEAK) {
        void * forgotten = io->event_new(t);
        io->event_free(t, event);
        io->free(t);
        free(forgotten);
        return;
    }
    io->event_free(t, event);
    io->free(t);
}

// A copy to one slot, a move from there to another one that is read before and after, and a set of that.
static void shift(uint64_t seed, enum broken b) {
    struct st_transport * t = st_sim_new(&(struct st_sim_options) { .seed = seed, .violated = note });
    const struct st_transport_i * io = t->iface;
    uint8_t from[N], to[N];
    memset(from, 0, N);
    memset(to, 1, N);
    void * compute = st_sim_compute_new(t);
    void * arrived = io->event_new(t), * read = io->event_new(t);
    struct st_memory m;
    CHECK("sim-memory", compute && arrived && read && io->memory_new(t, N, false, &m) == 0);
    memset(m.data, 4, N);
    st_sim_read(t, compute, to, N, expect_tag, NULL, 1);
    CHECK("sim-call", io->copy(t, from, m.data, N) == 0 && (b == MOVE_AFTER_COPY || io->record(t, arrived) == 0));
    CHECK("sim-call", b == NOT_MARKED || io->mark(t, compute, read) == 0);
    CHECK("sim-call", b == EARLY_MOVE || io->copies_after(t, read) == 0);
    CHECK("sim-call", io->move(t, to, from, N) == 0);
    if (b == COPY_AFTER_MOVE || b == COPY_TO_MOVED) {
        CHECK("sim-call", io->copy(t, (b == COPY_TO_MOVED ? from : to) + N - 1, m.data, 1) == 0);
    } else if (b == SET_AFTER_MOVE) {
        CHECK("sim-call", io->set(t, to, 4, 1) == 0);
    }
    CHECK("sim-call", io->record(t, arrived) == 0);
    CHECK("sim-call", b == EARLY_READ_OF_MOVE || io->compute_waits(t, compute, arrived) == 0);
    st_sim_read(t, compute, to, N, expect_tag, NULL, 4);
    CHECK("sim-call", io->mark(t, compute, read) == 0);
    CHECK("sim-call", b == EARLY_SET || io->copies_after(t, read) == 0);
    const bool done = io->query(t, read) == 1;
    CHECK("sim-event", !done || st_sim_n_read(t) == 2);
    CHECK("sim-call", io->set(t, to, 5, N) == 0 && io->record(t, arrived) == 0);
    CHECK("sim-call", b == EARLY_READ_OF_SET || io->compute_waits(t, compute, arrived) == 0);
    st_sim_read(t, compute, to, N, expect_tag, NULL, 5);
    CHECK("sim-call", io->mark(t, compute, read) == 0 && io->wait(t, read) == 0);
    CHECK("sim-wait", st_sim_n_read(t) == 3);
    CHECK("sim-bytes", b == EARLY_READ_OF_SET || (to[0] == 5 && to[N - 1] == 5));
    CHECK("sim-call", io->wait(t, arrived) == 0);
    io->memory_free(t, &m);
    st_sim_compute_free(t, compute);
    io->event_free(t, arrived);
    io->event_free(t, read);
    io->free(t);
}

// Copies that wait for a read that waits for a later copy: nothing can run.
static void deadlock(uint64_t seed) {
    struct st_transport * t = st_sim_new(&(struct st_sim_options) { .seed = seed, .violated = note });
    void * a = st_sim_compute_new(t), * e = t->iface->event_new(t);
    struct st_transport * other = st_sim_new(&(struct st_sim_options) { .seed = seed, .violated = note });
    void * foreign = st_sim_compute_new(other);  // nobody runs this stream here
    st_sim_read(other, foreign, &seed, 1, expect_tag, NULL, 0);
    if (t->iface->copies_wait(t, foreign) == 0 && t->iface->record(t, e) == 0) {
        memset(seen, 0, sizeof seen);
        (void) t->iface->wait(t, e);
    }
    CHECK("sim-sees DEADLOCK", seen[ST_SIM_DEADLOCK] == 1 && st_sim_failed(t));
    st_sim_compute_free(t, a);
    t->iface->event_free(t, e);
    t->iface->free(t);
    st_sim_compute_free(other, foreign);
    other->iface->free(other);
}

// Each kind of failure comes at the call it was put on, and lasts.
static void failures(uint64_t seed) {
    for (int call = 0; call < ST_SIM_CALLS; call++) {
        const bool twice = call == ST_SIM_RECORD || call == ST_SIM_REFUSE_RECORD;  // in a turn
        struct st_transport * t = st_sim_new(&(struct st_sim_options) { .seed = seed, .can_pin = true });
        const struct st_transport_i * io = t->iface;
        void * compute = st_sim_compute_new(t);
        void * event   = io->event_new(t);
        uint8_t dst[N], other[N] = { 0 };
        int before = 0, failed = 0;
        struct st_memory m;
        CHECK("sim-memory", io->memory_new(t, N, true, &m) == 0);
        st_sim_fail_at(t, (enum st_sim_call) call, twice ? 5 : 3);  // the first call of the third turn
        for (int i = 0; i < 6; i++) {
            struct st_memory m2 = { 0 };
            const int got = io->memory_new(t, N, true, &m2);
            void * event2 = io->event_new(t);
            const bool ok = got == 0 && m2.pinned && event2 && io->copies_wait(t, compute) == 0 && io->copy(t, dst, m.data, N) == 0 &&
                            io->record(t, event) == 0 && io->move(t, dst, other, N) == 0 && io->record(t, event) == 0 && io->set(t, dst, 0, N) == 0 &&
                            io->mark(t, compute, event) == 0 && io->copies_after(t, event) == 0 && io->query(t, event) >= 0 && io->compute_waits(t, compute, event) == 0 && io->wait(t, event) == 0;
            before += ok && failed == 0;
            failed += !ok;
            if (got == 0) {
                io->memory_free(t, &m2);
            }
            if (event2) {
                io->event_free(t, event2);
            }
        }
        const bool once = call == ST_SIM_EVENT_NEW || call == ST_SIM_MEMORY || call == ST_SIM_PIN || call == ST_SIM_REFUSE || call == ST_SIM_REFUSE_RECORD;
        CHECK("sim-fails at the k-th call", before == 2);
        CHECK("sim-fails for good, or once", failed == (once ? 1 : 4) && st_sim_failed(t) == !once);
        if (once) {
            CHECK("sim-call", io->record(t, event) == 0 && io->wait(t, event) == 0);
        }
        io->memory_free(t, &m);
        io->event_free(t, event);
        st_sim_compute_free(t, compute);
        io->free(t);
    }
}

int main(int argc, char ** argv) {
    check_start(argc, argv);
    static const struct {
        enum broken broken;
        enum st_sim_violation expected;
    } rules[] = {
        { REFILL, ST_SIM_SOURCE_CHANGED },         { EARLY_READ, ST_SIM_READ_TOO_EARLY },         { EARLY_COPY, ST_SIM_OVERWRITTEN_TOO_EARLY },
        { WRONG, ST_SIM_WRONG_BYTES },             { NOT_RECORDED, ST_SIM_EVENT_NOT_RECORDED },   { FREED, ST_SIM_FREED_IN_FLIGHT },
        { UNKNOWN, ST_SIM_SOURCE_UNKNOWN },        { LEAK, ST_SIM_LEAK },                         { EARLY_MOVE, ST_SIM_OVERWRITTEN_TOO_EARLY },
        { EARLY_SET, ST_SIM_OVERWRITTEN_TOO_EARLY }, { EARLY_READ_OF_MOVE, ST_SIM_READ_TOO_EARLY }, { EARLY_READ_OF_SET, ST_SIM_READ_TOO_EARLY },
        { NOT_MARKED, ST_SIM_EVENT_NOT_RECORDED }, { MOVE_AFTER_COPY, ST_SIM_NO_ORDER },          { COPY_AFTER_MOVE, ST_SIM_NO_ORDER },
        { COPY_TO_MOVED, ST_SIM_NO_ORDER },        { SET_AFTER_MOVE, ST_SIM_NO_ORDER },
    };
    for (size_t r = 0; r < sizeof rules / sizeof *rules; r++) {
        memset(seen, 0, sizeof seen);
        for (uint64_t i = 0; i < check_args.steps; i++) {
            (rules[r].broken < EARLY_MOVE ? play : shift)(check_args.seed + i, rules[r].broken);
        }
        if (seen[rules[r].expected] == 0) {
            fprintf(stderr, "check failed: sim-sees %s\n", st_sim_violation_name(rules[r].expected));
            return 1;
        }
    }
    memset(seen, 0, sizeof seen);
    for (uint64_t i = 0; i < check_args.steps; i++) {
        play(check_args.seed + i, NOTHING);
        shift(check_args.seed + i, NOTHING);
        failures(check_args.seed + i);
    }
    for (int v = 0; v < ST_SIM_VIOLATIONS; v++) {
        CHECK("sim-silent when all is in order", seen[v] == 0);
    }
    deadlock(check_args.seed);
    printf("ok: %llu rounds\n", (unsigned long long) check_args.steps);
    return 0;
}
