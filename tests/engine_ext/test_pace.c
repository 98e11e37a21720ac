// The pace on simulated stagers: pages cached or not, and machines whose rate depends on the number of threads.
#include "check.h"
#include "pace.h"

#define MOST 32

static uint64_t rng;

static struct st_pace_options automatic(int ram, int ssd, int most_ram) {
    return (struct st_pace_options) { .wanted = ST_PROFILE_AUTO, .first = { 0, ram, ssd }, .most = { 0, most_ram, MOST } };
}

// ---- the profile

static void answers(struct st_pace * p, int n, bool cached) {
    for (int i = 0; i < n; i++) {
        st_pace_answer(p, cached);
    }
}

static void profile_follows(void) {
    struct st_pace p;
    const struct st_pace_options o = automatic(2, 16, 8);
    st_pace_init(&p, &o);
    CHECK("pace-begins with ram", p.profile == ST_PROFILE_RAM && st_pace_threads(&p) == 2 && p.changes == 0);
    answers(&p, 7, false);
    CHECK("pace-few answers change nothing", p.profile == ST_PROFILE_RAM);
    answers(&p, 1, false);
    CHECK("pace-a cold start is ssd after some answers", p.profile == ST_PROFILE_SSD && st_pace_threads(&p) == 16 && p.changes == 1);
    answers(&p, 28 - below(&rng, 20), true);
    CHECK("pace-some cached reads are not enough", p.profile == ST_PROFILE_SSD);
    answers(&p, ST_PACE_ANSWERS, true);
    CHECK("pace-a warm file is ram", p.profile == ST_PROFILE_RAM && p.changes == 2 && st_pace_cached(&p) == ST_PACE_ANSWERS);
    answers(&p, 7, false);
    CHECK("pace-some missing reads are not enough", p.profile == ST_PROFILE_RAM);
    answers(&p, 1, false);
    CHECK("pace-a dropped page cache is ssd soon", p.profile == ST_PROFILE_SSD && p.changes == 3);
    for (int i = 0; i < 200; i++) {  // five of six: between the two limits
        st_pace_answer(&p, i % 6 != 0);
    }
    CHECK("pace-no to and fro between the limits", p.profile == ST_PROFILE_SSD && p.changes == 3);
    answers(&p, ST_PACE_ANSWERS, true);
    for (int i = 0; i < 200; i++) {
        st_pace_answer(&p, i % 6 != 0);
    }
    CHECK("pace-no to and fro between the limits", p.profile == ST_PROFILE_RAM && p.changes == 4);
}

static void chosen_stays(void) {
    for (enum st_profile wanted = ST_PROFILE_RAM; wanted < ST_PROFILES; wanted++) {
        for (int threads = 0; threads < 3; threads++) {
            struct st_pace p;
            struct st_pace_options o = automatic(3, 12, 8);
            st_pace_init(&p, &o);
            o.wanted  = wanted;
            o.threads = threads;
            st_pace_set(&p, &o);
            for (int i = 0; i < 300; i++) {
                st_pace_answer(&p, one_in(&rng, 2));
                st_pace_seen(&p, &(struct st_pace_window) { 1000 + draw(&rng) % 1000, 1000, 900, 1000 });
                CHECK("pace-what is chosen stays", p.profile == wanted && st_pace_threads(&p) == (threads ? threads : wanted == ST_PROFILE_RAM ? 3 : 12));
            }
            o.wanted = ST_PROFILE_AUTO;
            st_pace_set(&p, &o);
            answers(&p, ST_PACE_ANSWERS, wanted != ST_PROFILE_RAM);
            CHECK("pace-threads are settable on top of auto", p.profile != wanted && (!threads || st_pace_threads(&p) == threads));
        }
    }
}

// ---- the threads

enum kind { MEMORY, SATURATES, TURNS, FLAT, KINDS };

// Bytes a nanosecond with so many threads; `k` is where the curve bends.
static double rate_of(enum kind kind, double k, int n) {
    switch (kind) {
        case MEMORY: return (n < k ? n / k : 1) * (n > k ? 1 - 0.02 * (n - k) / k : 1);  // as fast as k threads, then a little less
        case SATURATES: return n / (n + k);                                              // reads in flight
        case TURNS: return n > k ? k / n : n / k;                                        // a disk that has to seek
        default: return 1;
    }
}

static double noise(double share) {
    double sum = 0;
    for (int i = 0; i < 12; i++) {
        sum += (double) (draw(&rng) >> 11) / 9007199254740992.0;
    }
    return 1 + share * (sum - 6);  // about normal
}

static void one_machine(enum kind kind, double k, int first, double share) {
    struct st_pace p;
    const struct st_pace_options o = automatic(first, first, MOST);
    st_pace_init(&p, &o);
    const bool ssd = one_in(&rng, 2);
    answers(&p, ST_PACE_ANSWERS, !ssd);
    double best = 0, got = 0, learned = 0;
    int smallest = MOST, largest = 1;
    for (int n = 1; n <= MOST; n *= 2) {
        best = rate_of(kind, k, n) > best ? rate_of(kind, k, n) : best;
    }
    const int windows = 1500, later = 500;
    for (int i = 0; i < windows; i++) {
        const int n = st_pace_threads(&p);
        CHECK("pace-threads within their bounds", n >= 1 && n <= MOST);
        smallest = n < smallest ? n : smallest;
        largest  = n > largest ? n : largest;
        const double rate = rate_of(kind, k, n);
        got += rate;
        learned += i >= later ? rate : 0;
        st_pace_seen(&p, &(struct st_pace_window) { (uint64_t) (2e7 * rate * noise(share)), 20000000, 19000000, 20000000 });
    }
    CHECK("pace-fewer and more are tried", largest > smallest);
    CHECK("pace-close to the best once it is learned", learned >= 0.95 * best * (windows - later));
    CHECK("pace-learning costs little", got >= 0.93 * best * windows);
}

static void nobody_waits(void) {
    struct st_pace p;
    const struct st_pace_options o = automatic(8, 8, MOST);
    st_pace_init(&p, &o);
    for (int i = 0; i < 400; i++) {  // more threads would be faster, but nobody would notice
        CHECK("pace-no more threads than anybody waits for", st_pace_threads(&p) <= 8);
        st_pace_seen(&p, &(struct st_pace_window) { (uint64_t) (2e7 * rate_of(SATURATES, 8, st_pace_threads(&p))), 20000000, 100000, 100000000 });
    }
    CHECK("pace-fewer where nobody waits", p.sides[ST_PROFILE_RAM].level == 0);
    for (int i = 0; i < 1000; i++) {
        st_pace_seen(&p, &(struct st_pace_window) { (uint64_t) (2e7 * rate_of(SATURATES, 8, st_pace_threads(&p))), 20000000, 19000000, 20000000 });
    }
    CHECK("pace-more when somebody waits", p.sides[ST_PROFILE_RAM].level >= 4);
}

// A wait that begins with the last thread fewer: that thread is kept.
static void just_enough(void) {
    struct st_pace p;
    const struct st_pace_options o = automatic(8, 8, MOST);
    st_pace_init(&p, &o);
    int waited = 0;
    for (int i = 0; i < 600; i++) {
        const bool waits = st_pace_threads(&p) < 4;
        waited += waits;
        st_pace_seen(&p, &(struct st_pace_window) { (uint64_t) (2e7 * rate_of(SATURATES, 8, st_pace_threads(&p))), 20000000, waits ? 19000000 : 100000, 100000000 });
    }
    CHECK("pace-as few as nobody waits for", p.sides[ST_PROFILE_RAM].level == 2);
    CHECK("pace-nobody is made to wait for long", waited < 600 / 25);
}

// What was learned of a machine does not hold for another: here, a disk that now has to seek, and then not any more.
static void machine_changes(void) {
    struct st_pace p;
    const struct st_pace_options o = automatic(2, 2, MOST);
    st_pace_init(&p, &o);
    for (int turn = 0; turn < 4; turn++) {
        for (int i = 0; i < 400; i++) {
            const double rate = rate_of(turn % 2 ? TURNS : SATURATES, turn % 2 ? 2 : 16, st_pace_threads(&p));
            st_pace_seen(&p, &(struct st_pace_window) { (uint64_t) (2e7 * rate * noise(0.03)), 20000000, 19000000, 20000000 });
        }
        CHECK("pace-learns anew when the machine changes", turn % 2 ? p.sides[ST_PROFILE_RAM].level == 1 : p.sides[ST_PROFILE_RAM].level == 5);
    }
}

static void anything(void) {  // whatever comes, the numbers stay sane
    struct st_pace p;
    struct st_pace_options o = automatic(1 + below(&rng, 8), 1 + below(&rng, MOST), 8);
    st_pace_init(&p, &o);
    enum st_profile profile = p.profile;
    uint64_t changes        = 0;
    for (int i = 0; i < 1000; i++) {
        const int what = below(&rng, 40);
        if (what == 0) {
            o.wanted  = (enum st_profile) below(&rng, ST_PROFILES);
            o.threads = one_in(&rng, 4) ? 1 + below(&rng, MOST) : 0;
            o.most[ST_PROFILE_RAM] = 1 + below(&rng, 16);
            st_pace_set(&p, &o);
            CHECK("pace-as asked", o.wanted == ST_PROFILE_AUTO || p.profile == o.wanted);
            profile = p.profile;
            changes = p.changes;
        } else if (what < 20) {
            st_pace_answer(&p, !one_in(&rng, 1 + i % 12));
            CHECK("pace-changes are counted", p.changes - changes == (p.profile != profile));
            profile = p.profile;
            changes = p.changes;
        } else {
            st_pace_seen(&p, &(struct st_pace_window) { draw(&rng) % 1000000, draw(&rng) % 3 * 1000000, draw(&rng) % 2000000, draw(&rng) % 3 * 1000000 });
        }
        const int n = st_pace_threads(&p);
        CHECK("pace-threads within their bounds", n >= 1 && n <= MOST && (o.threads || o.wanted != ST_PROFILE_AUTO || n <= o.most[p.profile]));
        CHECK("pace-a trial is of this profile", p.trial >= 0 && p.trial < 3);
    }
}

int main(int argc, char ** argv) {
    check_start(argc, argv);
    rng = check_args.seed;
    nobody_waits();
    just_enough();
    for (uint64_t i = 0; i < check_args.steps; i++) {
        profile_follows();
        machine_changes();
        chosen_stays();
        anything();
        static const int firsts[] = { 1, 4, 16 };
        one_machine((enum kind) below(&rng, KINDS - 1), 1 << below(&rng, 5), firsts[below(&rng, 3)], 0.03);
    }
    printf("ok: %llu steps\n", (unsigned long long) check_args.steps);
    return 0;
}
