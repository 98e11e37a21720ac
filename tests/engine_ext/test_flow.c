// The way of an expert into a slot: load.c, policy.c, prefill.c, selftest.c, pool.c, mirror.c, the stage pool, the
// stager, the residency and the plan of swaps as they are, and of graph.c and tier.c what knows no graph
// (excerpts.h is cut from them when this is built), on the simulated transport. Many layers, few slots, two
// contexts, failures, and a cancel at any step. Every read on a compute stream must see exactly the bytes of the
// expert that it was given a slot for.
//
// Here stand only the order of a round (st_graph_compute, run_split) and what the model's file does.
#include "flow_layer.h"
#include "flow_ops.h"
#include "flow_stream.h"

// The next layer is to pick what is (or is about to be) in this slot. Returns its group.
static const struct st_group * want(int k, int32_t slot, bool alone) {
    const int32_t held        = w.classes[k].residency.key_of[slot];
    const int32_t key         = held < 0 ? 0 : held;  // lent meanwhile, and empty since its copy back failed: any will do
    const struct st_group * g = &w.groups[w.key_group[k][key]];
    w.wanted = key - g->first_key;
    w.alone  = alone;
    return g;
}

static int32_t newest_resident(const struct st_residency * r) {
    for (int list = 0; list < 2; list++) {
        for (int32_t s = r->newest[list]; s >= 0; s = r->older[s]) {
            if (r->state[s] == ST_SLOT_RESIDENT) {
                return s;
            }
        }
    }
    return -1;
}

static uint64_t life(uint64_t steps) {
    make_world();
    struct st_tier * t = &w.t;
    if (one_in(&rng, 8)) {
        (void) selftest();
    }
    while (!t->pool_built) {
        apply_modes();
    }
    const bool lossy = one_in(&rng, 3);
    uint64_t n       = 0;
    bool going       = true;
    for (int i = below(&rng, 8); i > 0; i--) {
        fill_mirror();
    }
    if (one_in(&rng, 3)) {
        going = selftest();
    }
    if (going && one_in(&rng, 3)) {  // a first round that comes to nothing
        atomic_store(&t->cancel, true);
        going = begin_round() && layer(&w.groups[0]);
    }
    bool before = false;
    if (going && one_in(&rng, 2)) {  // before there is a resident, or with a few of one layer
        bool back;
        before = !one_in(&rng, 3);
        for (int i = before ? 1 + below(&rng, 3) : 0; going && i > 0; i--) {
            going = begin_round() && layer(&w.groups[below(&rng, t->n_groups)]);
        }
        for (int i = before ? 6 : 1; going && i > 0; i--) {  // best of lent slots, most of them empty
            going = set_stream();
            i     = t->stream_from > 0 && !t->ring_own ? 0 : i;
        }
        for (int i = 2 + below(&rng, 2); going && i > 0; i--) {
            going = stream() && give_back(&back);
        }
    }
    if (going && !before && (t->slots_total > 70 || one_in(&rng, 2))) {
        w.cancel_in_reads = one_in(&rng, 8) ? 1 + below(&rng, 12) : -1;
        w.fail_read_in    = one_in(&rng, 8) ? 1 + below(&rng, 30) : -1;
        going             = prefill();
    }
    if (going && one_in(&rng, 2)) {
        going = st_policy_set(t, ST_POLICY_ADAPTIVE) == 0;
    }
    if (going && one_in(&rng, 2)) {
        going = set_stream();
    }
    const int last       = t->n_classes - 1;
    const int32_t filled = newest_resident(&w.classes[last].residency);
    if (going && filled >= 0) {  // what was pre-filled last is read at once
        going = begin_round() && layer(want(last, filled, true));
    }
    int in_round = 0;
    const struct st_group * again = NULL;  // another context wants this group's `again_expert`
    int32_t again_expert = -1;
    for (int at = 0; going && n < steps; n++, at = one_in(&rng, 8) ? below(&rng, t->n_groups) : (at + 1) % t->n_groups) {
        switch (below(&rng, 24)) {
            case 0:
                apply_modes();
                break;
            case 1:
                st_pool_sample(t, -1);
                break;
            case 2:
                fill_mirror();
                break;
            case 3:
                t->threads_wanted = 1 + below(&rng, 6);
                break;
            case 4:
                struct st_pace_options options = t->stager.pace.options;
                options.threads = 1 + below(&rng, 4);
                CHECK("flow-threads", st_stager_set(&t->stager, &options) == options.threads);
                break;
            case 5:  // another context takes over; the first one's stream may still be busy
                if (one_in(&rng, 2)) {
                    st_sim_synchronize(t->transport, w.contexts[w.at].inner);
                }
                w.at     = (w.at + 1) % COMPUTES;
                in_round = 0;
                break;
            case 6:
                st_sim_synchronize(t->transport, w.contexts[w.at].inner);
                break;
            case 7:
                w.fail_read_in = 1 + below(&rng, 30);
                break;
            case 8:
                atomic_store(&t->cancel, true);
                break;
            case 9:
                w.cancel_in_reads = 1 + below(&rng, 12);
                break;
            case 10:
                w.cancel_in_calls = 1 + below(&rng, 24);
                break;
            case 11:
                if (lossy && one_in(&rng, 8)) {
                    static const enum st_sim_call kinds[] = { ST_SIM_COPY, ST_SIM_RECORD, ST_SIM_QUERY, ST_SIM_WAIT, ST_SIM_COMPUTE_WAITS, ST_SIM_COPIES_WAIT, ST_SIM_MARK, ST_SIM_COPIES_AFTER, ST_SIM_MOVE, ST_SIM_SET };
                    st_sim_fail_at(t->transport, kinds[below(&rng, 10)], (uint64_t) (1 + below(&rng, 12)));
                }
                break;
            case 12:
                if (one_in(&rng, 4)) {
                    st_sim_fail_at(t->transport, ST_SIM_REFUSE, (uint64_t) (1 + below(&rng, 12)));
                }
                break;
            case 13:
                if (one_in(&rng, 2)) {
                    going    = set_policy();
                    in_round = 0;
                }
                break;
            case 14:
                if (one_in(&rng, 4)) {  // a context ends, and another begins
                    free_context(&w.contexts[w.at]);
                    make_context(&w.contexts[w.at]);
                    in_round = 0;
                }
                break;
            case 15:
                if (one_in(&rng, 4)) {
                    going    = one_in(&rng, 3) ? prefill() : one_in(&rng, 2) ? refill() : selftest();
                    in_round = 0;
                }
                break;
            case 16:
                if (one_in(&rng, 4)) {
                    going    = set_stream();
                    in_round = 0;
                }
                break;
            case 17:
            case 18:
            case 19:
                if (one_in(&rng, 3)) {
                    going    = stream();
                    in_round = 0;
                    if (going && t->n_lent > 0 && one_in(&rng, 6)) {
                        going = one_in(&rng, 2) ? prefill() : selftest();
                    }
                    if (going && t->n_lent > 0 && one_in(&rng, 3)) {  // given back and lent again at once
                        bool back;
                        going = (one_in(&rng, 2) ? set_stream() : give_back(&back)) && stream();
                    }
                    again = going ? lent_group(&again_expert) : NULL;  // what comes back is read at once
                }
                break;
            case 20:
                if (one_in(&rng, 6)) {  // a short batch comes, or none
                    going    = ahead();
                    in_round = 0;
                }
                break;
            default:
                break;
        }
        if (going && in_round-- <= 0) {
            going    = begin_round();
            in_round = below(&rng, t->n_groups < 4 ? t->n_groups : 4);
            if (going && again) {
                at       = (int) (again - w.groups);
                w.wanted = again_expert;
                w.alone  = true;
            } else if (going && t->n_pending > 0) {
                const int i = below(&rng, t->n_pending), what = below(&rng, 10);
                if (what < 4) {  // the next layer wants an expert that is under way
                    at = (int) (want(t->pending[i].class_index, t->pending[i].slot, one_in(&rng, 2)) - w.groups);
                } else if (what == 4) {
                    going    = set_policy();
                    in_round = 0;
                } else if (what == 5) {
                    break;  // closed while swaps are under way
                } else if (what > 5) {  // a long batch, and then what was under way
                    again    = want(t->pending[i].class_index, t->pending[i].slot, true);
                    going    = stream();
                    at       = (int) (again - w.groups);
                    again    = NULL;
                    in_round = 0;
                    going    = going && begin_round();
                }
            }
            again = NULL;
        }
        const int32_t wanted = w.wanted;
        going = going && layer(&w.groups[at]);
        n_awaited_swaps += w.awaited;
        if (w.awaited && one_in(&rng, 2)) {  // another context takes over at once
            w.at         = (w.at + 1) % COMPUTES;
            in_round     = 0;
            again        = &w.groups[at];
            again_expert = wanted;
        }
        w.awaited = false;
        w.wanted  = -1;
    }
    n_lost += !going;
    for (int p = 0; p < ST_PHASES; p++) {
        CHECK("flow-counters add up", t->counters[p].loads == t->counters[p].loads_mirror + t->counters[p].loads_staged);
    }
    end_world();
    return n ? n : 1;
}

// usage: ... SEED STEPS SECONDS [fault]
int main(int argc, char ** argv) {
    check_start(argc, argv);
    rng   = check_args.seed;
    fault = argc > 4 && strcmp(argv[4], "fault") == 0;
    for (size_t i = 0; i < sizeof file; i++) {
        file[i] = i < BYTES_OF_FILE ? (uint8_t) draw(&rng) : file[i - BYTES_OF_FILE];
    }
    for (uint64_t done = 0; done < check_args.steps;) {
        const uint64_t left = check_args.steps - done;
        const uint64_t most = one_in(&rng, 2) ? 50 : 400;
        done += life(left < most ? left : most);
    }
    CHECK("flow-all kinds of runs were seen", check_args.steps < 20000 || (n_cancelled && n_failed_reads && n_lost && n_loaded && n_hits && n_swaps && n_copied_swaps && n_awaited_swaps && n_refused_swaps && n_prefilled && n_splits && n_windows));
    CHECK("flow-all kinds of streams were seen", check_args.steps < 20000 || (n_streamed && n_direct && n_layers && n_lent && n_given_back && n_broken_streams && n_own && n_small_rings && n_ahead));
    printf("ok: %llu steps; loaded %llu, hits %llu, cancelled %llu, failed reads %llu, lost transports %llu, swaps %llu (%llu with a copy, %llu awaited), "
           "pre-filled %llu, split passes %llu; streamed %llu, units ahead %llu, direct %llu, by layers %llu, lent %llu, given back %llu, cut short %llu, own memory %llu, "
           "rings refused %llu\n",
           (unsigned long long) check_args.steps, (unsigned long long) n_loaded, (unsigned long long) n_hits, (unsigned long long) n_cancelled,
           (unsigned long long) n_failed_reads, (unsigned long long) n_lost, (unsigned long long) n_swaps, (unsigned long long) n_copied_swaps,
           (unsigned long long) n_awaited_swaps, (unsigned long long) n_prefilled, (unsigned long long) n_splits, (unsigned long long) n_streamed,
           (unsigned long long) n_ahead, (unsigned long long) n_direct, (unsigned long long) n_layers, (unsigned long long) n_lent, (unsigned long long) n_given_back,
           (unsigned long long) n_broken_streams, (unsigned long long) n_own, (unsigned long long) n_small_rings);
    return 0;
}
