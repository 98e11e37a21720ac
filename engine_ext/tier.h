// One tier: the device that stands in for the real one, the experts of one model, their slots, the stage
// pool, the mirror and the counters. One per loaded model; nothing is global.
//
// Threads: everything but the atomics is touched by one thread at a time, the one that decodes (llama.cpp
// calls the backend from it). Counters, modes and the cancel flag are read and written from any thread.
#ifndef STRATA_TIER_H
#define STRATA_TIER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <pthread.h>

#include "adapt.h"
#include "clock.h"
#include "counters.h"
#include "ggml-backend-impl.h"
#include "ggml-impl.h"
#include "residency.h"
#include "ring.h"
#include "source.h"
#include "stage.h"
#include "stager.h"
#include "transport.h"
#include "window.h"

#define ST_MAX_SLICES 4  // gate, up, down, or gate_up and down; one spare
#define ST_NAME_MAX 96

struct st_shard {
    char * path;
    struct st_source source;
    size_t size;
};

// One weight tensor that holds a slice of every expert of its group.
struct st_slice {
    char name[ST_NAME_MAX];
    int group;             // index into tier->groups
    int index;             // which slice of the blob
    int shard;
    uint64_t file_offset;  // of expert 0
    enum ggml_type type;
    int64_t ne0, ne1;
    size_t bytes;          // of one expert; experts follow each other in the file
    size_t slot_offset;    // where the slice lies in a slot (and in a stage buffer)
    struct ggml_tensor * tensor;  // llama.cpp's, while the model is loaded
};

// The experts of one layer (and family): expert e's blob is slice 0 .. n_slices-1 at index e.
struct st_group {
    int layer;
    int32_t n_experts;
    int32_t n_used;
    int32_t first_key;     // key of expert 0 within its size class
    int class_index;
    int n_slices;
    struct st_slice slices[ST_MAX_SLICES];
    struct st_layer_counters counters[ST_PHASES];
};

struct st_run {  // neighbouring slices that are copied at once
    size_t offset, size;
};

// All groups whose blobs have the same layout share slots.
struct st_class {
    int n_slices;
    enum ggml_type type[ST_MAX_SLICES];
    int64_t ne0[ST_MAX_SLICES], ne1[ST_MAX_SLICES];
    size_t slot_offset[ST_MAX_SLICES];
    int n_runs;
    struct st_run runs[ST_MAX_SLICES];
    size_t blob_bytes;     // what is copied
    size_t stride;         // of a slot: the blob and its zeroed pads
    int32_t n_keys;        // experts
    int32_t min_slots;     // the most experts that one token of one layer needs at once
    int32_t * key_group;   // [n_keys]
    int32_t n_slots;
    ggml_backend_buffer_t arena;
    struct ggml_tensor weights[ST_MAX_SLICES];  // slice s of every slot, as MUL_MAT_ID wants it
    struct st_residency residency;
    float * usage;            // [n_keys] picks, decaying while the adaptive tier runs
    struct st_trace * traces; // [n_slots] what happened to each slot last
    const uint8_t ** mirror;  // [n_keys] blob in pinned RAM in slot layout, or NULL; NULL when there is no mirror
};

#define ST_TRACE 6

struct st_trace {  // the slot's last changes, a ring: for the report of a wrong byte
    struct {
        uint32_t round;
        int32_t key;
        char what;  // c claimed, p published, a abandoned, h made a home, g made a guests' slot, l lent
    } entry[ST_TRACE];
    uint32_t n;
};

struct st_mirror {
    struct st_memory * chunks;
    int n_chunks;
    size_t bytes;
};

enum st_pin { ST_PIN_AUTO = 0, ST_PIN_ON, ST_PIN_OFF };
enum st_direct { ST_DIRECT_AUTO = 0, ST_DIRECT_ON, ST_DIRECT_OFF };
enum st_policy { ST_POLICY_LRU = 0, ST_POLICY_ADAPTIVE, ST_POLICY_FROZEN };
enum st_fault { ST_FAULT_NONE = 0, ST_FAULT_NEXT_EXPERT = 1 };

struct st_modes {  // written by the deciding thread under `lock`, copied by readers
    enum st_pin pin_wanted;
    bool pinned;
    char pin_reason[128];
    enum st_profile profile_wanted;
    char direct_reason[96];  // why experts are read past the page cache; empty: they are not
    int pool_buffers;
    uint64_t generation;  // how often the pool was built
    size_t pinned_bytes, pageable_bytes, refused_bytes;
};

// A batch that streams: what its graph reads, in order (prompt.h).
struct st_batch {
    struct st_step * steps;
    struct st_unit_plan * units;
    int capacity, n, n_units;
    bool blobs;                // units are layers, not slices
    int brought;               // units whose copies are queued
    struct st_range * ranges;  // [max_experts]
    struct st_memory ids;      // of all layers, read back for the counters
};

struct st_tier {
    ggml_backend_dev_t inner;
    struct ggml_backend_device dev;
    struct ggml_backend_reg reg;
    struct ggml_backend_buffer_type buft;  // of expert tensors
    bool on_gpu;
    bool keeps_pieces;     // whether the inner backend records graphs (piece.c)
    char name[32];
    char description[128];

    struct st_shard * shards;
    int n_shards;
    struct st_group * groups;
    int n_groups;
    struct st_class * classes;
    int n_classes;
    size_t max_stride;
    int64_t n_experts_all;
    size_t blob_bytes_all;
    int32_t max_experts;   // of any group

    struct st_transport * transport;
    struct st_stage_pool pool;
    bool pool_built;
    int pool_buffers;      // as asked for
    struct st_stager stager;
    bool stager_built;
    int threads_wanted;    // 0: by profile
    enum st_direct direct_wanted;
    _Atomic bool asking;   // whether the page cache holds what is read: profile auto
    _Atomic bool direct;   // reads go past the page cache where it does not hold the bytes
    uint64_t sample_seed;
    int64_t available;     // bytes of RAM that this process may still use, as last told; -1: unknown
    struct st_job * jobs;  // [n_jobs]
    int n_jobs;            // at least max_experts
    void * group_event;    // recorded behind the copies of the last load
    bool loaded;           // ... at least once
    ggml_backend_t compute;  // the compute stream that last read slots: another one must be ordered behind it
    struct st_mirror mirror;
    size_t mirror_used;    // of the last chunk
    bool mirror_full;      // the limit is reached, or the driver refused more
    size_t mirror_refused; // bytes that the driver refused to pin for it
    // Long batches stream through the ring (prompt.c): in memory of its own, or in slots that are lent.
    struct st_ring ring;
    bool ring_built;
    struct st_batch batch;
    int64_t stream_from;   // tokens of a batch from which it streams; 0: never
    size_t ring_bytes;
    ggml_backend_buffer_t ring_own;
    int lent_class;        // slots 0 .. n_lent-1 of this class are lent
    int32_t n_lent;
    _Atomic int stream_done, stream_total;  // units of the running batch; 0 of 0: none runs
    _Atomic bool filling;  // the thread that decodes waits for a disk
    struct st_modes modes;
    pthread_mutex_t lock;  // of modes and error

    enum st_policy policy;
    void * swap_event;       // behind the copies of the pending swaps
    int n_pending;
    struct { int class_index; int32_t slot; } pending[ST_ADAPT_CAP];
    uint32_t round;          // of decode, for the adaptive tier and the traces
    struct st_window window; // of drafts, while they are verified
    _Atomic uint64_t swaps, swap_rounds, swap_ns;
    double limit_link;       // GB/s, 0: none; for benches

    _Atomic bool cancel;
    _Atomic int phase;
    _Atomic int backends;  // alive
    _Atomic int64_t slots_used;
    int32_t slots_total;
    struct st_phase_counters counters[ST_PHASES];
    enum st_fault fault;
    char error[2048];
};

// Records what went wrong (the first cause wins until st_error_clear). Returns -1.
int st_fail(struct st_tier * t, const char * format, ...) __attribute__((format(printf, 2, 3)));
void st_error_clear(struct st_tier * t);

static inline struct st_phase_counters * st_now(struct st_tier * t) {
    return &t->counters[atomic_load_explicit(&t->phase, memory_order_relaxed)];
}

// Counts the picks and hits of a layer whose experts are known.
static inline void st_count_picks(struct st_tier * t, const struct st_group * g, uint64_t picks, uint64_t hits) {
    struct st_phase_counters * all  = st_now(t);
    struct st_layer_counters * mine = &t->groups[g - t->groups].counters[all - t->counters];
    ST_COUNT(all, picks, picks);
    ST_COUNT(all, hits, hits);
    ST_COUNT(all, misses, picks - hits);
    ST_COUNT(mine, picks, picks);
    ST_COUNT(mine, hits, hits);
}

static inline bool st_cancelled(const struct st_tier * t) {
    return atomic_load_explicit(&t->cancel, memory_order_relaxed);
}

// tier.c. `inner`, shards (paths), groups and `pool_buffers` are set. 0 or -1; then st_tier_close all the same.
int st_tier_open(struct st_tier * t, uint32_t copy_delay_us, uint32_t compute_delay_us, uint64_t copy_seed);
void st_tier_close(struct st_tier * t);  // no backend may be alive

// experts.c: opens the files, checks the table and lays out the size classes. 0 or -1.
int st_experts_init(struct st_tier * t);
void st_experts_free(struct st_tier * t);
struct st_slice * st_experts_find(const struct st_tier * t, const char * tensor_name);
// Reads bytes of an expert's slice; `how`: of enum st_how. 0 or -1.
int st_experts_read(const struct st_tier * t, const struct st_slice * s, int32_t expert, size_t offset, size_t size, void * dst, unsigned how,
                    struct st_read * out);
// Whether the page cache holds that byte of a slice; as st_source_ask.
int st_experts_ask(const struct st_tier * t, const struct st_slice * s, int32_t expert, size_t offset);

// arena.c
size_t st_arena_bytes(const struct st_tier * t, int64_t slots);
int st_arena_allocate(struct st_tier * t, int64_t slots);
void st_arena_free(struct st_tier * t);
// Slots of each class for a total; the rule by which st_arena_allocate divides them.
void st_arena_divide(const struct st_tier * t, int64_t slots, int32_t * per_class);

// pool.c: the stage pool, its threads and its modes
// `available`: bytes of RAM that this process may still use (control groups counted), or -1: unknown. Automatic
// pinning keeps a floor of it. `threads`: of the stager; 0: by profile or measurement.
int st_pool_apply(struct st_tier * t, enum st_pin pin, enum st_profile profile, int64_t available, int threads);
// Before a prompt: asks again where the bytes are, when the profile is automatic. `available`: as above.
void st_pool_sample(struct st_tier * t, int64_t available);
int st_pool_start(struct st_tier * t);    // makes the stager. 0 or -1
// The stager's profile, threads and reason as they are now (any thread).
struct st_stager_state {
    enum st_profile profile;
    int threads;
    uint64_t changes;     // of the profile
    uint64_t bytes, fill_ns, waited_ns;  // filled so far; by all threads together; waited by the thread that decodes
    char reason[224];
};
void st_pool_state(struct st_tier * t, struct st_stager_state * state);
void st_pool_free(struct st_tier * t);

// load.c: brings experts into slots. `keys` and `slots` (claimed, LOADING) in router order.
// Returns 0 when all are published on the compute stream, 1 when cancelled, -1 on failure; what was not
// loaded has been abandoned.
struct st_load {
    int32_t key;
    int32_t slot;
};
int st_load_blobs(struct st_tier * t, struct st_class * c, const struct st_load * loads, int n, ggml_backend_t compute);

char * st_slot_address(const struct st_class * c, int32_t slot);
void st_zero_pads(const struct st_class * c, uint8_t * blob);  // of a blob in slot layout in host memory

// Items that come to the device through the stage pool, or straight. `straight` queues item i without a stage
// buffer: 1 done, 0 it has to be staged, -1 failed. `job` says how it is filled (all but dst and tag); `queue`
// queues the copies of its READY buffer (0 or -1).
struct st_staged {
    void * ctx;
    int (*straight)(void * ctx, int i);
    void (*job)(void * ctx, int i, struct st_job * job);
    int (*queue)(void * ctx, int i, int buffer);
};
// Brings items 0 .. n-1 (at most t->n_jobs), filling with all threads while copies run. Returns 0 when all copies
// are queued, 1 when cancelled, -1 on failure; no fill is left running.
int st_stage_run(struct st_tier * t, const struct st_staged * work, int n);

// fill.c: jobs of the stager, a whole blob, or one slice of `count` neighbouring experts, and how they are filled.
void st_job_blob(const struct st_tier * t, struct st_job * job, int class_index, int32_t key);
void st_job_slices(const struct st_tier * t, struct st_job * job, const struct st_slice * slice, int32_t expert, int32_t count);
int st_fill_piece(void * tier, const struct st_job * job, int piece, struct st_filled * filled);  // st_fill_fn
void st_fill_sample(struct st_tier * t, bool counted);  // asks where some experts' bytes are

// policy.c: the residency policy over the size classes
int st_policy_set(struct st_tier * t, enum st_policy policy);
// Between rounds: ends swaps whose copies are done and, every few rounds, begins new ones. 0 or -1.
int st_policy_round(struct st_tier * t, ggml_backend_t compute);
// Publishes the pending swaps on the compute stream (or, without one, after waiting). 0 or -1.
int st_policy_finish(struct st_tier * t, ggml_backend_t compute);
void st_trace_add(struct st_tier * t, struct st_class * c, int32_t slot, char what, int32_t key);

// prefill.c: fills empty slots, hottest experts last (they end as the newest). `usage` as many floats as
// experts, in the order of the groups, or NULL: spread evenly over the layers. Calls `step` now and then; it
// returns false to stop. Returns the number of blobs loaded, or -1.
int64_t st_prefill(struct st_tier * t, const float * usage, bool (*step)(void * ctx, int64_t done, int64_t total), void * ctx);

// Copies up to `n` residents into their slots again and waits for the last: what slots that were lent need.
// Returns their number, or -1.
int64_t st_refill(struct st_tier * t, int64_t n);
// Bytes a second at which the stager fills `n` blobs without any copy, or -1. For benches.
double st_fill_rate(struct st_tier * t, int n);

// selftest.c: copies patterns through the whole stage pool into empty slots and compares. 0, or -1.
int st_selftest(struct st_tier * t, char * line, size_t line_size);

#ifdef ST_POISON  // a debug build: what nobody may read any more is NaN in every type, 0xff throughout
void st_poison_slot(struct st_class * c, int32_t slot);
#endif

// load.c
int st_queue_blob(struct st_tier * t, struct st_class * c, int32_t slot, const uint8_t * blob);

// mirror.c: fills the pinned RAM tier up to `limit` bytes; `step` blobs at a time, so that the caller can
// report progress. Returns blobs still to do, 0 when finished, -1 on failure.
int64_t st_mirror_fill(struct st_tier * t, size_t limit, int step);
void st_mirror_free(struct st_tier * t);

// device.c
void st_device_init(struct st_tier * t);
void st_device_loaded(struct st_tier * t);  // the model is loaded: gives expert tensors their names back
// graph.c
struct st_backend {  // context of our backend
    struct st_tier * tier;
    ggml_backend_t inner;
    // Router ids and slot ids. The host side of slot ids is written only right after the compute stream was
    // synchronised, so the upload that read it before is over.
    struct st_memory ids_host;
    struct st_memory slots_host;
    ggml_backend_buffer_t slots_buffer;
    struct ggml_tensor slots;   // device side
    int64_t slots_capacity;
    // Scratch of split passes (see graph.c)
    ggml_backend_buffer_t scratch;
    void * posted;         // event behind the work that was posted
    _Atomic int failed;    // an ggml_status that posted work ended with, or 0
    int32_t * order;       // [max_experts] distinct experts in router order
    int32_t * count;       // [max_experts] picks, valid where mark == stamp
    uint32_t * rows;       // [max_experts] which of the first 32 tokens picked it: bits; valid as count
    int32_t * slot;        // [max_experts]
    uint64_t * mark;       // [max_experts]
    uint64_t stamp;
    struct st_load * loads;  // [max_experts]
    // Pieces of short graphs (piece.c)
    struct st_known * known; // [lengths][n_known]
    int n_known;
    uint64_t pieces;         // uids given out
    struct ggml_tensor ** nodes;  // of the piece that runs
    int nodes_capacity;
};
int st_backend_init(struct st_backend * b);
void st_backend_free(struct st_backend * b);
enum ggml_status st_graph_compute(struct st_backend * b, struct ggml_cgraph * graph);

// Computes a piece on the compute stream. Where that is the transport's the piece is copied; its tensors must live
// until st_sync.
enum ggml_status st_run(struct st_backend * b, const struct ggml_cgraph * piece);
enum ggml_status st_run_part(struct st_backend * b, struct ggml_cgraph * graph, int first, int end);
// Waits for the compute stream. What posted work ended with.
enum ggml_status st_sync(struct st_backend * b);

// prompt.c: computes a graph whose experts stream through the ring.
enum ggml_status st_prompt_compute(struct st_backend * b, struct ggml_cgraph * graph);
// unit.c: brings what the next such graph will read first, if it is like the last one; before the host is busy with
// other things. 0, or -1 on failure.
int st_batch_ahead(struct st_tier * t);
void st_batch_free(struct st_tier * t);

// lend.c: the ring's memory.
// Bytes of the largest unit that is: a slice of every expert of a layer, and its pad.
size_t st_ring_unit(const struct st_tier * t);
size_t st_ring_layer(const struct st_tier * t);  // of all blobs of a layer, as slots: two of these and units are layers
size_t st_unit_bytes(const struct st_tier * t, const struct st_slice * s);
// From how many tokens a batch streams, and through how much memory: its own, or lent slots'. 0 or -1.
int st_ring_set(struct st_tier * t, int64_t from, size_t bytes, bool own);
// Records the event that stands behind all copies and moves that are queued. 0 or -1.
int st_ring_settle(struct st_tier * t);
// Takes the memory, behind all reads on the compute stream. 0, or -1.
int st_ring_take(struct st_tier * t, ggml_backend_t compute);
// Gives lent slots back with the same experts. 0, 1 cancelled (what was not copied is empty), -1.
int st_ring_give_back(struct st_tier * t, ggml_backend_t compute);
// The buffer that the ring's memory is part of.
ggml_backend_buffer_t st_ring_buffer(const struct st_tier * t);

// verify.c: compares `count` random residents with the file. 0, or -1 with the difference in the error.
int st_verify(struct st_tier * t, int count, uint64_t seed);

#endif
