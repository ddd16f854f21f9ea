/* A stand-in for NCCL, on the devices of peers.c: a sum takes a known time. It prints to standard output as the real one may.
 * What may be defined:
 *   GB_PER_S           what is summed over time, beyond START_NS
 *   START_NS           what a sum takes besides
 *   FAILS              result of making a group
 *   WRONG              one number of every sum is wrong
 *   OLD                it has no ncclCommInitAll */
#include <stdio.h>
#include <stdlib.h>

#ifndef GB_PER_S
#define GB_PER_S 300
#endif
#ifndef START_NS
#define START_NS 20000
#endif
#ifndef FAILS
#define FAILS 0
#endif
#ifndef WRONG
#define WRONG 0
#endif

enum { OK = 0, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, FLOAT = 7, SUM = 0 };
typedef unsigned long long u64;
typedef struct { int ordinal, of; } Comm;

extern int peers_sum(int n, const u64 *from, const u64 *to, void *const *streams, const int *ordinals, u64 count, double ns, int wrong);

static int given, in_group, wanted;
static u64 from[8], to[8], count;
static void *streams[8];
static int ordinals[8];

static void print(const char *text) { printf("%s\n", text); fflush(stdout); }

int ncclGetVersion(int *out) { print("NCCL version 2.27.3"); *out = 22703; return OK; }
const char *ncclGetErrorString(int error) { return error == 2 ? "unhandled system error" : "invalid"; }
#ifndef OLD
int ncclCommInitAll(Comm **out, int n, const int *devices) {
    print("NCCL INFO Bootstrap");
    if (FAILS) return FAILS;
    for (int i = 0; i < n; i++) {
        out[i] = malloc(sizeof(Comm));
        *out[i] = (Comm){ devices[i], n };
    }
    return OK;
}
#endif
int ncclCommDestroy(Comm *comm) { free(comm); return OK; }
int ncclGroupStart(void) { given = 0; in_group = 1; return OK; }
int ncclAllReduce(const void *in, void *out, size_t n, int type, int operation, Comm *comm, void *stream) {
    if (type != FLOAT || operation != SUM || (given && n != count)) return INVALID_ARGUMENT;
    if (!in_group || given == 8) return INVALID_USAGE;
    from[given] = (u64)in, to[given] = (u64)out, streams[given] = stream, ordinals[given] = comm->ordinal;
    count = n, wanted = comm->of, given++;
    return OK;
}
int ncclGroupEnd(void) {
    in_group = 0;
    if (given != wanted) return INVALID_USAGE;
    return peers_sum(given, from, to, streams, ordinals, count, START_NS + count * 4.0 / GB_PER_S, WRONG) ? INVALID_ARGUMENT : OK;
}
