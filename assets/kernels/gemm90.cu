// ptx: compute_90a
// Matrix products with Hopper's own tensor-core instructions, for machines without cuBLASLt: C = A * transposed B, all
// three n x n. C has its rows one after another; A and B lie in blocks, as `fill_*` in operands.cu writes them: 128 rows
// by 128 bytes, in the order in which the tensor cores read shared memory, so that one copy brings a block.
//
// Two blocks of threads (a cluster, on neighbouring SMs) make 256 x 256 of C: each 128 rows, by two groups of four warps
// with 64 rows each. One thread keeps four stages of shared memory full; half of B that each of the two fetches goes to
// both. Seen as bytes all formats are the same, so that only the instruction and the store of the result differ. n has
// to be a multiple of 256; the grid is two blocks for each pair of SMs, which take one part of C after another.

#include "common.cuh"

const u32 BLOCK = 128 * 128, STAGE = 3 * BLOCK, STAGES = 4, BARRIERS = STAGES * STAGE, SIDE = 256, WARPS = 8;
// Rows of parts that clusters go through together, so that what they share is in L2.
const u32 BAND = 8;

#define WGMMA(SHAPE, TAIL)                                                                                             \
    asm volatile("{.reg .pred p; setp.ne.b32 p, %130, 0; wgmma.mma_async.sync.aligned." SHAPE " {"                     \
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                       \
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "                             \
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                             \
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "                             \
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "                             \
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "                             \
        "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "                 \
        "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"               \
        "}, %128, %129, p, 1, 1" TAIL "}"                                                                              \
        :                                                                                                              \
          "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),              \
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),        \
          "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),      \
          "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),      \
          "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),      \
          "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),      \
          "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),      \
          "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]),      \
          "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]),      \
          "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]),      \
          "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]),      \
          "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]),      \
          "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103]),  \
          "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111]), \
          "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119]), \
          "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127]) \
        : "l"(a), "l"(b), "r"(more))

struct Bf16 {
    static const u32 bytes = 2;
    static __device__ __forceinline__ void mma(float *d, u64 a, u64 b, u32 more) {
        WGMMA("m64n256k16.f32.bf16.bf16", ", 0, 0;");
    }
    static __device__ __forceinline__ void store(void *out, u64 at, float x, float y) {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(((u32 *)out)[at / 2]) : "f"(y), "f"(x));
    }
};
struct Fp16 {
    static const u32 bytes = 2;
    static __device__ __forceinline__ void mma(float *d, u64 a, u64 b, u32 more) {
        WGMMA("m64n256k16.f32.f16.f16", ", 0, 0;");
    }
    static __device__ __forceinline__ void store(void *out, u64 at, float x, float y) {
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(((u32 *)out)[at / 2]) : "f"(y), "f"(x));
    }
};
struct Tf32 {
    static const u32 bytes = 4;
    static __device__ __forceinline__ void mma(float *d, u64 a, u64 b, u32 more) {
        WGMMA("m64n256k8.f32.tf32.tf32", ";");
    }
    static __device__ __forceinline__ void store(void *out, u64 at, float x, float y) {
        ((float2 *)out)[at / 2] = make_float2(x, y);
    }
};

__device__ __forceinline__ void wait(u32 barrier, u32 parity) {
    asm volatile("{.reg .pred p;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra DONE;\n"
                 "bra AGAIN;\nDONE:\n}" ::"r"(barrier), "r"(parity)
                 : "memory");
}

// Tells both blocks of the cluster that this warp has read a stage.
__device__ __forceinline__ void release(u32 barrier) {
#pragma unroll
    for (u32 block = 0; block < 2; block++)
        asm volatile("{.reg .b32 there; mapa.shared::cluster.u32 there, %0, %1;\n"
                     "mbarrier.arrive.shared::cluster.b64 _, [there];}" ::"r"(barrier), "r"(block)
                     : "memory");
}

__device__ __forceinline__ void meet() {
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

// How the tensor cores find an operand: rows of 128 bytes, eight of them 1024 bytes, swizzled over these.
__device__ __forceinline__ u64 operand(u32 address) {
    return (u64)(address >> 4 & 0x3fff) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

// Which part of C is the i-th: its place in rows and columns.
__device__ __forceinline__ void part(u32 i, u32 parts, u32 *row, u32 *column) {
    const u32 band = i / (BAND * parts), rest = i % (BAND * parts), left = parts - band * BAND;
    const u32 height = left < BAND ? left : BAND;
    *row = band * BAND + rest % height;
    *column = rest / height;
}

// Keeps the stages full: one thread.
template <class T>
__device__ __forceinline__ void fetch(u32 base, u32 rank, const char *a, const char *b, u32 n) {
    const u32 parts = n / SIDE, steps = n * T::bytes / 128;
    u32 stage = 0, parity = 1;
    for (u32 i = blockIdx.x / 2; i < parts * parts; i += gridDim.x / 2) {
        u32 row, column;
        part(i, parts, &row, &column);
        const char *from_a = a + (u64)(row * 2 + rank) * steps * BLOCK;
        const char *from_b = b + (u64)(column * 2 + rank) * steps * BLOCK;
        for (u32 step = 0; step < steps; step++) {
            const u32 full = base + BARRIERS + stage * 8, empty = full + STAGES * 8, to = base + stage * STAGE;
            wait(empty, parity);
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(full), "r"(STAGE) : "memory");
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
                             "r"(to), "l"(from_a + (u64)step * BLOCK), "r"(BLOCK), "r"(full)
                         : "memory");
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], "
                         "%2, [%3], %4;" ::"r"(to + BLOCK + rank * BLOCK),
                         "l"(from_b + (u64)step * BLOCK), "r"(BLOCK), "r"(full), "h"((unsigned short)3)
                         : "memory");
            if (++stage == STAGES) {
                stage = 0;
                parity ^= 1;
            }
        }
    }
}

// Multiplies what is in the stages, and stores: 64 rows for each group of four warps.
template <class T> __device__ __forceinline__ void multiply(u32 base, u32 rank, u32 group, void *out, u32 n) {
    const u32 parts = n / SIDE, steps = n * T::bytes / 128, lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    u32 stage = 0, parity = 0;
    float d[128];
    for (u32 i = blockIdx.x / 2; i < parts * parts; i += gridDim.x / 2) {
        u32 row, column, before = 0;
        part(i, parts, &row, &column);
        for (u32 step = 0; step < steps; step++) {
            const u32 full = base + BARRIERS + stage * 8;
            wait(full, parity);
            const u64 a = operand(base + stage * STAGE + group * (BLOCK / 2)), b = operand(base + stage * STAGE + BLOCK);
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
            for (u32 k = 0; k < 4; k++) T::mma(d, a + 2 * k, b + 2 * k, step + k);
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            // All but these are done: the stage before is free.
            asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
            if (step > 0 && lane == 0) release(before);
            before = full + STAGES * 8;
            if (++stage == STAGES) {
                stage = 0;
                parity ^= 1;
            }
        }
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        if (lane == 0) release(before);
        const u64 first_row = (u64)row * SIDE + rank * 128 + group * 64 + warp * 16 + lane / 4;
        const u64 at = first_row * n + column * SIDE + lane % 4 * 2;
#pragma unroll
        for (u32 j = 0; j < 32; j++) {
            T::store(out, at + j * 8, d[j * 4], d[j * 4 + 1]);
            T::store(out, at + j * 8 + 8ull * n, d[j * 4 + 2], d[j * 4 + 3]);
        }
    }
}

template <class T> __device__ __forceinline__ void gemm(const char *a, const char *b, void *c, u32 n) {
    extern __shared__ char shared[];
    u32 base, rank;
    asm("{.reg .u64 p; cvta.to.shared.u64 p, %1; cvt.u32.u64 %0, p;}" : "=r"(base) : "l"(shared));
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    base = (base + 1023) & ~1023u;
    if (threadIdx.x == 0) {
        for (u32 s = 0; s < STAGES; s++) {
            const u32 full = base + BARRIERS + s * 8;
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(full));
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(full + STAGES * 8), "n"(2 * WARPS));
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    meet();
    if (threadIdx.x < 128) {
        if (threadIdx.x == 0) fetch<T>(base, rank, a, b, n);
        __syncwarp();
    } else {
        multiply<T>(base, rank, threadIdx.x / 128 - 1, c, n);
    }
    // Nobody leaves while the other one may still write here.
    meet();
}

#define KERNEL(NAME, TYPE)                                                                                             \
    extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)                                     \
        NAME(const char *a, const char *b, void *c, u32 n) {                                                           \
        gemm<TYPE>(a, b, c, n);                                                                                        \
    }
KERNEL(gemm_bf16, Bf16)
KERNEL(gemm_fp16, Fp16)
KERNEL(gemm_tf32, Tf32)
