// ptx: compute_80
// Matrix products on tensor cores, for machines without cuBLASLt: C = A * transposed B, all three n x n, rows one after another.
//
// A block makes 128 x 128 of C, each of its four warps 64 x 64. A and B come through three stages of shared memory, 64
// bytes of each row at a time. Seen as bytes all formats are the same (a step of the tensor cores takes 32 bytes of a
// row), so that only the instruction and the store of the result differ. n has to be a multiple of 128.

#include "common.cuh"

const u32 TILE = 128, ROW = 64, STAGES = 3, THREADS = 128;
const u32 OPERAND = TILE * ROW, STAGE = 2 * OPERAND;
// Rows of tiles that blocks go through together, so that what they share is in L2.
const u32 BAND = 8;

#define MMA(SHAPE, TYPE)                                                                                               \
    asm volatile("mma.sync.aligned." SHAPE ".row.col.f32." TYPE "." TYPE ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "   \
                 "{%8, %9}, {%0, %1, %2, %3};"                                                                         \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                                      \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

struct Bf16 {
    static const u32 bytes = 2;
    static __device__ __forceinline__ void mma(float *c, const u32 *a, const u32 *b) { MMA("m16n8k16", "bf16"); }
    static __device__ __forceinline__ void store(void *out, u64 at, float x, float y) {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(((u32 *)out)[at / 2]) : "f"(y), "f"(x));
    }
};
struct Fp16 {
    static const u32 bytes = 2;
    static __device__ __forceinline__ void mma(float *c, const u32 *a, const u32 *b) { MMA("m16n8k16", "f16"); }
    static __device__ __forceinline__ void store(void *out, u64 at, float x, float y) {
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(((u32 *)out)[at / 2]) : "f"(y), "f"(x));
    }
};
struct Tf32 {
    static const u32 bytes = 4;
    static __device__ __forceinline__ void mma(float *c, const u32 *a, const u32 *b) { MMA("m16n8k8", "tf32"); }
    static __device__ __forceinline__ void store(void *out, u64 at, float x, float y) {
        ((float2 *)out)[at / 2] = make_float2(x, y);
    }
};

// Where 16 bytes of a row lie: shifted from row to row, so that the eight rows of a matrix that a warp loads at once are
// in different banks.
__device__ __forceinline__ u32 place(u32 row, u32 piece) { return row * ROW + ((piece ^ (row >> 1 & 3)) << 4); }

__device__ __forceinline__ void load4(u32 *r, u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address));
}

// Starts the copy of 64 bytes of each row of both operands into a stage.
__device__ __forceinline__ void fetch(u32 stage, const char *a, const char *b, u64 pitch) {
#pragma unroll
    for (u32 i = 0; i < TILE * 4 / THREADS; i++) {
        const u32 piece = threadIdx.x + i * THREADS, row = piece / 4, column = piece % 4;
        const u32 to = stage + place(row, column);
        const u64 from = row * pitch + column * 16;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(a + from));
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + OPERAND), "l"(b + from));
    }
}

template <class T> __device__ __forceinline__ void gemm(const char *a, const char *b, void *out, u32 n) {
    __shared__ __align__(128) char shared[STAGES * STAGE];
    u32 base;
    asm("{.reg .u64 p; cvta.to.shared.u64 p, %1; cvt.u32.u64 %0, p;}" : "=r"(base) : "l"(shared));
    const u32 tiles = n / TILE, band = blockIdx.x / (BAND * tiles), rest = blockIdx.x % (BAND * tiles);
    const u32 height = min(BAND, tiles - min(tiles, band * BAND));
    if (height == 0) return;
    const u32 m0 = (band * BAND + rest % height) * TILE, n0 = rest / height * TILE;
    const u64 pitch = (u64)n * T::bytes;
    a += m0 * pitch;
    b += n0 * pitch;
    const u32 steps = pitch / ROW;
#pragma unroll
    for (u32 s = 0; s < STAGES - 1; s++) {
        if (s < steps) fetch(base + s * STAGE, a + s * ROW, b + s * ROW, pitch);
        asm volatile("cp.async.commit_group;");
    }
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u32 row_a = warp % 2 * 64 + (lane & 15), half_a = lane >> 4;
    const u32 row_b = warp / 2 * 64 + (lane & 7) + (lane >> 4 << 3), half_b = lane >> 3 & 1;
    float c[4][8][4] = {};
    u32 now = 0, next = STAGES - 1;
    for (u32 step = 0; step < steps; step++) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2));
        __syncthreads();
        const u32 ahead = step + STAGES - 1;
        if (ahead < steps) fetch(base + next * STAGE, a + (u64)ahead * ROW, b + (u64)ahead * ROW, pitch);
        asm volatile("cp.async.commit_group;");
        const u32 in_a = base + now * STAGE, in_b = in_a + OPERAND;
#pragma unroll
        for (u32 k = 0; k < ROW / 32; k++) {
            u32 fa[4][4], fb[4][4];
#pragma unroll
            for (u32 i = 0; i < 4; i++) load4(fa[i], in_a + place(row_a + i * 16, k * 2 + half_a));
#pragma unroll
            for (u32 j = 0; j < 4; j++) load4(fb[j], in_b + place(row_b + j * 16, k * 2 + half_b));
#pragma unroll
            for (u32 i = 0; i < 4; i++)
#pragma unroll
                for (u32 j = 0; j < 8; j++) T::mma(c[i][j], fa[i], fb[j / 2] + j % 2 * 2);
        }
        now = now + 1 == STAGES ? 0 : now + 1;
        next = next + 1 == STAGES ? 0 : next + 1;
    }
#pragma unroll
    for (u32 i = 0; i < 4; i++)
#pragma unroll
        for (u32 j = 0; j < 8; j++) {
            const u64 row = m0 + warp % 2 * 64 + i * 16 + lane / 4;
            const u64 at = row * n + n0 + warp / 2 * 64 + j * 8 + lane % 4 * 2;
            T::store(out, at, c[i][j][0], c[i][j][1]);
            T::store(out, at + 8ull * n, c[i][j][2], c[i][j][3]);
        }
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) gemm_bf16(const char *a, const char *b, void *c, u32 n) {
    gemm<Bf16>(a, b, c, n);
}
extern "C" __global__ void __launch_bounds__(THREADS, 2) gemm_fp16(const char *a, const char *b, void *c, u32 n) {
    gemm<Fp16>(a, b, c, n);
}
extern "C" __global__ void __launch_bounds__(THREADS, 2) gemm_tf32(const char *a, const char *b, void *c, u32 n) {
    gemm<Tf32>(a, b, c, n);
}
