#include "pace.h"

#include <string.h>

#define KNOWN 8           // answers before which the profile is not changed
#define TO_RAM 0.90       // share of cached answers from which the profile is ram ...
#define TO_SSD 0.75       // ... and at which it becomes ssd
#define WORTH 0.02        // twice as many threads must fill by this share faster
#define DEVIATION 0.10    // of one trial, as long as there are few to tell by
#define FADING 12         // trials that are remembered
#define RARELY_WAITED 0.02
#define FIRST_PAUSE 2     // windows between trials, twice as many each time the result is clear
#define LONGEST_PAUSE 64

static bool measured(const struct st_pace * p) {
    return p->options.wanted == ST_PROFILE_AUTO && p->options.threads == 0;
}

static int highest(int threads) {  // the level of at most so many threads
    int level = 0;
    while (level < ST_PACE_STEPS && 2 << level <= threads) {
        level++;
    }
    return level;
}

void st_pace_init(struct st_pace * p, const struct st_pace_options * options) {
    memset(p, 0, sizeof *p);
    p->profile = ST_PROFILE_RAM;
    for (int i = ST_PROFILE_RAM; i < ST_PROFILES; i++) {
        p->sides[i].level = highest(options->first[i]);
        for (int k = 0; k < ST_PACE_STEPS; k++) {
            p->sides[i].steps[k].pause = p->sides[i].steps[k].left = FIRST_PAUSE;
        }
    }
    st_pace_set(p, options);
}

void st_pace_set(struct st_pace * p, const struct st_pace_options * options) {
    p->options = *options;
    p->trial   = 0;
    for (int i = ST_PROFILE_RAM; i < ST_PROFILES; i++) {
        const int most    = highest(options->most[i]);
        p->sides[i].level = p->sides[i].level < most ? p->sides[i].level : most;
    }
    if (options->wanted != ST_PROFILE_AUTO) {
        p->profile = options->wanted;
    }
}

int st_pace_cached(const struct st_pace * p) {
    int n = 0;
    for (uint32_t a = p->answers; a; a &= a - 1) {
        n++;
    }
    return n;
}

void st_pace_answer(struct st_pace * p, bool cached) {
    p->answers = p->answers << 1 | cached;
    p->n_answers += p->n_answers < ST_PACE_ANSWERS;
    if (p->options.wanted != ST_PROFILE_AUTO || p->n_answers < KNOWN) {
        return;
    }
    const int yes = st_pace_cached(p);
    const enum st_profile next = yes >= TO_RAM * p->n_answers ? ST_PROFILE_RAM : yes <= TO_SSD * p->n_answers ? ST_PROFILE_SSD : p->profile;
    if (next != p->profile) {
        p->profile = next;
        p->trial   = 0;  // its windows were of another kind
        p->changes++;
    }
}

int st_pace_threads(const struct st_pace * p) {
    if (p->options.threads > 0) {
        return p->options.threads;
    }
    if (!measured(p)) {
        return p->options.first[p->profile];
    }
    const int level = p->sides[p->profile].level;
    return 1 << (p->trial == 1 ? p->up ? level + 1 : level - 1 : level);
}

static void put_off(struct st_pace_step * step, bool clear) {
    step->pause = !clear ? FIRST_PAUSE : step->pause < LONGEST_PAUSE ? 2 * step->pause : LONGEST_PAUSE;
    step->left  = step->pause;
}

// What a trial was worth: `gain` of the step from fewer to more threads.
static void learn(struct st_pace_side * side, struct st_pace_step * step, bool up, double gain) {
    double from = gain - step->gain;
    if (step->n > 0 && from * from > 4 * (step->spread + DEVIATION * DEVIATION)) {  // chance, or the machine has changed
        if (!step->odd) {
            step->odd = true;
            put_off(step, false);
            return;
        }
        step->n    = 0;  // twice is no chance
        step->gain = step->spread = 0;
        from       = gain;
    }
    step->odd = false;
    step->n += step->n < FADING;
    step->gain += from / step->n;
    step->spread += (from * (gain - step->gain) - step->spread) / step->n;
    // The error of the mean, from what was seen and, while that is little, from what is usual.
    const double error = (step->spread * step->n + 2 * DEVIATION * DEVIATION) / (step->n + 2) / step->n;  // squared
    const double above = step->gain - WORTH;
    const bool clear   = above * above > error, worth = clear && above > 0, worthless = clear && above < 0;
    if (up ? worth : worthless) {
        side->level += up ? 1 : -1;
    }
    put_off(step, clear);
}

// A trial where nobody waited: fewer threads are as good, for as long as nobody does.
static void fewer(struct st_pace_side * side, struct st_pace_step * step, bool still_enough) {
    side->level -= still_enough;
    put_off(step, !still_enough);
}

// Begins a trial where one is due.
static void begin(struct st_pace * p, double rate, bool enough) {
    struct st_pace_side * side = &p->sides[p->profile];
    bool due[2];
    for (int up = 0; up < 2; up++) {
        const int k = up ? side->level : side->level - 1;
        due[up]     = k >= 0 && k < highest(p->options.most[p->profile]);
        if (due[up]) {
            side->steps[k].left -= side->steps[k].left > 0;
            due[up] = side->steps[k].left == 0 && !(up && enough);
        }
    }
    if (due[0] || due[1]) {
        p->up        = due[0] && due[1] ? side->up : due[1];
        side->up     = !p->up;
        p->trial     = 1;
        p->rate[0]   = rate;
        p->enough[0] = enough;
    }
}

void st_pace_seen(struct st_pace * p, const struct st_pace_window * w) {
    if (!measured(p) || w->bytes == 0 || w->busy_ns == 0 || w->passed_ns == 0) {
        return;
    }
    // Where nobody waits for a blob, threads are not missing, and fewer leave more of the processor to others.
    const bool enough = (double) w->waited_ns < RARELY_WAITED * (double) w->passed_ns;
    const double rate = (double) w->bytes / (double) w->busy_ns;
    struct st_pace_side * side = &p->sides[p->profile];
    if (p->trial == 0) {
        begin(p, rate, enough);
    } else if (p->trial == 1) {
        p->trial     = 2;
        p->rate[1]   = rate;
        p->enough[1] = enough;
    } else {
        struct st_pace_step * step = &side->steps[p->up ? side->level : side->level - 1];
        const double usual = (p->rate[0] + rate) / 2, tried = p->rate[1];
        const double gain  = 2 * (tried - usual) / (tried + usual);
        p->trial = 0;
        if (p->enough[0] && enough && !p->up) {
            fewer(side, step, p->enough[1]);
        } else {
            learn(side, step, p->up, p->up ? gain : -gain);
        }
    }
}
