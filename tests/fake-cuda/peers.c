/* A stand-in for the CUDA driver with several devices that reach each other: what a probe of pairs has to find is known.
 *
 * Time is counted, never waited for: a stream has a clock, the host takes over that of what it waits for, and its own calls
 * take none. So figures are exact. It runs the kernels of assets/kernels/p2p.cu and the half of random.cu that p2p needs.
 * Devices are counted the other way round than NVML does; what is defined below goes by NVML's index. tests/p2p.rs compiles
 * one for each case. What may be defined, `from` and `to` being GPUs:
 *   GPUS               how many, at most 8
 *   RATE               GB/s of a copy; half of it when the receiver makes the copy
 *   HOST_RATE          GB/s of one through the host, where there is no access or it was not enabled
 *   ACCESS, REFUSE     whether there is peer access, whether the driver then refuses to enable it
 *   ATOMICS            whether atomics work across
 *   COPY_NS            what a copy takes at least
 *   LOAD_NS, PEER_NS   what a load takes of a chain in a GPU's own memory, in another's
 *   LOSE               whether copies leave out a word, all but the first
 *   MISREAD            whether loads that are not a GPU's own go astray
 * As a real one it refuses memory that is not a GPU's to reach and streams of another context. A piece of work that keeps a
 * GPU for longer than a probe may ends the process. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef GPUS
#define GPUS 2
#endif
#ifndef RATE
#define RATE 380
#endif
#ifndef HOST_RATE
#define HOST_RATE 9
#endif
#ifndef ACCESS
#define ACCESS 1
#endif
#ifndef REFUSE
#define REFUSE 0
#endif
#ifndef ATOMICS
#define ATOMICS 0
#endif
#ifndef COPY_NS
#define COPY_NS 2500
#endif
#ifndef LOAD_NS
#define LOAD_NS 400
#endif
#ifndef PEER_NS
#define PEER_NS 900
#endif
#ifndef LOSE
#define LOSE 0
#endif
#ifndef MISREAD
#define MISREAD 0
#endif

enum { OK = 0, INVALID = 1, BAD_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600, TOO_MANY_PEERS = 711, ILLEGAL_ADDRESS = 700 };
/* Longest that a probe may keep a GPU, ns. */
#define MOST_NS 5e6
/* Memory as fast as an H200's, bytes a ns. */
#define DRAM 4000.0
/* A word that is lost: within the smallest copy that is checked. */
#define LOST_AT 12344

typedef unsigned long long u64;
typedef struct { int gpu; } Context;
typedef struct { int gpu; double at; } Stream;
typedef struct { int gpu; double at; } Event;
typedef struct { char *text; } Module;
/* Memory: whose it is, how often it was written, and the copy that it holds, if any. */
typedef struct { u64 at, bytes; int gpu; u64 written, from, copied, of; } Block;

enum { CHASE, FILL_WHOLE, WRONG_SUMS, FILL_WORDS, FILL_DOUBLES, WRONG_WORDS, KERNELS };
static const char *const names[KERNELS] = { "chase", "fill_whole", "count_wrong_sums", "fill_words", "fill_doubles", "count_wrong_words" };

static Context contexts[8] = { { 0 }, { 1 }, { 2 }, { 3 }, { 4 }, { 5 }, { 6 }, { 7 } };
static Context *current;
static double host_at, busy_until[8];
static int reached[8][8];
static Block blocks[256];
static int block_count;

static double later(double a, double b) { return a > b ? a : b; }
static int gpu_of(int ordinal) { return GPUS - 1 - ordinal; }

static void take(Stream *stream, double ns) {
    if (ns > MOST_NS) abort();
    stream->at = later(stream->at, host_at) + ns;
    busy_until[stream->gpu] = later(busy_until[stream->gpu], stream->at);
}

/* The block that these bytes are in. */
static Block *block(u64 at, u64 bytes) {
    for (int i = 0; i < block_count; i++)
        if (at >= blocks[i].at && at + bytes <= blocks[i].at + blocks[i].bytes) return &blocks[i];
    return 0;
}
/* Likewise, where that GPU may reach it. */
static Block *seen_by(int gpu, u64 at, u64 bytes) {
    Block *found = block(at, bytes);
    return found && (found->gpu == gpu || reached[gpu][found->gpu]) ? found : 0;
}
static void wrote(Block *to) { to->written++; to->copied = 0; }
/* Whether `to` already holds just this. */
static int holds(Block *to, u64 from, u64 bytes, u64 of) {
    if (to->from == from && to->copied == bytes && to->of == of) return 1;
    wrote(to);
    to->from = from, to->copied = bytes, to->of = of;
    return 0;
}

static u64 word(u64 i, u64 seed) {
    u64 z = (i + seed) * 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

/* For nccl.c: gives every GPU the sum of all, which keeps each for so long from when the last can begin. */
int peers_sum(int n, const u64 *from, const u64 *to, Stream *const *streams, const int *ordinals, u64 count, double ns, int wrong) {
    double start = host_at;
    u64 of = 0;
    if (n != GPUS) return INVALID;
    for (int k = 0; k < n; k++) {
        Block *in = block(from[k], count * 4), *out = block(to[k], count * 4);
        const int gpu = gpu_of(ordinals[k]);
        if (!in || !out || in->gpu != gpu || out->gpu != gpu || streams[k]->gpu != gpu) return INVALID;
        start = later(start, streams[k]->at);
        of += in->written;
    }
    int done = 1;
    for (int k = 0; k < n; k++) {
        streams[k]->at = start;
        take(streams[k], ns);
        done &= holds(block(to[k], 4), from[k], count * 4, of);
    }
    for (u64 i = 0; i < count && !done; i++) {
        float sum = wrong && i == count / 2;
        for (int k = 0; k < n; k++) sum += ((const float *)from[k])[i];
        for (int k = 0; k < n; k++) ((float *)to[k])[i] = sum;
    }
    return OK;
}

int cuInit(unsigned flags) { (void)flags; return OK; }
int cuGetErrorName(int error, const char **out) { *out = error == TOO_MANY_PEERS ? "CUDA_ERROR_TOO_MANY_PEERS" : "CUDA_ERROR"; return OK; }
int cuGetErrorString(int error, const char **out) { (void)error; *out = "text of the driver"; return OK; }
int cuDeviceGetCount(int *out) { *out = GPUS; return OK; }
int cuDeviceGet(int *out, int ordinal) { *out = ordinal; return ordinal < GPUS ? OK : INVALID; }
int cuDeviceGetUuid(unsigned char *out, int device) {
    for (int i = 0; i < 15; i++) out[i] = i;
    out[15] = gpu_of(device);
    return OK;
}
int cuDeviceGetAttribute(int *out, int attribute, int device) {
    switch (attribute) {
    case 16: *out = 132; return OK;      /* SMs */
    case 33: *out = 5 + device; return OK; /* PCI bus */
    case 38: *out = 50 << 20; return OK; /* L2 */
    case 50: *out = 0xfa0e; return OK;   /* PCI domain: none that this machine has */
    case 75: *out = 9; return OK;        /* compute capability */
    default: *out = 0; return OK;
    }
}
int cuDeviceCanAccessPeer(int *out, int a, int b) {
    const int from = gpu_of(a), to = gpu_of(b);
    (void)from, (void)to;
    *out = ACCESS;
    return OK;
}
int cuDeviceGetP2PAttribute(int *out, int attribute, int a, int b) {
    const int from = gpu_of(a), to = gpu_of(b);
    (void)from, (void)to;
    *out = attribute == 2 ? ACCESS : attribute == 3 ? ATOMICS : 0;
    return OK;
}

int cuDevicePrimaryCtxRetain(Context **out, int device) { *out = &contexts[gpu_of(device)]; return OK; }
int cuDevicePrimaryCtxRelease_v2(int device) { (void)device; return OK; }
int cuCtxGetCurrent(Context **out) { *out = current; return OK; }
int cuCtxSetCurrent(Context *of) { current = of; return OK; }
int cuCtxSynchronize(void) { host_at = later(host_at, busy_until[current->gpu]); return OK; }
int cuCtxEnablePeerAccess(Context *other, unsigned flags) {
    const int from = current->gpu, to = other->gpu;
    if (flags || !(ACCESS)) return INVALID;
    if (REFUSE) return TOO_MANY_PEERS;
    reached[from][to] = 1;
    return OK;
}

int cuMemAlloc_v2(u64 *out, size_t bytes) {
    if (block_count == 256) return INVALID;
    *out = (u64)calloc(1, bytes);
    blocks[block_count++] = (Block){ .at = *out, .bytes = bytes, .gpu = current->gpu };
    return OK;
}
int cuMemFree_v2(u64 at) {
    Block *found = block(at, 1);
    if (!found) return INVALID;
    *found = (Block){ 0 };
    free((void *)at);
    return OK;
}
int cuMemcpyHtoD_v2(u64 to, const void *from, size_t bytes) {
    Block *found = block(to, bytes);
    if (!found) return INVALID;
    wrote(found);
    memcpy((void *)to, from, bytes);
    return OK;
}
int cuMemcpyDtoH_v2(void *to, u64 from, size_t bytes) {
    if (!block(from, bytes)) return INVALID;
    memcpy(to, (void *)from, bytes);
    return OK;
}
int cuMemsetD8Async(u64 at, unsigned char byte, size_t n, Stream *stream) {
    Block *found = seen_by(stream->gpu, at, n);
    if (!found || current->gpu != stream->gpu) return INVALID;
    take(stream, n / DRAM);
    wrote(found);
    memset((void *)at, byte, n);
    return OK;
}
int cuMemcpyPeerAsync(u64 to_at, Context *to_context, u64 from_at, Context *from_context, size_t n, Stream *stream) {
    const int from = from_context->gpu, to = to_context->gpu;
    Block *in = block(from_at, n), *out = block(to_at, n);
    if (!in || !out || in->gpu != from || out->gpu != to || from == to) return INVALID;
    if (current->gpu != stream->gpu || (stream->gpu != from && stream->gpu != to)) return BAD_HANDLE;
    const double direct = (RATE) / (stream->gpu == from ? 1.0 : 2.0);
    take(stream, later(COPY_NS, n / (reached[from][to] ? direct : (HOST_RATE))));
    if (holds(out, from_at, n, in->written)) return OK;
    static int copies[8][8];
    const int lose = (LOSE) && copies[from][to]++ && n > LOST_AT + 8;
    u64 kept = 0;
    if (lose) memcpy(&kept, (char *)to_at + LOST_AT, 8);
    memcpy((void *)to_at, (void *)from_at, n);
    if (lose) memcpy((char *)to_at + LOST_AT, &kept, 8);
    return OK;
}

int cuModuleLoadData(Module **out, const void *image) { *out = malloc(sizeof(Module)); (*out)->text = strdup(image); return OK; }
int cuModuleUnload(Module *module) { free(module->text); free(module); return OK; }
int cuModuleGetFunction(const char *const **out, Module *module, const char *name) {
    char entry[64];
    snprintf(entry, sizeof entry, ".entry %s(", name);
    for (int i = 0; i < KERNELS; i++)
        if (strcmp(name, names[i]) == 0 && strstr(module->text, entry)) { *out = &names[i]; return OK; }
    return NOT_FOUND;
}

int cuStreamCreate(Stream **out, unsigned flags) { (void)flags; *out = calloc(1, sizeof(Stream)); (*out)->gpu = current->gpu; return OK; }
int cuStreamDestroy_v2(Stream *stream) { free(stream); return OK; }
int cuStreamSynchronize(Stream *stream) { host_at = later(host_at, stream->at); return OK; }
int cuStreamWaitEvent(Stream *stream, Event *event, unsigned flags) { (void)flags; stream->at = later(stream->at, event->at); return OK; }
int cuEventCreate(Event **out, unsigned flags) { (void)flags; *out = calloc(1, sizeof(Event)); (*out)->gpu = current->gpu; return OK; }
int cuEventDestroy_v2(Event *event) { free(event); return OK; }
int cuEventRecord(Event *event, Stream *stream) {
    if (event->gpu != stream->gpu) return BAD_HANDLE;
    event->at = later(host_at, stream->at);
    return OK;
}
int cuEventQuery(Event *event) { return host_at < event->at ? NOT_READY : OK; }
int cuEventSynchronize(Event *event) { host_at = later(host_at, event->at); return OK; }
int cuEventElapsedTime(float *ms, Event *start, Event *end) { *ms = (end->at - start->at) / 1e6; return OK; }

/* Follows a chain; ns. */
static double chase(int gpu, const Block *chain, const u64 *links, u64 n, unsigned steps, u64 *end) {
    const int from = gpu, to = chain->gpu;
    u64 at = 0;
    for (unsigned i = 0; i < steps; i++) at = links[at] < n ? links[at] : 0;
    *end = at ^ (from != to && (MISREAD) ? 16 : 0);
    return steps * (from == to ? LOAD_NS : PEER_NS);
}

int cuLaunchKernel(const char *const *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, Stream *stream, void **params, void **extra) {
    (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)extra;
    if (current->gpu != stream->gpu) return BAD_HANDLE;
#define WORD(i) (*(u64 *)params[i])
#define HALF(i) (*(unsigned *)params[i])
    const int kernel = function - names, gpu = stream->gpu;
    const u64 n = WORD(1), size = kernel == FILL_WHOLE || kernel == WRONG_SUMS ? 4 : 8;
    Block *data = seen_by(gpu, WORD(0), n * size);
    if (!data) return ILLEGAL_ADDRESS;
    u64 *words = (u64 *)WORD(0), *count = 0;
    if (kernel == CHASE || kernel == WRONG_WORDS) count = (u64 *)WORD(3);
    if (kernel == WRONG_SUMS) count = (u64 *)WORD(5);
    if (count && !seen_by(gpu, (u64)count, 8)) return ILLEGAL_ADDRESS;
    double ns = n * size / DRAM;
    switch (kernel) {
    case CHASE: ns = chase(gpu, data, words, n, HALF(2), count); break;
    case FILL_WHOLE: for (u64 i = 0; i < n; i++) ((float *)words)[i] = word(i, WORD(2)) & 4095; break;
    case FILL_WORDS: for (u64 i = 0; i < n; i++) words[i] = word(i, WORD(2)); break;
    case WRONG_WORDS: for (u64 i = 0; i < n; i++) *count += words[i] != word(i, WORD(2)); break;
    case WRONG_SUMS:
        for (u64 i = 0; i < n; i++) {
            unsigned sum = 0;
            for (unsigned k = 0; k < HALF(4); k++) sum += word(i, WORD(2) + k * WORD(3)) & 4095;
            *count += ((float *)words)[i] != (float)sum;
        }
        break;
    default: return INVALID;
    }
    if (kernel == FILL_WHOLE || kernel == FILL_WORDS) wrote(data);
    take(stream, ns);
    return OK;
}
