// ptx: compute_70
// Streams through device memory. Every thread takes 16 bytes at a time, UNROLL of them in flight, and as many rounds as
// it takes; `reps` passes in one launch make a working set that fits into L2 long enough to be timed.
//
// A block takes UNROLL * blockDim.x neighbouring 16-byte pieces, so that each access of a warp is 512 bytes in a row.
// `_cs` kernels tell the caches that nothing is needed twice, the others keep it in L2. None keeps anything in L1: a
// working set of a few MiB would come from there.

#include "common.cuh"

template <bool CS> __device__ __forceinline__ double2 load(const double2 *p) { return CS ? __ldcs(p) : __ldcg(p); }
template <bool CS> __device__ __forceinline__ void store(double2 *p, double2 v) {
    if (CS) __stcs(p, v);
    else __stcg(p, v);
}

struct Write {
    double scalar;
    static const int inputs = 0;
    __device__ double2 operator()(u64, double2, double2) const { return make_double2(scalar, scalar); }
};
struct Copy {
    double scalar;
    static const int inputs = 1;
    __device__ double2 operator()(u64, double2 b, double2) const { return b; }
};
struct Triad {
    double scalar;
    static const int inputs = 2;
    __device__ double2 operator()(u64, double2 b, double2 c) const {
        return make_double2(fma(scalar, c.x, b.x), fma(scalar, c.y, b.y));
    }
};

template <class Op, int UNROLL, bool CS>
__device__ __forceinline__ void map(double2 *a, const double2 *b, const double2 *c, u64 n, double scalar, u32 reps) {
    const Op op = {scalar};
    const u64 tile = (u64)blockDim.x * UNROLL;
    for (u32 rep = 0; rep < reps; rep++) {
        for (u64 base = blockIdx.x * tile; base < n; base += gridDim.x * tile) {
            const u64 i = base + threadIdx.x;
            double2 vb[UNROLL], vc[UNROLL];
            if (base + tile <= n) {
#pragma unroll
                for (int k = 0; k < UNROLL; k++) {
                    if (Op::inputs > 0) vb[k] = load<CS>(b + i + k * blockDim.x);
                    if (Op::inputs > 1) vc[k] = load<CS>(c + i + k * blockDim.x);
                }
#pragma unroll
                for (int k = 0; k < UNROLL; k++) store<CS>(a + i + k * blockDim.x, op(i + k * blockDim.x, vb[k], vc[k]));
            } else {
                for (u64 j = i; j < n; j += blockDim.x) {
                    double2 x = make_double2(0, 0), y = x;
                    if (Op::inputs > 0) x = load<CS>(b + j);
                    if (Op::inputs > 1) y = load<CS>(c + j);
                    store<CS>(a + j, op(j, x, y));
                }
            }
        }
    }
}

// XOR of all words into *out: every bit that was read counts.
template <int UNROLL, bool CS> __device__ __forceinline__ void read(const double2 *b, u64 n, u64 *out, u32 reps) {
    u64 acc = 0;
    const u64 tile = (u64)blockDim.x * UNROLL;
    for (u32 rep = 0; rep < reps; rep++) {
        for (u64 base = blockIdx.x * tile; base < n; base += gridDim.x * tile) {
            const u64 i = base + threadIdx.x;
            if (base + tile <= n) {
                double2 v[UNROLL];
#pragma unroll
                for (int k = 0; k < UNROLL; k++) v[k] = load<CS>(b + i + k * blockDim.x);
#pragma unroll
                for (int k = 0; k < UNROLL; k++) acc ^= __double_as_longlong(v[k].x) ^ __double_as_longlong(v[k].y);
            } else {
                for (u64 j = i; j < n; j += blockDim.x) {
                    const double2 v = load<CS>(b + j);
                    acc ^= __double_as_longlong(v.x) ^ __double_as_longlong(v.y);
                }
            }
        }
    }
    for (int lanes = 16; lanes > 0; lanes /= 2) acc ^= __shfl_xor_sync(0xffffffffu, acc, lanes);
    if (threadIdx.x % 32 == 0) atomicXor(out, acc);
}

#define SHAPE(U, CACHE, CS)                                                                                            \
    extern "C" __global__ void __launch_bounds__(1024) read_u##U##CACHE(double2 *out, const double2 *b,               \
                                                                       const double2 *, u64 n, double, u32 reps) {    \
        read<U, CS>(b, n, (u64 *)out, reps);                                                                           \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(1024) write_u##U##CACHE(double2 *a, const double2 *b,                \
                                                                        const double2 *c, u64 n, double s, u32 reps) { \
        map<Write, U, CS>(a, b, c, n, s, reps);                                                                        \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(1024) copy_u##U##CACHE(double2 *a, const double2 *b,                 \
                                                                       const double2 *c, u64 n, double s, u32 reps) {  \
        map<Copy, U, CS>(a, b, c, n, s, reps);                                                                         \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(1024) triad_u##U##CACHE(double2 *a, const double2 *b,                \
                                                                        const double2 *c, u64 n, double s, u32 reps) { \
        map<Triad, U, CS>(a, b, c, n, s, reps);                                                                        \
    }

SHAPE(1, , false)
SHAPE(2, , false)
SHAPE(4, , false)
SHAPE(8, , false)
SHAPE(1, _cs, true)
SHAPE(2, _cs, true)
SHAPE(4, _cs, true)
SHAPE(8, _cs, true)
