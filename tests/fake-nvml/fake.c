/* A stand-in for the NVIDIA library: as much of it as warptop calls, with answers that are known.
 *
 * tests/nvml.rs, tests/cuda.rs and tests/p2p.rs compile one for each case. What may be defined:
 *   CONTROL            folder of control files (below) and of notes that the tests look for
 *   GPUS, DRIVER       number of GPUs, driver version
 *   INIT               result of nvmlInit_v2
 *   UUID               the driver's name for a GPU, with its index as %d
 *   NOT_SUPPORTED      every question but the name is refused
 *   NO_GPM, GPM_NAN, GPM_DENIED, GPM_UNIT
 *   NO_LIST            processes that compute are not listed
 *   NAME, ALIKE        name of the first GPU; all GPUs are of that model
 *   IDLE               nobody uses a GPU: no process, no activity, any process may compute
 *   NO_MEMORY          memory information is refused (GB10)
 *   OLD_DRIVER         throttled time only as violation times; NEW_DRIVER: no nvmlDeviceGetTemperature
 *   SHARED             a second process on GPU 0; SHARED_REFUSED: and the driver does not say how they share it
 *   LINKS              NVLinks of GPU 0, the last of which is down; GPU 1 has none
 *   SLOW_US, FIELDS_US what a query of utilisation, of field values takes
 *   MIG                GPU 0 is split into two instances, and nothing is told of its use as a whole
 *   PROCESSES          so many processes on GPU 0; PROCESSES_LIE: the driver wants room for four billion
 *   HANG_IN, HANG_NTH  the function (its name as a string) that never comes back, from its nth call on
 *   START, END         a statement that is run when the library is loaded, and when it is left
 *   NOTE_CALLS         each function that is called leaves a note `call-NAME`
 * Control files: `hang` holds a query of GPU 1 until it is removed, `lost` takes GPU 1 away, `xid` is an error of GPU 0,
 * `init` makes nvmlInit_v2 fail with a version mismatch, `all` makes every question about a GPU fail with the number that is
 * in it, `gpm` those about samples of GPM, `garbage` has every number be garbage, `count` holds another number of GPUs, `other` has GPU 0 be another device.
 * `crash`: a query of utilisation reads where nothing is. `exit`: it calls exit(0).
 * `start`, `end`: for statements of START and END to wait for.
 * `quiet`: there is no new sample of a process.
 * Notes: `forbidden`, when something is called that must not be; `gpm-gap`, when two samples are too close;
 * `asked-1`, when it is asked who shares GPU 1. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifndef GPUS
#define GPUS 2
#endif
#ifndef DRIVER
#define DRIVER "580.159.04"
#endif
#ifndef INIT
#define INIT 0
#endif
#ifndef UUID
#define UUID "GPU-fake-%d"
#endif
#ifndef NAME
#define NAME "NVIDIA H200"
#endif
#ifndef GPM_UNIT
#define GPM_UNIT "MiB/s"
#endif
#ifndef SLOW_US
#define SLOW_US 0
#endif
#ifndef FIELDS_US
#define FIELDS_US 0
#endif

#ifndef LINKS
#define LINKS 18
#endif

#ifndef HANG_IN
#define HANG_IN ""
#endif
#ifndef HANG_NTH
#define HANG_NTH 1
#endif

#ifndef ALIKE
#define ALIKE 0
#endif

#ifdef IDLE
#define IDLE_OR(value) 0
#else
#define IDLE_OR(value) (value)
#endif

#define MOST_GPUS 64

enum { OK = 0, INVALID = 2, REFUSED = 3, DENIED = 4, NOT_FOUND = 6, TOO_SMALL = 7, TIMEOUT = 10, LOST = 15, MISMATCH = 18, DEPRECATED = 26 };
typedef unsigned int u32;
typedef unsigned long long u64;

typedef struct { u32 gpu, memory; } Utilization;
typedef struct { u32 version; u64 total, reserved, free, used; } Memory;
typedef struct { u32 pid; u64 memory; u32 gpu_instance, compute_instance; } Process;
typedef struct { u32 id, scope; long long timestamp, latency; u32 type, result; union { double d; u32 u; u64 ull; } value; } Field;
typedef struct { u64 reference, violation; } Violation;
typedef struct { u32 version, sensor; int temperature; } TemperatureV;
typedef struct { u32 id, result; double value; char *short_name, *long_name, *unit; } Metric;
typedef struct { void *placeholder; } Sample;
typedef struct { u32 version, count; Sample *first, *second; Metric metrics[210]; } Metrics;
typedef struct { u32 version, supported; } Support;
typedef struct { u32 index; } Gpu;
typedef struct { double taken; } Taken;

/* The sizes and one late offset of each, as the Rust bindings have them; a script that compiles this has none to compare with. */
#ifdef SIZE_MEMORY
_Static_assert(sizeof(Memory) == SIZE_MEMORY, "memory");
_Static_assert(sizeof(Process) == SIZE_PROCESS, "process");
_Static_assert(sizeof(Field) == SIZE_FIELD && offsetof(Field, value) == OFFSET_FIELD_VALUE, "field");
_Static_assert(sizeof(Metrics) == SIZE_METRICS && offsetof(Metrics, metrics) == OFFSET_METRICS, "metrics");
_Static_assert(offsetof(Metric, unit) == OFFSET_UNIT, "unit");
_Static_assert(sizeof(TemperatureV) == SIZE_TEMPERATURE, "temperature");
#endif

static Gpu gpus[MOST_GPUS];

static int control(const char *name) { return access(name, F_OK) == 0; }
#ifdef START
__attribute__((constructor)) static void start(void) { START; }
#endif
#ifdef END
__attribute__((destructor)) static void end(void) { END; }
#endif
static void note(const char *name) { FILE *file = fopen(name, "w"); if (file) fclose(file); }
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec * 1e-9; }

/* The number in a control file, or another one where there is none. */
static int number(const char *name, int otherwise) {
    FILE *file = fopen(name, "r");
    if (!file) return otherwise;
    if (fscanf(file, "%d", &otherwise) != 1) otherwise = 999;
    fclose(file);
    return otherwise;
}

/* What stands in every function. */
static void enter(const char *function) {
    static int calls;
#ifdef NOTE_CALLS
    char path[1024];
    snprintf(path, sizeof path, CONTROL "/call-%s", function);
    note(path);
#endif
    if (strcmp(function, HANG_IN) == 0 && ++calls >= HANG_NTH) for (;;) pause();
}
/* What stands before every question to a GPU. */
static int gate(const Gpu *gpu, const char *function) {
    enter(function);
    if (gpu->index == 1 && control(CONTROL "/lost")) return LOST;
    int all = number(CONTROL "/all", OK);
    if (all) return all;
#ifdef NOT_SUPPORTED
    return REFUSED;
#else
    return OK;
#endif
}
#define ENTER enter(__func__)
#define GATE(gpu) do { int refused = gate(gpu, __func__); if (refused) return refused; } while (0)

/* Garbage as drivers give it: nothing, all bits, the highest bit, any number; in place of `right` while that is asked for. */
static u64 garbage(void) {
    static u64 state = 88172645463325252ull;
    state ^= state << 13; state ^= state >> 7; state ^= state << 17;
    return state % 5 == 0 ? 0 : state % 5 == 1 ? ~0ull : state % 5 == 2 ? 1ull << 63 : state;
}
static int is_garbage(void) { return control(CONTROL "/garbage"); }
static u64 or_garbage(u64 right) { return is_garbage() ? garbage() : right; }
static double real_or_garbage(double right) {
    if (!is_garbage()) return right;
    double all[] = { NAN, INFINITY, -INFINITY, -1e308, 1e308, -1.0, (double)garbage() };
    return all[garbage() % 7];
}
/* A question whose answer is one number. */
#define ASK(name, type, answer) int name(Gpu *gpu, type *out) { GATE(gpu); *out = (type)or_garbage(answer); return OK; }

int nvmlInit_v2(void) { ENTER; return control(CONTROL "/init") ? MISMATCH : INIT; }
int nvmlShutdown(void) { ENTER; note(CONTROL "/shutdown"); return OK; }
int nvmlEventSetFree(void *set) { ENTER; free(set); return OK; }
/* Xid errors: each reading of the file `xid` finds one on GPU 0 and takes it away; others are not asked for. */
typedef struct { Gpu *gpu; u64 type, data; u32 gpu_instance, compute_instance; } Event;
#ifdef SIZE_EVENT
_Static_assert(sizeof(Event) == SIZE_EVENT, "event");
#endif
typedef struct { int of; } EventSet;
int nvmlEventSetCreate(EventSet **out) { ENTER; *out = calloc(1, sizeof(EventSet)); return OK; }
int nvmlDeviceRegisterEvents(Gpu *gpu, u64 types, EventSet *set) {
    GATE(gpu);
    if (types != 8) note(CONTROL "/forbidden");
    if (gpu->index == 1) return REFUSED;
    set->of = (int)gpu->index;
    return OK;
}
int nvmlEventSetWait_v2(EventSet *set, Event *out, u32 timeout) {
    ENTER;
    if (timeout) note(CONTROL "/forbidden");
    if (set->of != 0 || unlink(CONTROL "/xid")) return TIMEOUT;
    *out = (Event){ &gpus[0], 8, 79, 0, 0 };
    return OK;
}
int nvmlSystemGetDriverVersion(char *out, u32 size) { ENTER; snprintf(out, size, DRIVER); return OK; }
int nvmlSystemGetCudaDriverVersion_v2(int *out) { ENTER; *out = (int)or_garbage(13000); return OK; }
int nvmlDeviceGetCount_v2(u32 *out) { ENTER; *out = number(CONTROL "/count", GPUS); return OK; }
int nvmlDeviceGetHandleByIndex_v2(u32 index, Gpu **out) {
    if ((int)index >= number(CONTROL "/count", GPUS) || index >= MOST_GPUS) return INVALID;
    gpus[index].index = index;
    int refused = gate(&gpus[index], __func__);
    if (refused && refused != REFUSED) return refused;
    *out = &gpus[index];
    return OK;
}
int nvmlDeviceGetName(Gpu *gpu, char *out, u32 size) {
    ENTER;
    if (gpu->index >= MOST_GPUS) {
        snprintf(out, size, NAME " MIG %s", gpu->index == MOST_GPUS ? "3g.71gb" : "2g.35gb");
        return OK;
    }
    snprintf(out, size, gpu->index == 0 || ALIKE ? NAME : "NVIDIA \033[31mUnheard Of");
    return OK;
}
int nvmlDeviceGetUUID(Gpu *gpu, char *out, u32 size) {
    ENTER;
    snprintf(out, size, UUID, (int)gpu->index + (gpu->index == 0 && control(CONTROL "/other") ? 100 : 0));
    return OK;
}

#ifdef MIG
/* GPU 0 is split into two instances. */
static Gpu instances[2] = { { MOST_GPUS }, { MOST_GPUS + 1 } };
int nvmlDeviceGetMigMode(Gpu *gpu, u32 *current, u32 *pending) { GATE(gpu); *current = *pending = gpu->index == 0; return OK; }
int nvmlDeviceGetMaxMigDeviceCount(Gpu *gpu, u32 *out) { GATE(gpu); *out = 7; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(Gpu *gpu, u32 index, Gpu **out) {
    GATE(gpu);
    if (index >= 2) return NOT_FOUND;
    *out = &instances[index];
    return OK;
}
#define WHOLE(gpu) do { if ((gpu)->index == 0) return REFUSED; } while (0)
#else
#define WHOLE(gpu) (void)(gpu)
#endif

int nvmlDeviceGetUtilizationRates(Gpu *gpu, Utilization *out) {
    if (control(CONTROL "/crash")) *(volatile int *)16 = 1;
    if (control(CONTROL "/exit")) exit(0);
    while (gpu->index == 1 && control(CONTROL "/hang")) usleep(5000);
    if (SLOW_US) usleep(SLOW_US);
    GATE(gpu);
    WHOLE(gpu);
    out->gpu = or_garbage(IDLE_OR(97 - gpu->index));
    out->memory = or_garbage(IDLE_OR(62));
    return OK;
}
int nvmlDeviceGetClockInfo(Gpu *gpu, u32 domain, u32 *out) { GATE(gpu); *out = or_garbage(domain == 1 ? 1575 : domain == 2 ? 3201 : 0); return OK; }
int nvmlDeviceGetMaxClockInfo(Gpu *gpu, u32 domain, u32 *out) { GATE(gpu); *out = or_garbage(domain == 1 ? 1980 : 1000); return OK; }
ASK(nvmlDeviceGetPowerUsage, u32, 641265)
ASK(nvmlDeviceGetEnforcedPowerLimit, u32, 700000)
/* The power cap, and a bit that no binding knows. */
ASK(nvmlDeviceGetCurrentClocksEventReasons, u64, 0x4 | 0x10000)
ASK(nvmlDeviceGetMemoryBusWidth, u32, 512)
ASK(nvmlDeviceGetComputeMode, u32, IDLE_OR(3))
ASK(nvmlDeviceGetTotalEnergyConsumption, u64, 76844600)
ASK(nvmlDeviceGetCurrPcieLinkGeneration, u32, 4)
ASK(nvmlDeviceGetCurrPcieLinkWidth, u32, 8)
ASK(nvmlDeviceGetMaxPcieLinkGeneration, u32, 5)
ASK(nvmlDeviceGetMaxPcieLinkWidth, u32, 16)

int nvmlDeviceGetMemoryInfo_v2(Gpu *gpu, Memory *out) {
    GATE(gpu);
#ifdef NO_MEMORY
    return REFUSED;
#endif
    if (out->version != (sizeof(Memory) | 2u << 24)) return 25;
    out->total = 150754820096ull;
    out->reserved = 646000000ull;
    out->used = 40000000000ull;
    out->free = out->total - out->reserved - out->used;
    if (is_garbage()) out->total = garbage(), out->used = garbage(), out->reserved = garbage();
    return OK;
}
int nvmlDeviceGetTemperature(Gpu *gpu, u32 sensor, u32 *out) {
    (void)sensor;
    GATE(gpu);
#ifdef NEW_DRIVER
    return DEPRECATED;
#endif
    *out = or_garbage(57);
    return OK;
}
int nvmlDeviceGetTemperatureV(Gpu *gpu, TemperatureV *out) {
    GATE(gpu);
    if (out->version != (sizeof(TemperatureV) | 1u << 24) || out->sensor != 0) return 25;
    out->temperature = or_garbage(58);
    return OK;
}
int nvmlDeviceGetTemperatureThreshold(Gpu *gpu, u32 which, u32 *out) {
    GATE(gpu);
    switch (which) {
    case 0: *out = or_garbage(95); return OK; /* shutdown */
    case 1: *out = or_garbage(89); return OK; /* slowdown */
    case 2: *out = or_garbage(96); return OK; /* memory */
    default: return REFUSED;
    }
}
int nvmlDeviceGetTotalEccErrors(Gpu *gpu, u32 type, u32 counter, u64 *out) {
    GATE(gpu);
    if (counter != 0) return INVALID;
    *out = or_garbage(type == 0 ? 12 : 3);
    return OK;
}
int nvmlDeviceGetRemappedRows(Gpu *gpu, u32 *correctable, u32 *uncorrectable, u32 *pending, u32 *failed) {
    GATE(gpu);
    *correctable = or_garbage(1); *uncorrectable = or_garbage(2); *pending = or_garbage(1); *failed = 0;
    return OK;
}

/* Counters in ns. The thermal ones have moved with driver 580.82. */
int nvmlDeviceGetFieldValues(Gpu *gpu, int count, Field *fields) {
    if (FIELDS_US) usleep(FIELDS_US);
    GATE(gpu);
    for (int i = 0; i < count; i++) {
        Field *field = &fields[i];
        field->result = OK;
        field->type = 3; /* unsigned long long */
        switch (field->id) {
        case 82: field->type = 1; field->value.u = 52; break;
#ifndef OLD_DRIVER
        case 74: field->value.ull = 28227811776ull; break;
        case 76: field->value.ull = 0; break;
        case 269: field->value.ull = 1000000; break;
        case 270: field->value.ull = 2500000; break;
        case 271: field->result = REFUSED; break;
#endif
        default: field->result = INVALID;
        }
        if (is_garbage()) field->value.ull = garbage(), field->type = garbage() % 12, field->result = garbage() % 3;
    }
    return OK;
}
int nvmlDeviceGetViolationStatus(Gpu *gpu, u32 policy, Violation *out) {
    GATE(gpu);
#ifdef OLD_DRIVER
    out->reference = 1;
    out->violation = is_garbage() ? garbage() : policy == 0 ? 7000000000ull : policy == 1 ? 8000000000ull : 0;
    return policy <= 2 ? OK : REFUSED;
#else
    (void)policy; (void)out;
    return DEPRECATED;
#endif
}

/* GPU 0 has a process that computes and draws, GPU 1 one whose memory is not told. */
static int list(const Gpu *gpu, u32 *count, Process *out) {
#ifdef IDLE
    *count = 0;
    return OK;
#endif
#ifdef PROCESSES_LIE
    *count = 0xfffffff0u;
    return TOO_SMALL;
#endif
    u32 room = *count;
    *count = 1;
#ifdef SHARED
    if (gpu->index == 0) *count = 2;
#endif
#ifdef PROCESSES
    if (gpu->index == 0) *count = PROCESSES;
#endif
    if (room < *count || !out) return TOO_SMALL;
    for (u32 i = 1; i < *count; i++) out[i] = (Process){ 4243 + i, or_garbage(1000000000ull), ~0u, ~0u };
    out[0] = (Process){ gpu->index == 0 ? 4242 : 4243, or_garbage(gpu->index == 0 ? 40638611456ull : ~0ull), ~0u, ~0u };
    return OK;
}
int nvmlDeviceGetComputeRunningProcesses_v3(Gpu *gpu, u32 *count, Process *out) {
    GATE(gpu);
#ifdef NO_LIST
    return REFUSED;
#endif
#ifdef MIG
    /* One process on both instances, with memory on each. */
    if (gpu->index == 0) {
        if (*count < 2) { *count = 2; return TOO_SMALL; }
        out[0] = (Process){ 4242, 40000000000ull, 1, 0 };
        out[1] = (Process){ 4242, 638611456ull, 2, 0 };
        *count = 2;
        return OK;
    }
#endif
    return list(gpu, count, out);
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(Gpu *gpu, u32 *count, Process *out) {
    GATE(gpu);
#ifdef MIG
    *count = 0;
    return OK;
#endif
    if (gpu->index == 0) return list(gpu, count, out);
    *count = 0;
    return OK;
}

/* How the processes of GPU 0 share it: 4242 has 62 % in the newest sample, of 4244 there is only an old one, and 9 is
 * gone. Time moves with each question; nobody asks about a GPU that one process has for itself. */
typedef struct { u32 pid; u64 time; u32 sm, memory, encoder, decoder; } Share;
#ifdef SIZE_SHARE
_Static_assert(sizeof(Share) == SIZE_SHARE, "share");
#endif
int nvmlDeviceGetProcessUtilization(Gpu *gpu, Share *out, u32 *count, u64 since) {
    static u64 time = 1000000;
    GATE(gpu);
#ifndef SHARED
    note(CONTROL "/forbidden");
#endif
#ifdef SHARED_REFUSED
    (void)out; (void)count; (void)since;
    return REFUSED;
#endif
    if (gpu->index) note(CONTROL "/asked-1");
    if (control(CONTROL "/quiet")) return NOT_FOUND;
    if (*count < 170 || !out) { *count = 170; return TOO_SMALL; }
    time += 10;
    *count = 0;
    out[(*count)++] = (Share){ 4242, time, 62, 0, 0, 0 };
    if (since < time - 5) out[(*count)++] = (Share){ 4242, time - 5, 90, 0, 0, 0 };
    if (since < 1000) out[(*count)++] = (Share){ 4244, 999, 38, 0, 0, 0 };
    out[(*count)++] = (Share){ 9, time + 1, 5, 0, 0, 0 };
    return OK;
}

int nvmlDeviceGetNvLinkState(Gpu *gpu, u32 link, u32 *out) {
    GATE(gpu);
    if (gpu->index == 1) return REFUSED;
    if (link >= LINKS) return INVALID;
    *out = link + 1 < LINKS;
    return OK;
}
int nvmlDeviceGetP2PStatus(Gpu *gpu, Gpu *other, u32 what, u32 *out) {
    GATE(gpu);
    if (gpu == other || what != 0) return INVALID;
    *out = gpu->index == 0 ? 0 : 4; /* 4: switched off in the driver's settings */
    return OK;
}

#ifdef NO_GPM
int nvmlGpmQueryDeviceSupport(Gpu *gpu, Support *out) { GATE(gpu); out->supported = 0; return OK; }
#else
int nvmlGpmQueryDeviceSupport(Gpu *gpu, Support *out) { GATE(gpu); out->supported = out->version == 1; return OK; }
#endif
int nvmlGpmSampleAlloc(Taken **out) { ENTER; *out = calloc(1, sizeof(Taken)); return OK; }
int nvmlGpmSampleFree(Taken *sample) { ENTER; free(sample); return OK; }
int nvmlGpmSampleGet(Gpu *gpu, Taken *sample) {
    GATE(gpu);
#ifdef NO_GPM
    note(CONTROL "/forbidden");
#endif
#ifdef GPM_DENIED
    return DENIED;
#endif
    int denied = number(CONTROL "/gpm", OK);
    if (denied) return denied;
    WHOLE(gpu);
    sample->taken = now();
    return OK;
}
int nvmlGpmMetricsGet(Metrics *request) {
    ENTER;
    if (request->version != 1) return 25;
    Taken *first = (Taken *)request->first, *second = (Taken *)request->second;
    if (second->taken - first->taken < 0.1) note(CONTROL "/gpm-gap");
    for (u32 i = 0; i < request->count; i++) {
        Metric *metric = &request->metrics[i];
        metric->result = OK;
        metric->unit = "%";
        switch (metric->id) {
#ifdef GPM_NAN
        case 2: metric->value = NAN; break;
#else
        case 2: metric->value = IDLE_OR(81.25); break;
#endif
        case 3: metric->value = 17.9; break;
        case 5: metric->value = 76.0; break;
        case 10: metric->value = 46.1; break;
        case 20: metric->value = 1.5; metric->unit = GPM_UNIT; break; /* from the GPU */
        case 21: metric->value = 26.0; metric->unit = GPM_UNIT; break; /* to the GPU */
        case 60: metric->value = 100.0; metric->unit = GPM_UNIT; break; /* to the GPU */
        case 61: metric->result = REFUSED; break;
        default: metric->result = INVALID;
        }
        metric->value = real_or_garbage(metric->value);
    }
    return OK;
}

/* Must never be called: the first blocks for 20 ms, the others change the machine. */
#define FORBIDDEN(name) int name(void) { note(CONTROL "/forbidden"); return DENIED; }
FORBIDDEN(nvmlDeviceGetPcieThroughput)
FORBIDDEN(nvmlDeviceSetPersistenceMode)
FORBIDDEN(nvmlDeviceSetPowerManagementLimit)
FORBIDDEN(nvmlDeviceSetGpuLockedClocks)
FORBIDDEN(nvmlDeviceResetGpuLockedClocks)
FORBIDDEN(nvmlDeviceClearEccErrorCounts)
FORBIDDEN(nvmlGpmSetStreamingEnabled)
