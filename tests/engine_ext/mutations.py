"""Removes one guard of the pure parts at a time and shows which named check of the test programs fails for it.

Prints a line for each guard. Ends with 1 when a guard can be removed and no check notices, or when it is noticed
by another check than the one that stands for it.
"""

from __future__ import annotations

import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pure_parts

FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-g", "-O0", "-pthread"]  # no -Werror: what lost its use may stay behind
STEPS = {
    "test_residency": 50_000,
    "test_adapt": 5_000,
    "test_stage": 200_000,
    "test_source": 1_000,
    "test_pace": 20,
    "test_stager": 2_000,
    "test_flow": 20_000,
    "test_transport_thread": 20_000,
}
SEEDS = (1, 2, 3)  # tried in turn: threads differ from run to run
SECONDS = 20  # until a mutant counts as hanging, unless a hang is what is expected of it
FAILED = re.compile(r"check failed: (.+?): |transport_sim: (\w+)|Assertion `(.+?)' failed")


@dataclass(frozen=True)
class Guard:
    """In `part`.c (whole, or what the program has of it as an excerpt), `old` becomes `new` (the `nth` place where
    it stands); then `program` fails with one of `checks`."""

    what: str
    part: str
    old: str
    new: str
    program: str
    checks: tuple[str, ...]
    nth: int = 0
    seconds: int = SECONDS


GUARDS = [
    # --- stage.c
    Guard(
        "reap asks whether the copy has completed",
        "stage",
        "if (done) {",
        "if (done || 1) {",
        "test_stage",
        ("stage-free means that the copy has ended", "stage-claims nothing in flight"),
    ),
    Guard(
        "wait_oldest waits",
        "stage",
        "p->transport->iface->wait(p->transport, oldest->event) < 0",
        "0",
        "test_stage",
        ("stage-wait ends after the copy",),
    ),
    Guard(
        "wait_oldest takes the oldest",
        "stage",
        "buf->queued < oldest->queued",
        "buf->queued > oldest->queued",
        "test_stage",
        ("stage-waits for the oldest",),
    ),
    Guard(
        "reap skips events that were not recorded",
        "stage",
        "buf->state != ST_STAGE_IN_FLIGHT || !buf->recorded",
        "buf->state != ST_STAGE_IN_FLIGHT",
        "test_stage",
        ("EVENT_NOT_RECORDED", "stage-claims nothing whose copy failed"),
    ),
    Guard(
        "wait_oldest skips events that were not recorded",
        "stage",
        "== ST_STAGE_IN_FLIGHT && buf->recorded && (",
        "== ST_STAGE_IN_FLIGHT && (",
        "test_stage",
        ("EVENT_NOT_RECORDED", "stage-waits for the oldest", "stage-waits for nothing when nothing is in flight"),
    ),
    Guard(
        "a buffer counts as in flight before its first copy",
        "stage",
        "result = -2;",
        "buf->state = ST_STAGE_FREE;\n            return -2;",
        "test_stage",
        ("stage-states", "stage-a failed copy never frees its buffer", "stage-free means that the copy has ended"),
    ),
    Guard(
        "the event is recorded after the copies",
        "stage",
        "p->transport->iface->record(p->transport, buf->event) < 0",
        "0",
        "test_stage",
        ("EVENT_NOT_RECORDED",),
    ),
    Guard(
        "freeing the pool waits for its copies",
        "stage",
        "(void) st_stage_drain(p);",
        "",
        "test_stage",
        ("FREED_IN_FLIGHT",),
    ),
    Guard(
        "drain waits for all",
        "stage",
        "if (r <= 0) {",
        "if (r <= 1) {",
        "test_stage",
        ("stage-drain fails only with the transport", "stage-drain leaves nothing in flight"),
    ),
    Guard(
        "each buffer has a place of its own in its slab",
        "stage",
        "(uint8_t *) slab->data + (size_t) i * p->buffer_size",
        "(uint8_t *) slab->data",
        "test_stage",
        ("stage-a place for each buffer",),
    ),
    Guard(
        "a slab holds as many buffers as fit",
        "stage",
        "slab_size / size;",
        "slab_size / size + 1;",
        "test_stage",
        ("stage-as many slabs as it takes", "stage-a slab is as large as allowed"),
    ),
    Guard(
        "a slab holds one buffer at least",
        "stage",
        "fit < 1 ? 1 : ",
        "",
        "test_stage",
        ("hang", "stage-as many slabs as it takes"),
        seconds=2,
    ),
    Guard(
        "the last slab is only as large as needed",
        "stage",
        "n - first < per_slab ? n - first : per_slab",
        "per_slab",
        "test_stage",
        ("stage-a slab is as large as allowed",),
    ),
    Guard(
        "the driver is not asked again once it refused",
        "stage",
        "pin = false;",
        "",
        "test_stage",
        ("stage-pageable from the refused slab on", "stage-refused bytes"),
    ),
    Guard("a refused slab is counted", "stage", "p->refused += size;", "", "test_stage", ("stage-refused bytes",)),
    Guard(
        "bytes are counted where they are",
        "stage",
        "*(slab->pinned ?",
        "*(pin ?",
        "test_stage",
        ("stage-pinned and pageable bytes",),
    ),
    Guard(
        "a pool without all its memory is not used",
        "stage",
        "if (!good) {",
        "if (0) {",
        "test_stage",
        ("stage-init says when memory or events are short",),
    ),
    # --- residency.c
    Guard(
        "the running group keeps its slots",
        "residency",
        "s < 0 || r->group[s] == r->current",
        "s < 0",
        "test_residency",
        ("residency-claims while a slot is left", "r->state[s] != ST_SLOT_LOADING"),
    ),
    Guard(
        "a use marks the slot for the running group",
        "residency",
        "r->group[s] = r->current;",
        "",
        "test_residency",
        ("residency-claims while a slot is left", "r->state[s] != ST_SLOT_LOADING"),
    ),
    Guard(
        "a use makes the slot the newest",
        "residency",
        "list_push_newest(r, s);",
        "list_push_oldest(r, s);",
        "test_residency",
        ("residency-lru order", "residency-claims the least recently used", "residency-claims while a slot is left"),
    ),
    Guard(
        "an evicted key leaves the table",
        "residency",
        "r->slot_of[*evicted] = -1;",
        "",
        "test_residency",
        ("residency-table", "residency-find"),
    ),
    Guard(
        "an abandoned key leaves the table",
        "residency",
        "r->slot_of[r->key_of[s]] = -1;",
        "",
        "test_residency",
        ("residency-table", "r->slot_of[key] < 0"),
    ),
    Guard(
        "an abandoned slot is the next to be claimed",
        "residency",
        "list_remove(r, s);\n    list_push_oldest(r, s);",
        "",
        "test_residency",
        ("residency-lru order", "residency-claims the least recently used", "residency-claims while a slot is left"),
    ),
    Guard(
        "a slot is found only when it is published",
        "residency",
        "s >= 0 && r->state[s] == ST_SLOT_RESIDENT ? s : -1",
        "s",
        "test_residency",
        ("residency-not found while loading", "residency-find"),
    ),
    Guard(
        "homes are not claimed",
        "residency",
        "r->home[s] = home;",
        "",
        "test_residency",
        (
            "residency-guests and homes apart",
            "residency-spares the homes",
            "residency-list",
            "residency-claims while a slot is left",
        ),
    ),
    Guard(
        "a new home leaves the guests' list",
        "residency",
        "list_remove(r, s);\n        r->home[s]",
        "r->home[s]",
        "test_residency",
        (
            "residency-guests and homes apart",
            "residency-spares the homes",
            "residency-list",
            "residency-links",
            "residency-claims while a slot is left",
        ),
    ),
    Guard(
        "a new home is the newest",
        "residency",
        "? 1 : -1;\n        list_push_newest(r, s);",
        "? 1 : -1;\n        list_push_oldest(r, s);",
        "test_residency",
        ("residency-lru order", "residency-claims while a slot is left", "residency-claims the least recently used"),
    ),
    Guard(
        "homes are counted",
        "residency",
        "r->n_homes += home ? 1 : -1;",
        "r->n_homes += 1;",
        "test_residency",
        ("residency-n_homes",),
    ),
    Guard(
        "a touched slot stays in its list",
        "residency",
        "const int list = r->home[s];\n    r->newer[s] = -1;",
        "const int list = 0;\n    r->newer[s] = -1;",
        "test_residency",
        (
            "residency-guests and homes apart",
            "residency-list",
            "residency-links",
            "residency-claims while a slot is left",
            "residency-spares the homes",
        ),
    ),
    Guard(
        "an abandoned home becomes a guests' slot",
        "residency",
        "st_residency_set_home(r, s, false);",
        "",
        "test_residency",
        (
            "residency-guests and homes apart",
            "residency-n_homes",
            "residency-claims while a slot is left",
            "residency-claims the least recently used",
        ),
    ),
    # --- adapt.c
    Guard(
        "a newcomer leads by a margin",
        "adapt",
        " + rule->margin",
        "",
        "test_adapt",
        ("adapt-a newcomer leads by the margin", "adapt-never goes back"),
    ),
    Guard(
        "a newcomer was used enough",
        "adapt",
        "usage[k] >= rule->minimum && ",
        "",
        "test_adapt",
        ("adapt-a newcomer has the least usage",),
    ),
    Guard(
        "homes that are LOADING stay",
        "adapt",
        "if (r->state[s] == ST_SLOT_RESIDENT) {",
        "if (1) {",
        "test_adapt",
        ("adapt-leaves alone what is LOADING",),
    ),
    Guard(
        "guests that are LOADING are no newcomers",
        "adapt",
        " && (s < 0 || r->state[s] == ST_SLOT_RESIDENT)",
        "",
        "test_adapt",
        ("adapt-leaves alone what is LOADING",),
    ),
    Guard(
        "the hottest and coldest are kept in order",
        "adapt",
        "sign * x.usage > sign * list[at - 1].usage",
        "0",
        "test_adapt",
        ("adapt-hottest for coldest", "adapt-as many as are worth it", "adapt-a newcomer leads by the margin"),
    ),
    Guard(
        "one that is no better than the last kept is left out",
        "adapt",
        "if (*n == cap && sign * x.usage <= sign * list[cap - 1].usage) {",
        "if (0) {",
        "test_adapt",
        ("adapt-hottest for coldest", "adapt-as many as are worth it", "adapt-a newcomer has the least usage"),
    ),
    Guard("usage decays", "adapt", "usage[k] *= rule->decay;", "", "test_adapt", ("adapt-usage decays",)),
    # --- policy.c
    Guard(
        "copies of swaps wait for the reads of their slots",
        "policy",
        'io->copies_wait(t->transport, compute) < 0 ? st_fail(t, "the copy stream failed") : 0;',
        "0;",
        "test_flow",
        ("OVERWRITTEN_TOO_EARLY",),
    ),
    Guard(
        "reads wait for the copies of a swap that is needed at once",
        "policy",
        "compute ? io->compute_waits(t->transport, compute, t->swap_event) :",
        "compute ? 0 :",
        "test_flow",
        ("READ_TOO_EARLY",),
    ),
    Guard(
        "a switch waits for the pending swaps",
        "policy",
        ": io->wait(t->transport, t->swap_event);",
        ": 0;",
        "test_flow",
        ("READ_TOO_EARLY", "flow-a switch publishes only what has arrived"),
    ),
    Guard(
        "a switch publishes the pending swaps",
        "policy",
        "st_policy_finish(t, NULL) < 0",
        "0",
        "test_flow",
        ("flow-a policy is set", "flow-what is LOADING is a pending swap"),
    ),
    Guard(
        "a round asks whether the swaps have arrived",
        "policy",
        "if (!done) {",
        "if (0) {",
        "test_flow",
        ("flow-a round publishes only what has arrived",),
    ),
    Guard(
        "another stream waits for the copies of a swap that was needed",
        "policy",
        " || io->record(t->transport, t->group_event) < 0",
        "",
        "test_flow",
        ("READ_TOO_EARLY", "EVENT_NOT_RECORDED"),
    ),
    Guard(
        "an event stands behind the copies of swaps",
        "policy",
        "t->n_pending > 0 && io->record(t->transport, t->swap_event) < 0",
        "0",
        "test_flow",
        ("EVENT_NOT_RECORDED", "READ_TOO_EARLY"),
    ),
    Guard(
        "swaps are given up when a copy or its event is refused",
        "policy",
        "for (; result < 0 && t->n_pending > 0;",
        "for (; result < 0 && t->n_pending < 0;",
        "test_flow",
        (
            "WRONG_BYTES",
            "EVENT_NOT_RECORDED",
            "READ_TOO_EARLY",
            "flow-a failed round leaves no swap of its own",
            "flow-a round publishes only what has arrived",
        ),
    ),
    Guard(
        "only what is in the mirror is copied",
        "policy",
        "!c->mirror || !c->mirror[s->key] ||",
        "!c->mirror ||",
        "test_flow",
        ("SOURCE_UNKNOWN",),
    ),
    Guard(
        "guests keep room for a token",
        "policy",
        "return share > c->min_slots ? share : c->min_slots < c->n_slots ? c->min_slots : c->n_slots;",
        "return share;",
        "test_flow",
        ("flow-homes leave room for guests",),
    ),
    Guard(
        "a home that is exchanged becomes a guests' slot",
        "policy",
        "st_residency_set_home(r, s->home, false);",
        "",
        "test_flow",
        ("flow-homes leave room for guests",),
    ),
    Guard(
        "only residents become homes",
        "policy",
        "if (r->state[s] == ST_SLOT_RESIDENT) {",
        "if (1) {",
        "test_flow",
        ("flow-a home is not empty",),
    ),
    Guard(
        "plain LRU has no homes",
        "policy",
        "policy == ST_POLICY_LRU && s < r->n_slots",
        "0",
        "test_flow",
        ("flow-no homes with plain LRU",),
    ),
    Guard(
        "frozen homes stay",
        "policy",
        "t->policy != ST_POLICY_ADAPTIVE ||",
        "t->policy == ST_POLICY_LRU ||",
        "test_flow",
        ("flow-swaps only of the adaptive tier, in decode",),
    ),
    Guard(
        "a prompt does not swap",
        "policy",
        " || atomic_load_explicit(&t->phase, memory_order_relaxed) != ST_PHASE_DECODE",
        "",
        "test_flow",
        ("flow-swaps only of the adaptive tier, in decode",),
    ),
    Guard(
        "the traces tell of a swap's end",
        "policy",
        "st_trace_add(t, c, t->pending[i].slot, 'p',",
        "if (0) st_trace_add(t, c, t->pending[i].slot, 'p',",
        "test_flow",
        ("flow-the trace ends with what is",),
    ),
    # --- graph.c, tier.c: their excerpts
    Guard(
        "a pending swap that is needed ends first",
        "graph",
        "&& st_policy_finish(t, b->inner) < 0",
        "&& 0",
        "test_flow",
        ("r->slot_of[key] < 0", "slot >= 0"),
    ),
    Guard(
        "hits are touched before misses claim",
        "graph",
        "st_residency_touch(&c->residency, b->slot[e]);",
        "",
        "test_flow",
        ("flow-published when all is well, else not", "slot >= 0", "flow-one slot, one expert"),
    ),
    Guard(
        "another stream waits for the copies of the last load",
        "graph",
        "(t->loaded && io->compute_waits(t->transport, next, t->group_event) < 0)",
        "0",
        "test_flow",
        ("READ_TOO_EARLY",),
    ),
    Guard(
        "copies for another stream wait for the reads of the last one",
        "graph",
        "(t->compute && io->copies_wait(t->transport, t->compute) < 0)",
        "0",
        "test_flow",
        ("OVERWRITTEN_TOO_EARLY",),
    ),
    Guard(
        "a stream that is gone is not waited for",
        "graph",
        "b->tier->compute = NULL;",
        "",
        "test_flow",
        ("flow-the end of a context leaves no trace of it",),
    ),
    Guard(
        "room is for guests alone",
        "graph",
        "p->class_->n_slots - p->class_->residency.n_homes",
        "p->class_->n_slots",
        "test_flow",
        ("slot >= 0",),
    ),
    Guard(
        "the end waits for copies from the mirror",
        "tier",
        "(void) t->transport->iface->wait(t->transport, t->group_event);",
        "",
        "test_flow",
        ("FREED_IN_FLIGHT",),
    ),
    # --- prefill.c, selftest.c
    Guard(
        "pre-fill takes the hottest",
        "prefill",
        "x->usage > y->usage ? -1 : 1",
        "x->usage > y->usage ? 1 : -1",
        "test_flow",
        ("flow-pre-fill takes the hottest last", "flow-pre-fill takes the hottest"),
    ),
    Guard(
        "pre-fill spreads equals over the layers",
        "prefill",
        "e * t->n_groups + i, key",
        "key, key",
        "test_flow",
        ("flow-pre-fill spreads over the layers",),
    ),
    Guard(
        "pre-fill takes the hottest last",
        "prefill",
        "list[--left].key",
        "list[c->n_slots - left--].key",
        "test_flow",
        ("flow-pre-fill takes the hottest last",),
    ),
    Guard(
        "pre-fill wants empty slots",
        "prefill",
        "t->classes[k].residency.n_resident > 0 || ",
        "",
        "test_flow",
        (
            "r->slot_of[key] < 0",
            "r->state[s] == ST_SLOT_LOADING",
            "slot >= 0",
            "flow-pre-fill wants empty slots",
            "OVERWRITTEN_TOO_EARLY",
        ),
    ),
    Guard(
        "the first stream after a pre-fill waits for it",
        "prefill",
        "t->compute = NULL;",
        "",
        "test_flow",
        ("READ_TOO_EARLY",),
    ),
    Guard(
        "pre-fill hands its usage on",
        "prefill",
        "c->usage[list[i].key] = list[i].usage;",
        "",
        "test_flow",
        ("flow-pre-fill hands the usage on",),
    ),
    Guard(
        "the self-test waits for its copies",
        "selftest",
        "st_stage_drain(&t->pool) < 0",
        "0",
        "test_flow",
        ("flow-self-test compares what has arrived",),
    ),
    Guard(
        "the self-test compares",
        "selftest",
        "pattern(copy, i);\n        }\n        char",
        "pattern(copy + (copy == 1), i);\n        }\n        char",
        "test_flow",
        ("flow-self-test passes when copies work",),
    ),
    Guard(
        "the self-test wants a pool",
        "selftest",
        " || !t->pool_built",
        "",
        "test_flow",
        ("flow-self-test passes when copies work",),
    ),
    # --- load.c
    Guard(
        "copies wait for the reads of their slots",
        "load",
        "io->copies_wait(t->transport, compute) < 0",
        "0",
        "test_flow",
        ("OVERWRITTEN_TOO_EARLY",),
    ),
    Guard(
        "reads wait for the copies to their slots",
        "load",
        "(compute && io->compute_waits(t->transport, compute, t->group_event) < 0)",
        "0",
        "test_flow",
        ("READ_TOO_EARLY",),
    ),
    Guard(
        "slots are given up only when nothing writes to them",
        "load",
        "recorded && io->wait(t->transport, t->group_event) < 0",
        "false",
        "test_flow",
        ("flow-a slot that was given up does not change any more",),
    ),
    Guard(
        "what was not loaded is not published",
        "load",
        "st_residency_abandon(&c->residency",
        "st_residency_publish(&c->residency",
        "test_flow",
        ("flow-published when all is well, else not",),
    ),
    Guard(
        "a cancel collects the fills that run",
        "load",
        "for (; open > 0; open--) {",
        "for (; open < 0; open--) {",
        "test_flow",
        ("flow-no buffer is left FILLING or READY",),
    ),
    Guard(
        "a failed read gives its buffer up",
        "load",
        "st_stage_give_up(&t->pool, job->tag);",
        "",
        "test_flow",
        ("flow-no buffer is left FILLING or READY",),
    ),
    Guard(
        "a failed read fails the load",
        "load",
        "if (job->failed) {",
        "if (0) {",
        "test_flow",
        (
            "flow-no success with a failed read",
            "flow-pre-fill tells how many",
            "WRONG_BYTES",
            "flow-published when all is well, else not",
        ),
    ),
    # --- mirror.c, pool.c
    Guard(
        "a failed read leaves the mirror without that expert",
        "mirror",
        "if (job->failed) {",
        "if (0) {",
        "test_flow",
        ("flow-mirror fails only with a read", "WRONG_BYTES"),
    ),
    Guard(
        "pinned is asked of the memory",
        "pool",
        "m.pinned         = t->pool.pinned > 0;",
        "m.pinned         = try_pin;",
        "test_flow",
        ("flow-modes say where the bytes are",),
    ),
    # --- stager.c
    Guard("a failed piece fails its job", "stager", "job->failed = true;", "", "test_stager", ("stager-failed",)),
    Guard(
        "a job is done only when all its pieces are",
        "stager",
        "if (--job->left > 0) {",
        "if (--job->left > 1) {",
        "test_stager",
        ("stager-all pieces filled", "stager-NULL only when no job is open", "hang"),
        seconds=4,
    ),
    Guard(
        "only threads that take part take pieces",
        "stager",
        "if (index >= s->n_active) {",
        "if (0) {",
        "test_stager",
        ("stager-not more threads than take part", "stager-without threads the collector fills"),
    ),
    Guard(
        "threads are woken for the pieces of a job",
        "stager",
        "        pthread_cond_signal(&s->work);\n",
        "",
        "test_stager",
        ("hang",),
        seconds=2,
    ),
    Guard(
        "threads that are to take part again are woken",
        "stager",
        "pthread_cond_broadcast(&s->parked);\n    }\n    return active;",
        "}\n    return active;",
        "test_stager",
        ("hang",),
        seconds=2,
    ),
    Guard(
        "threads that are not to take part do not wait for work",
        "stager",
        "pthread_cond_broadcast(&s->work);  // those",
        "// those",
        "test_stager",
        ("hang",),
        seconds=4,
    ),
    Guard(
        "what fills found out is passed on",
        "stager",
        "answer(s, filled.cached > 0);",
        "",
        "test_stager",
        ("stager-answers are passed on", "stager-fills choose the profile, and fewer threads take part"),
        seconds=40,
    ),
    Guard(
        "the number of threads follows the pace",
        "stager",
        "st_pace_seen(&s->pace, &w);",
        "",
        "test_stager",
        ("hang",),
        seconds=6,
    ),
    Guard(
        "samples change the number of threads",
        "stager",
        "    follow(s);\n    begin_window(s);  //",
        "    begin_window(s);  //",
        "test_stager",
        ("stager-samples choose the profile and its threads",),
    ),
    Guard(
        "a thread that was refused is not asked for with each job",
        "stager",
        "s->granted    = got < n ? got : s->granted;",
        "",
        "test_stager",
        ("stager-a refused thread is not asked for with each job",),
    ),
    Guard(
        "the collector is woken for a finished job",
        "stager",
        "pthread_cond_signal(&s->done);",
        "",
        "test_stager",
        ("hang",),
        seconds=2,
    ),
    # --- pace.c
    Guard(
        "a few answers are no profile",
        "pace",
        " || p->n_answers < KNOWN",
        "",
        "test_pace",
        ("pace-few answers change nothing",),
    ),
    Guard(
        "between its limits the profile stays",
        "pace",
        "#define TO_SSD 0.75",
        "#define TO_SSD 0.89",
        "test_pace",
        ("pace-no to and fro between the limits", "pace-some missing reads are not enough"),
    ),
    Guard(
        "a chosen profile stays",
        "pace",
        "p->options.wanted != ST_PROFILE_AUTO || p->n",
        "p->n",
        "test_pace",
        ("pace-what is chosen stays",),
    ),
    Guard(
        "a trial ends with its profile",
        "pace",
        "p->trial   = 0;  // its windows were",
        "// its windows were",
        "test_pace",
        ("pace-threads within their bounds",),
    ),
    Guard(
        "no more threads where nobody waits",
        "pace",
        " && !(up && enough)",
        "",
        "test_pace",
        ("pace-no more threads than anybody waits for",),
    ),
    Guard(
        "no fewer threads where somebody would wait",
        "pace",
        "side->level -= still_enough;",
        "side->level--;",
        "test_pace",
        ("pace-nobody is made to wait for long",),
    ),
    Guard(
        "no more threads than allowed",
        "pace",
        "k < highest(p->options.most[p->profile])",
        "k < ST_PACE_STEPS",
        "test_pace",
        ("pace-threads within their bounds",),
    ),
    Guard(
        "what is not true any more is forgotten",
        "pace",
        "step->n > 0 && from * from >",
        "0 && from * from >",
        "test_pace",
        ("pace-learns anew when the machine changes",),
    ),
    # --- source.c
    Guard(
        "a direct read is not begun by the question",
        "source",
        "if (how & ST_DIRECT) {  //",
        "if (0) {  //",
        "test_source",
        ("source-what is read past the page cache stays out of it",),
    ),
    Guard(
        "a part in the page cache is not all",
        "source",
        "out->cached = (size_t) n == size && took",
        "out->cached = n > 0 && took",
        "test_source",
        ("source-half is not all", "source-a yes costs nothing"),
    ),
    Guard(
        "a file system that does not say is not believed",
        "source",
        "atomic_store_explicit(&s->silent, true, memory_order_relaxed);",
        "",
        "test_source",
        ("source-where nobody says, waiting tells",),
    ),
    Guard(
        "an interrupted read is repeated",
        "source",
        "if (n < 0 && errno == EINTR) {\n            continue;\n        }\n        if (n <= 0) {  //",
        "if (n <= 0) {  //",
        "test_source",
        ("source-reads",),
    ),
    Guard(
        "a direct read is whole",
        "source",
        "const bool whole = done >= head + size;",
        "const bool whole = true;",
        "test_source",
        ("source-a file that became shorter is an error", "source-bytes"),
    ),
    Guard(
        "the end of a file is no byte",
        "source",
        "if (n <= 0) {  // an error, or the file became shorter\n            return -1;",
        "if (n <= 0) {  // an error, or the file became shorter\n            return 0;",
        "test_source",
        ("source-a file that became shorter is an error",),
    ),
    # --- transport_thread.c
    Guard(
        "the compute side waits for the event",
        "transport_thread",
        "return tt_wait(base, event);",
        "return 0;",
        "test_transport_thread",
        ("thread-compute sees the copy",),
    ),
    Guard(
        "wait waits",
        "transport_thread",
        "while (t->n_done < ((struct event *) event)->number) {",
        "while (0) {",
        "test_transport_thread",
        ("thread-query after wait",),
    ),
    Guard(
        "query asks how many copies are done",
        "transport_thread",
        "t->n_done >= ((struct event *) event)->number;",
        "1;",
        "test_transport_thread",
        ("thread-delay makes copies late",),
    ),
    Guard(
        "a copy counts as done after its bytes are there",
        "transport_thread",
        "    t->n_done++;\n",
        "",
        "test_transport_thread",
        ("hang",),
        seconds=2,
    ),
    Guard(
        "a queue that grows keeps its order",
        "transport_thread",
        "queue[i] = t->queue[(t->head + i) % t->capacity];",
        "queue[i] = t->queue[i];",
        "test_transport_thread",
        ("thread-order of all copies",),
    ),
    Guard(
        "the end runs what is queued",
        "transport_thread",
        "if (t->count == 0) {\n            break;",
        "if (t->stop) {\n            break;",
        "test_transport_thread",
        ("thread-free drains",),
    ),
]


def mutated(guard: Guard) -> str:
    """The part's text without the guard."""
    text = (pure_parts.ENGINE_EXT / f"{guard.part}.c").read_text()
    places = [m.start() for m in re.finditer(re.escape(guard.old), text)]
    if guard.nth >= len(places):
        raise LookupError(f"{guard.part}.c has no `{guard.old}` to remove (guard: {guard.what})")
    at = places[guard.nth]
    return text[:at] + guard.new + text[at + len(guard.old) :]


def failed_check(stderr: str) -> str | None:
    """The name of the check that failed first, or None."""
    found = FAILED.search(stderr)
    return next(group for group in found.groups() if group) if found else None


def objects_of(cc: str, program: pure_parts.Program, folder: Path) -> dict[str, Path]:
    """The program's object files by their part's name, built once."""
    folder.mkdir()
    pure_parts.write_excerpts(program, folder)
    sources = [pure_parts.HERE / f"{program.name}.c", *(pure_parts.ENGINE_EXT / name for name in program.sources)]
    return {o.stem: o for o in pure_parts.compile_objects(cc, sources, FLAGS, folder)}


def try_guard(cc: str, guard: Guard, objects: dict[str, Path], folder: Path) -> str | None:
    """Runs the program without the guard. Returns what is wrong with the outcome, or None; prints the outcome."""
    folder.mkdir()
    program = pure_parts.PROGRAMS[guard.program]
    changed = mutated(guard)
    if guard.part in program.parts:
        source = folder / f"{guard.part}.c"
        source.write_text(changed)
    else:
        source = pure_parts.HERE / f"{program.name}.c"
        pure_parts.write_excerpts(program, folder, {guard.part: changed})
    (mutant,) = pure_parts.compile_objects(cc, [source], FLAGS, folder)
    linked = [mutant if part == source.stem else o for part, o in objects.items()]
    binary = pure_parts.link(cc, program, linked, FLAGS, folder)
    for seed in SEEDS:
        done = pure_parts.run(binary, seed, STEPS[guard.program], seconds=guard.seconds)
        if done.returncode != 0:
            break
    check = failed_check(done.stderr)
    fine = done.returncode != 0 and check in guard.checks
    outcome = check or f"exit {done.returncode}, no check failed"
    print(f"{'ok  ' if fine else 'FAIL'} {guard.part}.c: {guard.what}: {outcome}")
    return None if fine else guard.what


def main() -> int:
    cc = pure_parts.compiler()
    if cc is None:
        print("there is no C compiler", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(3) as pool:
        folder = Path(name)
        compiled = pool.map(lambda p: objects_of(cc, pure_parts.PROGRAMS[p], folder / p), STEPS)
        built = dict(zip(STEPS, compiled, strict=True))
        for program, objects in built.items():  # without a mutation all is well, so it is the mutation that fails
            binary = pure_parts.link(cc, pure_parts.PROGRAMS[program], list(objects.values()), FLAGS, folder / program)
            done = pure_parts.run(binary, 1, STEPS[program])
            if done.returncode != 0:
                print(f"{program} fails without any mutation:\n{done.stderr}", file=sys.stderr)
                return 1
        wrong = list(
            pool.map(lambda i: try_guard(cc, GUARDS[i], built[GUARDS[i].program], folder / f"m{i}"), range(len(GUARDS)))
        )
    left = [what for what in wrong if what is not None]
    print(f"{len(GUARDS) - len(left)} of {len(GUARDS)} guards are shown to be needed")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
