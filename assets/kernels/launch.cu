// ptx: compute_70
// What is launched to time launches, and what proves that all of it ran.

#include "common.cuh"

// Nothing.
extern "C" __global__ void empty() {}

// Adds one, without an atomic: of two that ran at once, one would be lost. One thread.
extern "C" __global__ void count(volatile u64 *n) { *n = *n + 1; }

// Keeps the stream waiting for so long, so that what is given meanwhile starts from a full queue. One thread; the host
// asks for 4 ms at most.
extern "C" __global__ void hold(u64 ns) {
    u64 start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - start < ns);
}

// The smallest kernel that does something: a quarter of each number.
extern "C" __global__ void quarter(double *a, const double *b, u32 n) {
    const u64 i = first();
    if (i < n) a[i] = b[i] * 0.25;
}
