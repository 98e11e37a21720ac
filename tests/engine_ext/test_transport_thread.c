// The copier thread's transport: order of copies, events, delay, waits, growth of its queue, memory, and its end.
// Its compute thread: test_transport_compute.c.
#include "check.h"
#include "transport_thread.h"

#define SLOTS 8
#define BYTES 48
#define EVENTS 6
#define SOURCES 64

static uint64_t rng;

// ---- memory that is short (linked with --wrap=malloc, calloc, aligned_alloc and pthread_create)

static long granted = -1;  // allocations and threads until one is refused; -1: all
void * __real_malloc(size_t size);
void * __real_calloc(size_t n, size_t size);
void * __real_aligned_alloc(size_t alignment, size_t size);
int __real_pthread_create(void * thread, const void * attr, void * (*start)(void *), void * arg);
void * __wrap_malloc(size_t size);
void * __wrap_calloc(size_t n, size_t size);
void * __wrap_aligned_alloc(size_t alignment, size_t size);
int __wrap_pthread_create(void * thread, const void * attr, void * (*start)(void *), void * arg);

static bool refuse(void) {
    if (granted == 0) {
        return true;
    }
    granted -= granted > 0;
    return false;
}

void * __wrap_malloc(size_t size) {
    return refuse() ? NULL : __real_malloc(size);
}

void * __wrap_calloc(size_t n, size_t size) {
    return refuse() ? NULL : __real_calloc(n, size);
}

void * __wrap_aligned_alloc(size_t alignment, size_t size) {
    return refuse() ? NULL : __real_aligned_alloc(alignment, size);
}

int __wrap_pthread_create(void * thread, const void * attr, void * (*start)(void *), void * arg) {
    return refuse() ? 11 : __real_pthread_create(thread, attr, start, arg);
}

static void short_memory(void) {
    struct st_transport * t = NULL;
    for (uint32_t compute = 2; compute-- > 0;) {
        int refused = 0;
        if (t) {
            t->iface->free(t);
            t = NULL;
        }
        for (long k = 0; !t; k++) {
            granted = k;
            t       = st_transport_thread_new(0, compute, 1);
            granted = -1;
            refused += !t;
            CHECK("thread-new ends", k < 10);
        }
        CHECK("thread-new needs two blocks and a thread", refused == (compute ? 5 : 3));  // one more of each to compute
    }
    struct st_memory m;
    granted = 0;
    CHECK("thread-memory short", t->iface->memory_new(t, 100, false, &m) < 0 && t->iface->event_new(t) == NULL);
    granted = -1;
    CHECK("thread-memory too big", t->iface->memory_new(t, SIZE_MAX - 3, false, &m) < 0);
    CHECK("thread-memory", t->iface->memory_new(t, 100, true, &m) == 0);
    CHECK("thread-memory is pageable, aligned and zero", !t->iface->can_pin && !m.pinned && m.size == 100 && (uintptr_t) m.data % 64 == 0);
    for (size_t i = 0; i < m.size; i++) {
        CHECK("thread-memory is pageable, aligned and zero", ((uint8_t *) m.data)[i] == 0);
    }
    t->iface->memory_free(t, &m);
    CHECK("thread-memory freed", m.data == NULL);
    t->iface->free(t);
}

// Copies that overwrite each other: the last one queued wins, whatever the delays.
static void order(uint32_t delay_us, int n) {
    struct st_transport * t = st_transport_thread_new(delay_us, 0, draw(&rng));
    const struct st_transport_i * io = t->iface;
    struct st_memory m;
    uint8_t dst[2][BYTES];
    CHECK("thread-new", t && io->memory_new(t, (size_t) (n + 1) * BYTES, false, &m) == 0);
    void * event = io->event_new(t);
    uint8_t * src = m.data;
    for (int i = 0; i < n; i++) {
        memset(src + i * BYTES, (uint8_t) (i + 1), BYTES);
    }
    memset(dst, 0, sizeof dst);
    for (int i = 0; i < n; i++) {
        CHECK("thread-copy", io->copy(t, dst[0], src + i * BYTES, BYTES) == 0);
    }
    CHECK("thread-copy", io->copy(t, dst[1], dst[0], BYTES) == 0);  // reads what the copies before it wrote
    CHECK("thread-record", io->record(t, event) == 0 && io->wait(t, event) == 0);
    CHECK("thread-query after wait", io->query(t, event) == 1);
    CHECK("thread-order", dst[0][0] == (uint8_t) n && dst[0][BYTES - 1] == (uint8_t) n && memcmp(dst[0], dst[1], BYTES) == 0);
    io->event_free(t, event);
    io->memory_free(t, &m);
    io->free(t);
}

// Each copy reads what the one before it wrote, so that two in the wrong order lose the first cell's bytes. The
// queue grows while its first entry lies in the middle.
static void chain(void) {
    enum { CELLS = 400 };
    static uint8_t cells[CELLS][BYTES];
    struct st_transport * t = st_transport_thread_new(20, 0, draw(&rng));
    const struct st_transport_i * io = t->iface;
    void * event = io->event_new(t);
    memset(cells, 0, sizeof cells);
    memset(cells[0], 9, BYTES);
    for (int i = 1; i < CELLS; i++) {
        CHECK("thread-copy", io->copy(t, cells[i], cells[i - 1], BYTES) == 0);
        if (i == 30) {
            CHECK("thread-record", io->record(t, event) == 0);
        } else if (i == 60) {
            CHECK("thread-wait", io->wait(t, event) == 0);
        }
    }
    CHECK("thread-record", io->record(t, event) == 0 && io->wait(t, event) == 0);
    for (int i = 0; i < CELLS; i++) {
        CHECK("thread-order of all copies", cells[i][0] == 9 && cells[i][BYTES - 1] == 9);
    }
    io->event_free(t, event);
    io->free(t);
}

// With a delay a copy is seen under way; without waiting its bytes would be wrong.
static void delay(void) {
    int under_way = 0;
    struct st_transport * t = st_transport_thread_new(4000, 0, check_args.seed);
    const struct st_transport_i * io = t->iface;
    struct st_memory m;
    uint8_t dst[BYTES];
    void * event = io->event_new(t);
    CHECK("thread-memory", io->memory_new(t, BYTES, false, &m) == 0);
    for (int i = 1; i <= 20; i++) {
        memset(m.data, i, BYTES);
        CHECK("thread-copy", io->copy(t, dst, m.data, BYTES) == 0 && io->record(t, event) == 0);
        under_way += io->query(t, event) == 0;
        CHECK("thread-compute waits", io->compute_waits(t, NULL, event) == 0);
        CHECK("thread-compute sees the copy", dst[0] == i && dst[BYTES - 1] == i && io->query(t, event) == 1);
    }
    CHECK("thread-delay makes copies late", under_way > 0);
    io->event_free(t, event);
    io->memory_free(t, &m);
    io->free(t);
}

// The end runs what is queued; a queue that cannot grow says so and keeps what it has.
static void drains(void) {
    for (int i = 0; i < 4; i++) {
        struct st_transport * t = st_transport_thread_new(50, 0, draw(&rng));
        const struct st_transport_i * io = t->iface;
        struct st_memory m;
        enum { MOST = 300 };
        static uint8_t dst[MOST][BYTES];
        bool queued[MOST];
        int refused = 0;
        memset(dst, 0, sizeof dst);
        CHECK("thread-memory", io->memory_new(t, BYTES, false, &m) == 0);
        memset(m.data, 7, BYTES);
        for (int k = 0; k < MOST; k++) {
            granted   = i % 2 ? 0 : -1;
            queued[k] = io->copy(t, dst[k], m.data, BYTES) == 0;
            granted   = -1;
            refused += !queued[k];
        }
        CHECK("thread-copy is refused when its queue cannot grow", (refused > 0) == (i % 2 == 1));
        struct st_memory held = m;  // freed only after the end: the copies still read it
        io->free(t);
        for (int k = 0; k < MOST; k++) {
            CHECK("thread-free drains", dst[k][0] == (queued[k] ? 7 : 0) && dst[k][BYTES - 1] == dst[k][0]);
        }
        free(held.data);
    }
}

// Random copies, records and waits against a model of what each event promises.
static void random_run(uint64_t steps, uint32_t delay_us) {
    struct st_transport * t = st_transport_thread_new(delay_us, 0, draw(&rng));
    const struct st_transport_i * io = t->iface;
    struct st_memory m;
    static uint8_t dst[SLOTS][BYTES];
    uint64_t n_queued = 0, known_done = 0;    // copies
    uint64_t last_to[SLOTS] = { 0 };          // number of the last copy to the slot
    uint8_t content[SLOTS] = { 0 };           // and its bytes
    uint64_t user[SOURCES] = { 0 };           // number of the last copy that reads the source
    void * events[EVENTS];
    uint64_t promised[EVENTS] = { 0 };        // copies that the event stands for
    bool recorded[EVENTS] = { false };
    memset(dst, 0, sizeof dst);
    CHECK("thread-memory", io->memory_new(t, SOURCES * BYTES, false, &m) == 0);
    for (int e = 0; e < EVENTS; e++) {
        events[e] = io->event_new(t);
    }
    for (uint64_t n = 0; n < steps; n++) {
        const int what = below(&rng, 16), e = below(&rng, EVENTS), slot = below(&rng, SLOTS), s = below(&rng, SOURCES);
        uint64_t known = 0;
        if (what < 8) {
            uint8_t * src = (uint8_t *) m.data + s * BYTES;
            if (user[s] > known_done) {
                continue;  // still read by a copy
            }
            content[slot] = (uint8_t) draw(&rng);
            memset(src, content[slot], BYTES);
            CHECK("thread-copy", io->copy(t, dst[slot], src, BYTES) == 0);
            user[s] = last_to[slot] = ++n_queued;
        } else if (what < 12) {
            CHECK("thread-record", io->record(t, events[e]) == 0);
            promised[e] = n_queued;
            recorded[e] = true;
        } else if (recorded[e] && what < 14) {
            const int done = io->query(t, events[e]);
            CHECK("thread-query", done == 0 || done == 1);
            CHECK("thread-what was done stays done", done == 1 || promised[e] > known_done);
            known = done ? promised[e] : 0;
        } else if (recorded[e]) {
            CHECK("thread-wait", (what == 14 ? io->wait(t, events[e]) : io->compute_waits(t, NULL, events[e])) == 0);
            known = promised[e];
        } else {
            CHECK("thread-copies wait", io->copies_wait(t, NULL) == 0);
        }
        known_done = known > known_done ? known : known_done;
        if (last_to[slot] <= known_done) {  // else it may be changing
            CHECK("thread-bytes behind an event", dst[slot][0] == content[slot] && dst[slot][BYTES - 1] == content[slot]);
        }
    }
    CHECK("thread-record", io->record(t, events[0]) == 0 && io->wait(t, events[0]) == 0);
    for (int e = 0; e < EVENTS; e++) {
        CHECK("thread-all events complete", io->query(t, events[e]) == 1);
        io->event_free(t, events[e]);
    }
    for (int s = 0; s < SLOTS; s++) {
        CHECK("thread-bytes at the end", dst[s][0] == content[s] && dst[s][BYTES - 1] == content[s]);
    }
    io->memory_free(t, &m);
    io->free(t);
}

int main(int argc, char ** argv) {
    check_start(argc, argv);
    rng = check_args.seed;
    short_memory();
    order(0, 5000);
    order(20, 250);
    chain();
    delay();
    drains();
    random_run(check_args.steps, 0);
    random_run(check_args.steps / 100, 10);
    printf("ok: %llu steps\n", (unsigned long long) check_args.steps);
    return 0;
}
