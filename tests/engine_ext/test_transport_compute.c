// The compute thread of the copier thread's transport: the order of its work, its events, waits between it and the
// copies in both directions, and its end. Work looks at the bytes when it runs, so what runs too early or too late
// is seen.
#include <time.h>

#include "check.h"
#include "transport_thread.h"

#define BYTES 48
#define SLOTS 6
#define EVENTS 8
#define SOURCES 64

static uint64_t rng;

struct look {  // work: what a slot holds must be this, at its start and after a while
    const uint8_t * at;
    uint8_t expected;
    bool slow;
    uint64_t number, * next;  // work runs in this order
};

static void look(void * arg) {
    struct look * l = arg;
    CHECK("thread-work runs in order", *l->next == l->number);
    ++*l->next;
    for (int i = 0; i < 2; i++) {
        CHECK("thread-work finds its bytes", l->at[0] == l->expected && l->at[BYTES - 1] == l->expected);
        if (l->slow && i == 0) {
            nanosleep(&(struct timespec) { .tv_nsec = 30000 }, NULL);
        }
    }
    free(l);
}

static uint64_t n_posted, n_run;  // by the thread that posts, and by the one that works

static void post_look(struct st_transport * t, const uint8_t * at, uint8_t expected, bool slow) {
    struct look * l = malloc(sizeof *l);
    CHECK("thread-memory", l);
    *l = (struct look) { at, expected, slow, n_posted++, &n_run };
    CHECK("thread-post", t->iface->post(t, look, l) == 0);
}

static struct st_transport * new_transport(uint32_t copy_delay_us, uint32_t compute_delay_us) {
    struct st_transport * t = st_transport_thread_new(copy_delay_us, compute_delay_us, draw(&rng));
    CHECK("thread-new", t && t->iface->post);
    n_posted = n_run = 0;
    return t;
}

// Without a compute delay there is no compute thread, and computing is over when it returns: what it would be made
// to wait for is waited for at once, and copies wait for nothing.
static void without(void) {
    struct st_transport * t = st_transport_thread_new(2000, 0, draw(&rng));
    const struct st_transport_i * io = t->iface;
    CHECK("thread-no work without a compute thread", !io->post);
    uint8_t dst[BYTES] = { 0 };
    void * read = io->event_new(t), * arrived = io->event_new(t);
    for (int i = 1; i <= 5; i++) {
        CHECK("thread-mark", io->mark(t, NULL, read) == 0 && io->query(t, read) == 1 && io->wait(t, read) == 0);
        CHECK("thread-copies after", io->copies_after(t, read) == 0 && io->copies_wait(t, NULL) == 0);
        CHECK("thread-set", io->set(t, dst, (uint8_t) i, BYTES) == 0 && io->record(t, arrived) == 0 && io->copies_after(t, arrived) == 0);
        CHECK("thread-compute waits", io->compute_waits(t, NULL, arrived) == 0);
        CHECK("thread-compute sees the set", dst[0] == i && dst[BYTES - 1] == i);
    }
    io->event_free(t, read);
    io->event_free(t, arrived);
    io->free(t);
}

// Copy and work take turns on one slot, each waiting for the other; with delays on either side. `wait`: copies wait
// by copies_wait, else for an event.
static void turns(uint32_t copy_delay_us, uint32_t compute_delay_us, int n, bool wait) {
    struct st_transport * t = new_transport(copy_delay_us, compute_delay_us);
    const struct st_transport_i * io = t->iface;
    static uint8_t src[256][BYTES], slot[BYTES], other[BYTES];
    void * arrived = io->event_new(t), * read = io->event_new(t);
    int early_marks = 0;
    for (int i = 0; i < 256; i++) {
        memset(src[i], i, BYTES);
    }
    for (int i = 0; i < n; i++) {
        const uint8_t value = (uint8_t) (i * 7 + 1);
        switch (i % 3) {  // by way of another slot, straight, or without a source
            case 0:
                CHECK("thread-move", io->copy(t, other, src[value], BYTES) == 0 && io->move(t, slot, other, BYTES) == 0);
                break;
            case 1:
                CHECK("thread-copy", io->copy(t, slot, src[value], BYTES) == 0);
                break;
            default:
                CHECK("thread-set", io->set(t, slot, value, BYTES) == 0);
        }
        CHECK("thread-record", io->record(t, arrived) == 0 && io->compute_waits(t, NULL, arrived) == 0);
        post_look(t, slot, value, one_in(&rng, 4));
        if (wait) {
            CHECK("thread-copies wait", io->copies_wait(t, NULL) == 0);
        } else {
            CHECK("thread-mark", io->mark(t, NULL, read) == 0);
            early_marks += io->query(t, read) == 0;
            CHECK("thread-copies after", io->copies_after(t, read) == 0);
        }
    }
    CHECK("thread-mark", io->mark(t, NULL, read) == 0 && io->wait(t, read) == 0 && io->query(t, read) == 1);
    CHECK("thread-a mark stands behind all work", n_run == (uint64_t) n);
    CHECK("thread-a mark is not done before its work", wait || early_marks > 0);
    io->event_free(t, arrived);
    io->event_free(t, read);
    io->free(t);
}

// The end runs the work and the copies that are queued, with what they wait for.
static void drains(void) {
    for (int i = 0; i < 6; i++) {
        struct st_transport * t = new_transport(100, 100);
        const struct st_transport_i * io = t->iface;
        static uint8_t slot[BYTES];
        const int n = 40;
        for (int k = 1; k <= n; k++) {
            void * event = io->event_new(t);
            CHECK("thread-set", io->set(t, slot, (uint8_t) k, BYTES) == 0 && io->record(t, event) == 0 && io->compute_waits(t, NULL, event) == 0);
            post_look(t, slot, (uint8_t) k, false);
            CHECK("thread-mark", io->mark(t, NULL, event) == 0 && io->copies_after(t, event) == 0);
            io->event_free(t, event);  // what waits for it keeps what it stands for
        }
        io->free(t);
        CHECK("thread-free drains the work", n_run == (uint64_t) n && slot[0] == n);
    }
}

// Copies to slots and work that looks at them, ordered by whichever event will do: the newest, an older one that
// already stands behind what matters, or a wait for all.
static void random_run(uint64_t steps, uint32_t copy_delay_us, uint32_t compute_delay_us) {
    struct st_transport * t = new_transport(copy_delay_us, compute_delay_us);
    const struct st_transport_i * io = t->iface;
    static uint8_t slots[SLOTS][BYTES], src[SOURCES][BYTES];
    uint64_t n_copies = 0;               // operations that change bytes
    uint64_t last_copy[SLOTS] = { 0 }, last_work[SLOTS] = { 0 };  // that touched the slot
    uint64_t copies_seen = 0, work_seen = 0;  // what work to come, and copies to come, are ordered behind
    uint64_t user[SOURCES] = { 0 };
    uint8_t content[SLOTS] = { 0 };
    struct { void * event; bool mark, used; uint64_t number; } events[EVENTS];
    memset(slots, 0, sizeof slots);
    for (int e = 0; e < EVENTS; e++) {
        events[e].event = io->event_new(t);
        events[e].used  = false;
    }
    for (uint64_t n = 0; n < steps; n++) {
        const int what = below(&rng, 8), e = below(&rng, EVENTS), slot = below(&rng, SLOTS), s = below(&rng, SOURCES);
        if (what < 2) {
            events[e].mark   = what == 0;
            events[e].used   = true;
            events[e].number = what == 0 ? n_posted : n_copies;
            CHECK("thread-record", (what == 0 ? io->mark(t, NULL, events[e].event) : io->record(t, events[e].event)) == 0);
        } else if (what == 2 && events[e].used) {
            if (events[e].mark) {
                CHECK("thread-copies after", io->copies_after(t, events[e].event) == 0);
                work_seen = events[e].number > work_seen ? events[e].number : work_seen;
            } else {
                CHECK("thread-compute waits", io->compute_waits(t, NULL, events[e].event) == 0);
                copies_seen = events[e].number > copies_seen ? events[e].number : copies_seen;
            }
        } else if (what == 3 && one_in(&rng, 8)) {
            CHECK("thread-copies wait", io->copies_wait(t, NULL) == 0);
            work_seen = n_posted;
        } else if (what == 4 && events[e].used && one_in(&rng, 4)) {
            if (one_in(&rng, 2)) {
                CHECK("thread-wait", io->wait(t, events[e].event) == 0);
            } else if (io->query(t, events[e].event) != 1) {
                continue;
            }
            // Done is done for everybody.
            uint64_t * seen = events[e].mark ? &work_seen : &copies_seen;
            *seen           = events[e].number > *seen ? events[e].number : *seen;
            for (int i = 0; i < SOURCES && !events[e].mark; i++) {
                user[i] = user[i] <= events[e].number ? 0 : user[i];
            }
        } else if (what < 7) {
            if (last_work[slot] > work_seen) {
                continue;  // may still be read
            }
            const bool set = one_in(&rng, 3);
            if (!set && user[s] != 0) {
                continue;
            }
            content[slot] = (uint8_t) draw(&rng);
            if (!set) {
                memset(src[s], content[slot], BYTES);
            }
            CHECK("thread-copy", (set ? io->set(t, slots[slot], content[slot], BYTES) : io->copy(t, slots[slot], src[s], BYTES)) == 0);
            last_copy[slot] = ++n_copies;
            user[s]         = set ? user[s] : n_copies;
        } else if (last_copy[slot] <= copies_seen) {
            post_look(t, slots[slot], content[slot], false);
            last_work[slot] = n_posted;
        }
    }
    for (int e = 0; e < EVENTS; e++) {
        io->event_free(t, events[e].event);
    }
    io->free(t);
    CHECK("thread-free drains the work", n_run == n_posted);
    for (int s = 0; s < SLOTS; s++) {
        CHECK("thread-bytes at the end", slots[s][0] == content[s] && slots[s][BYTES - 1] == content[s]);
    }
}

int main(int argc, char ** argv) {
    check_start(argc, argv);
    rng = check_args.seed;
    without();
    turns(0, 1, 2000, false);
    turns(60, 1, 150, one_in(&rng, 2));
    turns(1, 60, 150, one_in(&rng, 2));
    turns(1, 20, 300, true);
    turns(1, 20, 300, false);
    drains();
    random_run(check_args.steps, 0, 1);
    random_run(check_args.steps / 50, 20, 20);
    printf("ok: %llu steps\n", (unsigned long long) check_args.steps);
    return 0;
}
