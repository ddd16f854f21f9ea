// ptx: compute_70
// Operands of matrix products: numbers that spread like a normal distribution, in the format that is measured.
//
// Power, and with it the clocks, depends on the bits that toggle: zeros or constants would flatter the GPU.

#include "common.cuh"

// Element i: the sum of the four 16-bit parts of word i, less its mean, over 2^16: from -2 to 2, standard deviation
// 0.58. Then rounded to nearest even, to `fraction` bits behind the first one, at an exponent of `least` or more.
// All of it is exact in a float: src/probe/gemm/format.rs computes the same.
__device__ __forceinline__ float element(u64 i, u64 seed, int fraction, int least) {
    const u64 w = random_word(i, seed);
    const int sum = (int)(w & 0xffff) + (int)(w >> 16 & 0xffff) + (int)(w >> 32 & 0xffff) + (int)(w >> 48);
    const float x = (float)(sum - 131070) * (1.0f / 65536.0f);
    const int exponent = max((int)(__float_as_uint(x) >> 23 & 255) - 127, least) - fraction;
    const float up = __uint_as_float((u32)(127 - exponent) << 23), down = __uint_as_float((u32)(127 + exponent) << 23);
    return rintf(x * up) * down;
}

// Where element i of an n x n operand goes. With `blocked` the operand lies in blocks of 128 rows by 128 bytes, row of
// blocks after row of blocks; within a block row after row, its 16-byte pieces swapped from row to row: the order in which
// Hopper's tensor cores read it (gemm90.cu).
__device__ __forceinline__ u64 place(u64 i, u32 n, u32 bytes, u32 blocked) {
    if (!blocked) return i;
    const u64 row = i / n, at = i % n * bytes, block = row / 128 * (n * bytes / 128) + at / 128;
    return (block * 16384 + row % 128 * 128 + ((at / 16 ^ row) % 8 * 16) + at % 16) / bytes;
}

extern "C" __global__ void fill_bf16(unsigned short *out, u32 n, u64 seed, u32 blocked) {
    for (u64 i = first(); i < (u64)n * n; i += stride())
        out[place(i, n, 2, blocked)] = __float_as_uint(element(i, seed, 7, -126)) >> 16;
}

extern "C" __global__ void fill_fp16(unsigned short *out, u32 n, u64 seed, u32 blocked) {
    for (u64 i = first(); i < (u64)n * n; i += stride()) {
        unsigned short bits;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(element(i, seed, 10, -14)));
        out[place(i, n, 2, blocked)] = bits;
    }
}

extern "C" __global__ void fill_tf32(float *out, u32 n, u64 seed, u32 blocked) {
    for (u64 i = first(); i < (u64)n * n; i += stride())
        out[place(i, n, 4, blocked)] = element(i, seed, 10, -126);
}

extern "C" __global__ void fill_fp8(unsigned char *out, u32 n, u64 seed, u32 blocked) {
    for (u64 i = first(); i < (u64)n * n; i += stride()) {
        const float x = element(i, seed, 3, -6);
        const u32 bits = __float_as_uint(x);
        // Below 2^-6 there is no hidden first bit, and the steps are 2^-9.
        const u32 magnitude = fabsf(x) < 0.015625f ? (u32)(fabsf(x) * 512.0f) : (bits >> 20 & 0x7ff) - (120 << 3);
        out[place(i, n, 1, blocked)] = bits >> 24 & 0x80 | magnitude;
    }
}

// Adds to *sum every word times an odd number of its own: another sum means other words.
extern "C" __global__ void digest(const u64 *data, u64 n, u64 *sum) {
    u64 found = 0;
    for (u64 i = first(); i < n; i += stride()) found += data[i] * (2 * i + 1);
    atomicAdd(sum, found);
}
