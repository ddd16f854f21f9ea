// ptx: compute_70
// Data to measure with, and the comparison with what it has to be.

#include "common.cuh"

// out[i] = word i of the data.
extern "C" __global__ void fill_words(u64 *out, u64 n, u64 seed) {
    for (u64 i = first(); i < n; i += stride()) out[i] = random_word(i, seed);
}

// out[i] = word i of the data as a double from [1, 2): all 52 bits of the mantissa are random.
extern "C" __global__ void fill_doubles(double *out, u64 n, u64 seed) {
    for (u64 i = first(); i < n; i += stride())
        out[i] = __longlong_as_double((random_word(i, seed) >> 12) | 0x3ff0000000000000ull);
}

// Adds to *wrong how many of the n words are not word i of the data.
extern "C" __global__ void count_wrong_words(const u64 *data, u64 n, u64 seed, u64 *wrong) {
    u64 found = 0;
    for (u64 i = first(); i < n; i += stride()) found += data[i] != random_word(i, seed);
    if (found) atomicAdd(wrong, found);
}
