// ptx: compute_70
// A chain of loads that wait for each other, and numbers whose sum over GPUs is exact.

#include "common.cuh"

// Follows `steps` links of a chain of n words, each of which is the index of the next, and leaves where it ends.
// Volatile: no load is served by the L1 of the GPU that asks.
extern "C" __global__ void chase(const volatile u64 *chain, u64 n, u32 steps, u64 *end) {
    u64 at = 0;
    for (u32 i = 0; i < steps; i++) {
        const u64 next = chain[at];
        at = next < n ? next : 0;
    }
    *end = at;
}

// Whole numbers below 4096: floats add up to 4096 of them exactly, in any order.
__device__ __forceinline__ u32 whole(u64 i, u64 seed) { return (u32)random_word(i, seed) & 4095; }

// out[i] = number i of the data with this seed.
extern "C" __global__ void fill_whole(float *out, u64 n, u64 seed) {
    for (u64 i = first(); i < n; i += stride()) out[i] = (float)whole(i, seed);
}

// Adds to *wrong how many of the n numbers are not the sum of those with the seeds from `seed` on, `step` apart.
extern "C" __global__ void count_wrong_sums(const float *data, u64 n, u64 seed, u64 step, u32 seeds, u64 *wrong) {
    u64 found = 0;
    for (u64 i = first(); i < n; i += stride()) {
        u32 sum = 0;
        for (u32 k = 0; k < seeds; k++) sum += whole(i, seed + k * step);
        found += data[i] != (float)sum;
    }
    if (found) atomicAdd(wrong, found);
}
