/* A stand-in for the CUDA driver with a device that takes a known time for everything: what a probe has to find is then
 * known. It runs the kernels of assets/kernels/launch.cu, random.cu, hbm.cu, operands.cu and gemm.cu and copies, each when it
 * is given; what takes time is only when the device counts as done with it. The host's time for that does not count: the
 * clock of the device stands still meanwhile. tests/cuda.rs compiles one for each case. What may be defined, in ns:
 *   CALL_NS, GRAPH_CALL_NS   what a launch, the launch of a graph, takes the host
 *   KERNEL_NS, NODE_NS       what a kernel, a node of a graph, takes the device
 *   LOSE                     every so many launches of a kernel do nothing, also within graphs
 *   NO_HOLD                  the device is let go at once
 *   DRAM, H2D, D2H           bytes a ns of kernels that go through memory, of copies to the device and from it
 *   LOSE_COPY                every so many copies copy nothing
 *   L2                       bytes of its L2
 *   BROKEN                   a kernel of hbm.cu, by name, that does nothing and takes half of the time
 *   LOG                      a file that gets, in the end: ns that the device was busy, from the first work until then, and
 *                            for the longest piece of work
 * and what products.h tells. The device's compute capability is 8.0: kernels for Hopper are not for it. Its UUID is
 * 00 01 02 ... 0e 00. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef CALL_NS
#define CALL_NS 0
#endif
#ifndef GRAPH_CALL_NS
#define GRAPH_CALL_NS 0
#endif
#ifndef KERNEL_NS
#define KERNEL_NS 2000
#endif
#ifndef NODE_NS
#define NODE_NS 1000
#endif
#ifndef DRAM
#define DRAM 16
#endif
#ifndef H2D
#define H2D 50
#endif
#ifndef D2H
#define D2H 50
#endif
#ifndef L2
#define L2 (50 << 20)
#endif
#ifndef BROKEN
#define BROKEN ""
#endif
#ifdef NO_HOLD
#define HOLD_NS(wanted) 0
#else
#define HOLD_NS(wanted) (wanted)
#endif

enum { OK = 0, INVALID = 1, NOT_FOUND = 500, NOT_READY = 600 };
typedef unsigned long long u64;
typedef struct { char *text; } Module;
typedef struct { int kernel, broken; } Function;
typedef struct { int kernel, broken; u64 args[6]; } Launch;
typedef struct { int count; Launch *launches; } Graph;
typedef struct { Graph *recording; u64 done_at; } Stream;
typedef struct { u64 at; } Event;

enum { EMPTY, COUNT, HOLD, QUARTER, FILL_WORDS, FILL_DOUBLES, WRONG_WORDS, DIGEST,
    FILL_BF16, FILL_FP16, FILL_TF32, GEMM_BF16, GEMM_FP16, GEMM_TF32, READ, WRITE, COPY, TRIAD, KERNELS };
/* Names that end in _ are those of all shapes. */
static const char *const names[KERNELS] = { "empty", "count", "hold", "quarter", "fill_words", "fill_doubles",
    "count_wrong_words", "digest", "fill_bf16", "fill_fp16", "fill_tf32", "gemm_bf16", "gemm_fp16", "gemm_tf32", "read_", "write_", "copy_", "triad_" };
/* Arguments: q of 64 bits, i of 32. */
static const char *const args_of[KERNELS] = { "", "q", "q", "qqi", "qqq", "qqq", "qqqq", "qqq",
    "qiqi", "qiqi", "qiqi", "qqqi", "qqqi", "qqqi", "qqqqqi", "qqqqqi", "qqqqqi", "qqqqqi" };

static u64 skipped;
static u64 clock_now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000ull + t.tv_nsec; }
/* The device's time: that of the host without what it spends on being the device. */
static u64 now(void) { return clock_now() - skipped; }
static void spend(u64 ns) { for (u64 end = now() + ns; now() < end;) {} }
/* When the device is done with all that it was given. */
static u64 done_at;
static u64 later(u64 a, u64 b) { return a > b ? a : b; }
static void wait_for(u64 at) { while (now() < at) {} }

static u64 busy_ns, first_at, longest_ns;
static void take(Stream *stream, u64 at, u64 ns) {
    const u64 from = later(at, stream->done_at);
    stream->done_at = from + ns;
    done_at = later(done_at, stream->done_at);
    if (!first_at) first_at = from;
    busy_ns += ns;
    longest_ns = later(longest_ns, ns);
}
#ifdef LOG
__attribute__((destructor)) static void tell(void) {
    FILE *file = fopen(LOG, "w");
    if (file && first_at) fprintf(file, "%llu %llu %llu", busy_ns, now() - first_at, longest_ns);
    if (file) fclose(file);
}
#endif

static u64 word(u64 i, u64 seed) {
    u64 z = (i + seed) * 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

#include "products.h"

/* The last kernel that wrote all that it writes, and the last XOR: again it would change nothing. */
static Launch last;
static u64 last_read[3];

static void stream_through(const Launch *launch) {
    const u64 *in = launch->args, n = in[3] * 2;
    double *a = (double *)in[0], *b = (double *)in[1], *c = (double *)in[2], scalar;
    memcpy(&scalar, &in[4], 8);
    if (launch->kernel == READ) {
        if (last_read[0] != in[1] || last_read[1] != n) {
            last_read[0] = in[1], last_read[1] = n, last_read[2] = 0;
            for (u64 i = 0; i < n; i++) last_read[2] ^= ((u64 *)b)[i];
        }
        /* An even number of rounds cancels out. */
        if (in[5] % 2) *(u64 *)a ^= last_read[2];
        return;
    }
    Launch same = *launch;
    same.args[5] = 1;
    if (memcmp(&same, &last, sizeof same) == 0) return;
    last = same;
    for (u64 i = 0; i < n; i++) a[i] = launch->kernel == WRITE ? scalar : launch->kernel == COPY ? b[i] : fma(scalar, c[i], b[i]);
}

static void run(Stream *stream, u64 at, const Launch *launch, u64 ns) {
    static u64 count;
    static const u64 arrays[] = { 1, 1, 2, 3 };
    const u64 *in = launch->args;
    if (launch->kernel >= READ) ns = in[3] * 16 * arrays[launch->kernel - READ] * (unsigned)in[5] / DRAM / (launch->broken ? 2 : 1);
    else if (launch->kernel >= GEMM_BF16) ns = 2 * in[3] * in[3] * in[3] / GEMM;
    else if (launch->kernel >= FILL_BF16) ns = in[1] * in[1] * bytes_of[launch->kernel - FILL_BF16] / DRAM;
    else if (launch->kernel >= FILL_WORDS) ns = in[1] * 8 / DRAM;
    else if (launch->kernel == HOLD) ns = HOLD_NS(in[0]);
    take(stream, at, ns);
#ifdef LOSE
    if (++count % LOSE == 0) return;
#else
    (void)count;
#endif
    if (launch->broken) return;
    const u64 began = clock_now();
    u64 *out = (u64 *)in[0], n = in[1];
    switch (launch->kernel) {
    case COUNT: ++*out; break;
    case QUARTER: for (u64 i = 0; i < in[2]; i++) ((double *)out)[i] = ((double *)in[1])[i] * 0.25; break;
    case FILL_WORDS: for (u64 i = 0; i < n; i++) out[i] = word(i, in[2]); break;
    case FILL_DOUBLES: for (u64 i = 0; i < n; i++) out[i] = word(i, in[2]) >> 12 | 0x3ff0000000000000ull; break;
    case WRONG_WORDS: for (u64 i = 0; i < n; i++) *(u64 *)in[3] += out[i] != word(i, in[2]); break;
    case DIGEST: digest(in); break;
    case FILL_BF16: case FILL_FP16: case FILL_TF32: fill_operand(launch->kernel - FILL_BF16, in); break;
    case GEMM_BF16: case GEMM_FP16: case GEMM_TF32: multiply(launch->kernel - GEMM_BF16, in); break;
    case READ: case WRITE: case COPY: case TRIAD: stream_through(launch); break;
    }
    if (launch->kernel >= FILL_WORDS) skipped += clock_now() - began;
}

static int copy(Stream *stream, void *to, const void *from, size_t bytes, u64 rate) {
    static u64 count;
    take(stream, now(), 1000 + bytes / rate);
#ifdef LOSE_COPY
    if (++count % LOSE_COPY == 0) return OK;
#else
    (void)count;
#endif
    const u64 began = clock_now();
    memcpy(to, from, bytes);
    skipped += clock_now() - began;
    return OK;
}

int cuInit(unsigned flags) { (void)flags; return OK; }
int cuGetErrorName(int error, const char **out) { (void)error; *out = "CUDA_ERROR"; return OK; }
int cuGetErrorString(int error, const char **out) { (void)error; *out = "an error"; return OK; }
int cuDeviceGetCount(int *out) { *out = 1; return OK; }
int cuDeviceGet(int *out, int ordinal) { *out = ordinal; return ordinal == 0 ? OK : INVALID; }
int cuDeviceGetUuid(unsigned char *out, int device) { (void)device; for (int i = 0; i < 16; i++) out[i] = i % 15; return OK; }
int cuDeviceGetAttribute(int *out, int attribute, int device) {
    (void)device;
    switch (attribute) {
    case 16: *out = 132; return OK;     /* SMs */
    case 38: *out = L2; return OK;      /* L2 */
    case 75: *out = 8; return OK;       /* compute capability */
    default: *out = 0; return OK;
    }
}
static int context;
static void *current;
int cuDevicePrimaryCtxRetain(void **out, int device) { (void)device; *out = &context; return OK; }
int cuDevicePrimaryCtxRelease_v2(int device) { (void)device; return OK; }
int cuCtxGetCurrent(void **out) { *out = current; return OK; }
int cuCtxSetCurrent(void *of) { current = of; return OK; }
int cuCtxSynchronize(void) { wait_for(done_at); return OK; }

int cuMemAlloc_v2(u64 *out, size_t bytes) { *out = (u64)calloc(1, bytes); return OK; }
int cuMemFree_v2(u64 at) { free((void *)at); return OK; }
int cuMemcpyHtoD_v2(u64 to, const void *from, size_t bytes) { memcpy((void *)to, from, bytes); return OK; }
int cuMemcpyDtoH_v2(void *to, u64 from, size_t bytes) { memcpy(to, (void *)from, bytes); return OK; }
int cuMemsetD8Async(u64 at, unsigned char byte, size_t n, Stream *stream) {
    take(stream, now(), n / DRAM);
    const u64 began = clock_now();
    memset((void *)at, byte, n);
    memset(&last, 0, sizeof last);
    skipped += clock_now() - began;
    return OK;
}
int cuMemHostAlloc(void **out, size_t bytes, unsigned flags) { (void)flags; *out = malloc(bytes); return OK; }
int cuMemFreeHost(void *at) { free(at); return OK; }
int cuMemcpyHtoDAsync_v2(u64 to, const void *from, size_t n, Stream *stream) { return copy(stream, (void *)to, from, n, H2D); }
int cuMemcpyDtoHAsync_v2(void *to, u64 from, size_t n, Stream *stream) { return copy(stream, to, (void *)from, n, D2H); }

int cuModuleLoadData(Module **out, const void *image) {
    *out = malloc(sizeof(Module));
    (*out)->text = strdup(image);
    return OK;
}
int cuModuleUnload(Module *module) { free(module->text); free(module); return OK; }
int cuModuleGetFunction(Function **out, Module *module, const char *name) {
    char entry[64] = ".entry ";
    strncat(strncat(entry, name, 40), "(", 2);
    for (int i = 0; i < KERNELS; i++) {
        const size_t length = strlen(names[i]);
        const int same = names[i][length - 1] == '_' ? strncmp(name, names[i], length) == 0 : strcmp(name, names[i]) == 0;
        if (same && strstr(module->text, entry)) {
            *out = malloc(sizeof(Function));
            **out = (Function){ i, strcmp(name, BROKEN) == 0 };
            return OK;
        }
    }
    return NOT_FOUND;
}

int cuStreamCreate(Stream **out, unsigned flags) { (void)flags; *out = calloc(1, sizeof(Stream)); return OK; }
int cuStreamDestroy_v2(Stream *stream) { free(stream); return OK; }
int cuStreamSynchronize(Stream *stream) { wait_for(stream->done_at); return OK; }
int cuStreamWaitEvent(Stream *stream, Event *event, unsigned flags) { (void)flags; stream->done_at = later(stream->done_at, event->at); return OK; }
int cuEventCreate(Event **out, unsigned flags) { (void)flags; *out = calloc(1, sizeof(Event)); return OK; }
int cuEventDestroy_v2(Event *event) { free(event); return OK; }
int cuEventRecord(Event *event, Stream *stream) { event->at = later(now(), stream->done_at); return OK; }
int cuEventQuery(Event *event) { return now() < event->at ? NOT_READY : OK; }
int cuEventSynchronize(Event *event) { wait_for(event->at); return OK; }
int cuEventElapsedTime(float *ms, Event *start, Event *end) { *ms = (end->at - start->at) / 1e6f; return OK; }

int cuLaunchKernel(Function *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, Stream *stream, void **params, void **extra) {
    (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)extra;
    Launch launch;
    memset(&launch, 0, sizeof launch);
    launch.kernel = function->kernel, launch.broken = function->broken;
    const char *args = args_of[launch.kernel];
    for (int i = 0; args[i]; i++) launch.args[i] = args[i] == 'i' ? *(unsigned *)params[i] : *(u64 *)params[i];
    Graph *graph = stream->recording;
    if (graph) {
        graph->launches = realloc(graph->launches, (graph->count + 1) * sizeof(Launch));
        graph->launches[graph->count++] = launch;
        return OK;
    }
    if (launch.kernel != HOLD) spend(CALL_NS);
    run(stream, now(), &launch, KERNEL_NS);
    return OK;
}
int cuStreamBeginCapture_v2(Stream *stream, int mode) { (void)mode; stream->recording = calloc(1, sizeof(Graph)); return OK; }
int cuStreamEndCapture(Stream *stream, Graph **out) { *out = stream->recording; stream->recording = 0; return OK; }
int cuGraphInstantiateWithFlags(Graph **out, Graph *graph, u64 flags) { (void)flags; *out = graph; return OK; }
int cuGraphUpload(Graph *graph, Stream *stream) { (void)graph, (void)stream; return OK; }
int cuGraphExecDestroy(Graph *graph) { (void)graph; return OK; }
int cuGraphDestroy(Graph *graph) { free(graph->launches); free(graph); return OK; }
int cuGraphLaunch(Graph *graph, Stream *stream) {
    spend(GRAPH_CALL_NS);
    const u64 at = now();
    for (int i = 0; i < graph->count; i++) run(stream, at, &graph->launches[i], NODE_NS);
    return OK;
}
