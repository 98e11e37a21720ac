// The ggml device, backend and buffer type that stand in for the real device.
//
// Everything goes to the inner device, except expert tensors: they get a buffer type of our own, whose memory
// is an address range that is never touched (the bytes stay in the file), and graphs that read them are run
// by graph.c.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "piece.h"
#include "tier.h"

#define TIER_OF_DEV(dev) ((struct st_tier *) (dev)->context)
#define INNER(backend) (((struct st_backend *) (backend)->context)->inner)

// ---- buffer type of expert tensors

static const char * buft_name(ggml_backend_buffer_type_t buft) {
    (void) buft;
    return "Experts";
}

static size_t buft_alignment(ggml_backend_buffer_type_t buft) {
    (void) buft;
    return 64;
}

static void buffer_free(ggml_backend_buffer_t buffer) {
    munmap(buffer->context, buffer->size ? buffer->size : 1);
}

static void * buffer_base(ggml_backend_buffer_t buffer) {
    return buffer->context;
}

// Ties an expert tensor to its slice. (A view of one, or a name that is not in the table, gets none: graph.c
// refuses to run an operation on it.)
static enum ggml_status buffer_init_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor * tensor) {
    struct st_tier * t = buffer->buft->context;
    struct st_slice * slice = tensor->view_src ? NULL : st_experts_find(t, tensor->name);
    if (slice) {
        const struct st_group * g = &t->groups[slice->group];
        if (tensor->type != slice->type || tensor->ne[0] != slice->ne0 || tensor->ne[1] != slice->ne1 || tensor->ne[2] != g->n_experts) {
            st_fail(t, "tensor %s has another shape than the file says", tensor->name);
            return GGML_STATUS_FAILED;
        }
        // The loader looks a tensor up by name and passes over one that it does not find ("split experts
        // models"), so under another name no byte of it is read. st_device_loaded gives the name back.
        slice->tensor   = tensor;
        tensor->name[0] = '~';
    }
    tensor->extra = slice;
    return GGML_STATUS_SUCCESS;
}

// Nothing is stored: the bytes are in the file.
static void buffer_set_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor * tensor, const void * data, size_t offset, size_t size) {
    (void) buffer, (void) tensor, (void) data, (void) offset, (void) size;
}

static void buffer_get_tensor(ggml_backend_buffer_t buffer, const struct ggml_tensor * tensor, void * data, size_t offset, size_t size) {
    const struct st_slice * slice = tensor->extra;
    struct st_read got;
    if (!slice || st_experts_read(buffer->buft->context, slice, 0, offset, size, data, 0, &got) < 0) {
        st_fail(buffer->buft->context, "tensor %s could not be read from its file", tensor->name);
        memset(data, 0, size);
    }
}

static void buffer_memset_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor * tensor, uint8_t value, size_t offset, size_t size) {
    (void) buffer, (void) tensor, (void) value, (void) offset, (void) size;
}

static void buffer_clear(ggml_backend_buffer_t buffer, uint8_t value) {
    (void) buffer, (void) value;
}

static ggml_backend_buffer_t buft_alloc(ggml_backend_buffer_type_t buft, size_t size) {
    void * range = mmap(NULL, size ? size : 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) {
        st_fail(buft->context, "no address range of %zu MiB for the experts", size >> 20);
        return NULL;
    }
    const struct ggml_backend_buffer_i iface = {
        .free_buffer   = buffer_free,
        .get_base      = buffer_base,
        .init_tensor   = buffer_init_tensor,
        .memset_tensor = buffer_memset_tensor,
        .set_tensor    = buffer_set_tensor,
        .get_tensor    = buffer_get_tensor,
        .clear         = buffer_clear,
    };
    return ggml_backend_buffer_init(buft, iface, range, size);
}

// ---- backend

static const char * backend_name(ggml_backend_t backend) {
    return ((struct st_backend *) backend->context)->tier->name;
}

static void backend_free(ggml_backend_t backend) {
    struct st_backend * b = backend->context;
    struct st_tier * t    = b->tier;
    st_backend_free(b);
    st_pieces_free(b);
    ggml_backend_free(b->inner);
    free(b);
    free(backend);
    atomic_fetch_sub(&t->backends, 1);
}

static void backend_set_async(ggml_backend_t b, struct ggml_tensor * tensor, const void * data, size_t offset, size_t size) {
    INNER(b)->iface.set_tensor_async(INNER(b), tensor, data, offset, size);
}

static void backend_get_async(ggml_backend_t b, const struct ggml_tensor * tensor, void * data, size_t offset, size_t size) {
    INNER(b)->iface.get_tensor_async(INNER(b), tensor, data, offset, size);
}

static void backend_set_2d_async(ggml_backend_t b, struct ggml_tensor * tensor, const void * data, size_t offset, size_t size, size_t n,
                                 size_t stride_tensor, size_t stride_data) {
    INNER(b)->iface.set_tensor_2d_async(INNER(b), tensor, data, offset, size, n, stride_tensor, stride_data);
}

static void backend_get_2d_async(ggml_backend_t b, const struct ggml_tensor * tensor, void * data, size_t offset, size_t size, size_t n,
                                 size_t stride_tensor, size_t stride_data) {
    INNER(b)->iface.get_tensor_2d_async(INNER(b), tensor, data, offset, size, n, stride_tensor, stride_data);
}

static void backend_synchronize(ggml_backend_t b) {
    INNER(b)->iface.synchronize(INNER(b));
}

static enum ggml_status backend_compute(ggml_backend_t b, struct ggml_cgraph * graph) {
    return st_graph_compute(b->context, graph);
}

static void backend_event_record(ggml_backend_t b, ggml_backend_event_t event) {
    INNER(b)->iface.event_record(INNER(b), event);
}

static void backend_event_wait(ggml_backend_t b, ggml_backend_event_t event) {
    INNER(b)->iface.event_wait(INNER(b), event);
}

// CUDA registers allocation dependencies for its fusions here.
static void backend_optimize(ggml_backend_t b, struct ggml_cgraph * graph, struct ggml_backend_graph_optimize_params * params) {
    INNER(b)->iface.graph_optimize(INNER(b), graph, params);
}

static ggml_guid_t backend_guid(void) {
    static ggml_guid guid = { 0x73, 0x74, 0x72, 0x61, 0x74, 0x61, 0x2d, 0x74, 0x75, 0x69, 0x2d, 0x74, 0x69, 0x65, 0x72, 0x31 };
    return &guid;
}

static ggml_backend_t device_init_backend(ggml_backend_dev_t dev, const char * params) {
    struct st_tier * t     = TIER_OF_DEV(dev);
    ggml_backend_t backend = calloc(1, sizeof *backend);
    struct st_backend * b  = calloc(1, sizeof *b);
    ggml_backend_t inner   = ggml_backend_dev_init(t->inner, params);
    if (!backend || !b || !inner) {
        goto fail;
    }
    *b = (struct st_backend) { .tier = t, .inner = inner };
    if (st_backend_init(b) < 0 || st_pieces_init(b) < 0) {
        st_backend_free(b);
        st_pieces_free(b);
        goto fail;
    }
    *backend = (struct ggml_backend) { .guid = backend_guid(), .device = dev, .context = b };
    const struct ggml_backend_i * f = &inner->iface;
    backend->iface.get_name      = backend_name;
    backend->iface.free          = backend_free;
    backend->iface.graph_compute = backend_compute;
    backend->iface.set_tensor_async    = f->set_tensor_async ? backend_set_async : NULL;
    backend->iface.get_tensor_async    = f->get_tensor_async ? backend_get_async : NULL;
    backend->iface.set_tensor_2d_async = f->set_tensor_2d_async ? backend_set_2d_async : NULL;
    backend->iface.get_tensor_2d_async = f->get_tensor_2d_async ? backend_get_2d_async : NULL;
    backend->iface.synchronize         = f->synchronize ? backend_synchronize : NULL;
    backend->iface.event_record        = f->event_record ? backend_event_record : NULL;
    backend->iface.event_wait          = f->event_wait ? backend_event_wait : NULL;
    backend->iface.graph_optimize      = f->graph_optimize ? backend_optimize : NULL;
    atomic_fetch_add(&t->backends, 1);
    return backend;
fail:
    if (inner) {
        ggml_backend_free(inner);
    }
    free(b);
    free(backend);
    st_fail(t, "no backend for %s", ggml_backend_dev_name(t->inner));
    return NULL;
}

// ---- device

static const char * device_name(ggml_backend_dev_t dev) {
    return TIER_OF_DEV(dev)->name;
}

static const char * device_description(ggml_backend_dev_t dev) {
    return TIER_OF_DEV(dev)->description;
}

static void device_memory(ggml_backend_dev_t dev, size_t * free, size_t * total) {
    ggml_backend_dev_memory(TIER_OF_DEV(dev)->inner, free, total);
}

static enum ggml_backend_dev_type device_type(ggml_backend_dev_t dev) {
    (void) dev;
    return GGML_BACKEND_DEVICE_TYPE_GPU;  // llama.cpp puts layers on GPUs; over the CPU device too
}

static void device_props(ggml_backend_dev_t dev, struct ggml_backend_dev_props * props) {
    ggml_backend_dev_get_props(TIER_OF_DEV(dev)->inner, props);
    props->name        = device_name(dev);
    props->description = device_description(dev);
    props->type        = GGML_BACKEND_DEVICE_TYPE_GPU;
    props->caps.buffer_from_host_ptr = false;
}

static ggml_backend_buffer_type_t device_buffer_type(ggml_backend_dev_t dev) {
    return ggml_backend_dev_buffer_type(TIER_OF_DEV(dev)->inner);
}

static ggml_backend_buffer_type_t device_host_buffer_type(ggml_backend_dev_t dev) {
    return ggml_backend_dev_host_buffer_type(TIER_OF_DEV(dev)->inner);
}

static bool device_supports_op(ggml_backend_dev_t dev, const struct ggml_tensor * op) {
    return ggml_backend_dev_supports_op(TIER_OF_DEV(dev)->inner, op);
}

static bool device_supports_buft(ggml_backend_dev_t dev, ggml_backend_buffer_type_t buft) {
    struct st_tier * t = TIER_OF_DEV(dev);
    return buft == &t->buft || ggml_backend_dev_supports_buft(t->inner, buft);
}

static bool device_offload_op(ggml_backend_dev_t dev, const struct ggml_tensor * op) {
    return ggml_backend_dev_offload_op(TIER_OF_DEV(dev)->inner, op);
}

static ggml_backend_event_t device_event_new(ggml_backend_dev_t dev) {
    return TIER_OF_DEV(dev)->inner->iface.event_new(TIER_OF_DEV(dev)->inner);
}

static void device_event_free(ggml_backend_dev_t dev, ggml_backend_event_t event) {
    TIER_OF_DEV(dev)->inner->iface.event_free(TIER_OF_DEV(dev)->inner, event);
}

static void device_event_synchronize(ggml_backend_dev_t dev, ggml_backend_event_t event) {
    TIER_OF_DEV(dev)->inner->iface.event_synchronize(TIER_OF_DEV(dev)->inner, event);
}

// ---- registry entry (llama.cpp asks a device's registry for a few functions by name)

static const char * reg_name(ggml_backend_reg_t reg) {
    (void) reg;
    return "Strata";
}

static size_t reg_device_count(ggml_backend_reg_t reg) {
    (void) reg;
    return 1;
}

static ggml_backend_dev_t reg_device(ggml_backend_reg_t reg, size_t index) {
    (void) index;
    return &((struct st_tier *) reg->context)->dev;
}

static void * inner_proc(ggml_backend_t backend, const char * name) {
    return ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(((struct st_backend *) backend->context)->tier->inner), name);
}

// Wrappers, because the inner functions assert that the backend is their own.
static void set_n_threads(ggml_backend_t backend, int n) {
    ggml_backend_set_n_threads_t f = (ggml_backend_set_n_threads_t) inner_proc(backend, "ggml_backend_set_n_threads");
    if (f) {
        f(INNER(backend), n);
    }
}

static void set_abort_callback(ggml_backend_t backend, ggml_abort_callback callback, void * data) {
    ggml_backend_set_abort_callback_t f = (ggml_backend_set_abort_callback_t) inner_proc(backend, "ggml_backend_set_abort_callback");
    if (f) {
        f(INNER(backend), callback, data);
    }
}

static void * reg_proc_address(ggml_backend_reg_t reg, const char * name) {
    (void) reg;
    if (strcmp(name, "ggml_backend_set_n_threads") == 0) {
        return (void *) set_n_threads;
    }
    if (strcmp(name, "ggml_backend_set_abort_callback") == 0) {
        return (void *) set_abort_callback;
    }
    return NULL;
}

void st_device_loaded(struct st_tier * t) {
    for (int i = 0; i < t->n_groups; i++) {
        for (int s = 0; s < t->groups[i].n_slices; s++) {
            struct st_slice * slice = &t->groups[i].slices[s];
            if (slice->tensor) {
                slice->tensor->name[0] = slice->name[0];
            }
        }
    }
}

void st_device_init(struct st_tier * t) {
    snprintf(t->name, sizeof t->name, "Strata.%s", ggml_backend_dev_name(t->inner));
    snprintf(t->description, sizeof t->description, "experts in tiers over %s", ggml_backend_dev_description(t->inner));
    t->reg = (struct ggml_backend_reg) {
        .api_version = GGML_BACKEND_API_VERSION,
        .iface = { reg_name, reg_device_count, reg_device, reg_proc_address },
        .context = t,
    };
    t->dev = (struct ggml_backend_device) {
        .iface = {
            .get_name = device_name,
            .get_description = device_description,
            .get_memory = device_memory,
            .get_type = device_type,
            .get_props = device_props,
            .init_backend = device_init_backend,
            .get_buffer_type = device_buffer_type,
            .supports_op = device_supports_op,
            .supports_buft = device_supports_buft,
            .offload_op = device_offload_op,
        },
        .reg = &t->reg,
        .context = t,
    };
    if (ggml_backend_dev_host_buffer_type(t->inner)) {
        t->dev.iface.get_host_buffer_type = device_host_buffer_type;
    }
    if (t->inner->iface.event_new) {
        t->dev.iface.event_new         = device_event_new;
        t->dev.iface.event_free        = device_event_free;
        t->dev.iface.event_synchronize = device_event_synchronize;
    }
    t->buft = (struct ggml_backend_buffer_type) {
        .iface = { .get_name = buft_name, .alloc_buffer = buft_alloc, .get_alignment = buft_alignment },
        .device = &t->dev,
        .context = t,
    };
}
