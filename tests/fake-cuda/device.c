/* A stand-in for the CUDA driver with a device that takes a known time for everything: what a probe of launches has to find
 * is then known. It runs the kernels of assets/kernels/launch.cu, each when it is launched; what takes time is only when
 * the device counts as done with it. tests/cuda.rs compiles one for each case. What may be defined, in ns:
 *   CALL_NS, GRAPH_CALL_NS   what a launch, the launch of a graph, takes the host
 *   KERNEL_NS, NODE_NS       what a kernel, a node of a graph, takes the device
 *   LOSE                     every so many launches of a kernel do nothing, also within graphs
 *   NO_HOLD                  the device is let go at once
 * The device's UUID is 00 01 02 ... 0e 00. */
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
#ifdef NO_HOLD
#define HOLD_NS(wanted) 0
#else
#define HOLD_NS(wanted) (wanted)
#endif

enum { OK = 0, INVALID = 1, NOT_FOUND = 500, NOT_READY = 600 };
typedef unsigned long long u64;
typedef struct { char *text; } Module;
typedef struct { int kernel; } Function;
typedef struct { int kernel; u64 args[3]; } Launch;
typedef struct { int count; Launch *launches; } Graph;
typedef struct { Graph *recording; } Stream;
typedef struct { u64 at; } Event;

enum { EMPTY, COUNT, HOLD, QUARTER, KERNELS };
static const char *const names[KERNELS] = { "empty", "count", "hold", "quarter" };
static const int args_of[KERNELS] = { 0, 1, 1, 3 };

static u64 now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000ull + t.tv_nsec; }
static void spend(u64 ns) { for (u64 end = now() + ns; now() < end;) {} }
/* When the device is done with all that it was given. */
static u64 done_at;
static u64 device_now(void) { u64 t = now(); return done_at > t ? done_at : t; }
static void wait_for(u64 at) { while (now() < at) {} }

static void run(const Launch *launch, u64 ns) {
    static u64 count;
    done_at = device_now() + (launch->kernel == HOLD ? HOLD_NS(launch->args[0]) : ns);
#ifdef LOSE
    if (++count % LOSE == 0) return;
#else
    (void)count;
#endif
    if (launch->kernel == COUNT) ++*(u64 *)launch->args[0];
    if (launch->kernel == QUARTER) {
        double *a = (double *)launch->args[0], *b = (double *)launch->args[1];
        for (unsigned i = 0; i < (unsigned)launch->args[2]; i++) a[i] = b[i] * 0.25;
    }
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
    case 38: *out = 50 << 20; return OK; /* L2 */
    case 75: *out = 9; return OK;       /* compute capability */
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
int cuMemsetD8Async(u64 at, unsigned char byte, size_t n, Stream *stream) { (void)stream; memset((void *)at, byte, n); return OK; }

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
        if (strcmp(name, names[i]) == 0 && strstr(module->text, entry)) {
            *out = malloc(sizeof(Function));
            (*out)->kernel = i;
            return OK;
        }
    }
    return NOT_FOUND;
}

int cuStreamCreate(Stream **out, unsigned flags) { (void)flags; *out = calloc(1, sizeof(Stream)); return OK; }
int cuStreamDestroy_v2(Stream *stream) { free(stream); return OK; }
int cuStreamSynchronize(Stream *stream) { (void)stream; wait_for(done_at); return OK; }
int cuEventCreate(Event **out, unsigned flags) { (void)flags; *out = calloc(1, sizeof(Event)); return OK; }
int cuEventDestroy_v2(Event *event) { free(event); return OK; }
int cuEventRecord(Event *event, Stream *stream) { (void)stream; event->at = device_now(); return OK; }
int cuEventQuery(Event *event) { return now() < event->at ? NOT_READY : OK; }
int cuEventSynchronize(Event *event) { wait_for(event->at); return OK; }
int cuEventElapsedTime(float *ms, Event *start, Event *end) { *ms = (end->at - start->at) / 1e6f; return OK; }

int cuLaunchKernel(Function *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, Stream *stream, void **params, void **extra) {
    (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)extra;
    Launch launch = { function->kernel, { 0 } };
    for (int i = 0; i < args_of[launch.kernel]; i++) {
        /* The last argument of `quarter` is 32 bits wide. */
        launch.args[i] = i == 2 ? *(unsigned *)params[i] : *(u64 *)params[i];
    }
    Graph *graph = stream->recording;
    if (graph) {
        graph->launches = realloc(graph->launches, (graph->count + 1) * sizeof(Launch));
        graph->launches[graph->count++] = launch;
        return OK;
    }
    if (launch.kernel != HOLD) spend(CALL_NS);
    run(&launch, KERNEL_NS);
    return OK;
}
int cuStreamBeginCapture_v2(Stream *stream, int mode) { (void)mode; stream->recording = calloc(1, sizeof(Graph)); return OK; }
int cuStreamEndCapture(Stream *stream, Graph **out) { *out = stream->recording; stream->recording = 0; return OK; }
int cuGraphInstantiateWithFlags(Graph **out, Graph *graph, u64 flags) { (void)flags; *out = graph; return OK; }
int cuGraphUpload(Graph *graph, Stream *stream) { (void)graph, (void)stream; return OK; }
int cuGraphExecDestroy(Graph *graph) { (void)graph; return OK; }
int cuGraphDestroy(Graph *graph) { free(graph->launches); free(graph); return OK; }
int cuGraphLaunch(Graph *graph, Stream *stream) {
    (void)stream;
    spend(GRAPH_CALL_NS);
    for (int i = 0; i < graph->count; i++) run(&graph->launches[i], NODE_NS);
    return OK;
}
