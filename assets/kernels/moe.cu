// ptx: compute_70
// Routing of a layer of experts: which `k` of the experts a token goes to, with which weights, and how many tokens each
// expert gets. Once as one kernel, once as the chain of kernels that a framework launches when nothing is fused.
//
// A warp takes a token; a lane has PER experts in a row, so that the lower of two equal logits is the lower lane's. There
// are 32 * PER experts or less, a multiple of 4; k is 32 at most.

#include "common.cuh"

#define ALL 0xffffffffu
#define MOST 256

__device__ __forceinline__ float below_all() { return __int_as_float(0xff800000); }

// The PER values of this lane; what is no expert is below all.
template <int PER> __device__ __forceinline__ void load(const float *row, u32 experts, u32 lane, float (&v)[PER]) {
    if (PER >= 4) {
#pragma unroll
        for (int j = 0; j < PER; j += 4) {
            float4 four = make_float4(below_all(), below_all(), below_all(), below_all());
            if (lane * PER + j + 3 < experts) four = *(const float4 *)(row + lane * PER + j);
            v[j % PER] = four.x, v[(j + 1) % PER] = four.y, v[(j + 2) % PER] = four.z, v[(j + 3) % PER] = four.w;
        }
    } else {
#pragma unroll
        for (int j = 0; j < PER; j++) v[j] = lane * PER + j < experts ? row[lane * PER + j] : below_all();
    }
}

__device__ __forceinline__ float warp_max(float x) {
    for (int lanes = 16; lanes > 0; lanes /= 2) x = fmaxf(x, __shfl_xor_sync(ALL, x, lanes));
    return x;
}

__device__ __forceinline__ float warp_sum(float x) {
    for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(ALL, x, lanes);
    return x;
}

// Takes the largest value out of those that are left, and says whose it is.
template <int PER> __device__ __forceinline__ float take_largest(float (&v)[PER], u32 lane, u32 &expert) {
    float best = v[0];
    u32 at = 0;
#pragma unroll
    for (int j = 1; j < PER; j++)
        if (v[j] > best) best = v[j], at = j;
    const float largest = warp_max(best);
    // With NaN there is no owner: the last lane stands in, whose experts are in bounds.
    const u32 owner = (__ffs(__ballot_sync(ALL, best == largest)) - 1) & 31;
    expert = __shfl_sync(ALL, lane * PER + at, owner);
#pragma unroll
    for (int j = 0; j < PER; j++)
        if (lane == owner && j == at) v[j] = below_all();
    return largest;
}

// One warp writes how many tokens each expert has, and where they would begin in a list by expert.
template <int PER>
__device__ __forceinline__ void write_counts(const u32 *hits, u32 experts, u32 lane, u32 *counts, u32 *offsets) {
    u32 own = 0;
#pragma unroll
    for (int j = 0; j < PER; j++) own += hits[lane * PER + j];
    u32 end = own;
    for (int lanes = 1; lanes < 32; lanes *= 2) {
        const u32 lower = __shfl_up_sync(ALL, end, lanes);
        if (lane >= lanes) end += lower;
    }
    u32 start = end - own;
#pragma unroll
    for (int j = 0; j < PER; j++) {
        const u32 e = lane * PER + j;
        if (e < experts) counts[e] = hits[e], offsets[e] = start, start += hits[e];
    }
    if (lane == 31) offsets[experts] = end;
}

// All of it in one kernel. `work` has experts + 1 words, which are 0 before and after.
template <int PER>
__device__ __forceinline__ void fused(const float *logits, u32 tokens, u32 experts, u32 k, u32 *ids, float *weights,
                                      u32 *work, u32 *counts, u32 *offsets) {
    __shared__ u32 hits[MOST];
    __shared__ u32 is_last;
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    for (u32 i = threadIdx.x; i < MOST; i += blockDim.x) hits[i] = 0;
    __syncthreads();
    for (u32 token = blockIdx.x * warps + warp; token < tokens; token += gridDim.x * warps) {
        float v[PER];
        load<PER>(logits + (u64)token * experts, experts, lane, v);
        float top = 0, sum = 0, mine = 0;
        u32 my_expert = 0;
        for (u32 r = 0; r < k; r++) {
            u32 expert;
            const float value = take_largest<PER>(v, lane, expert);
            if (r == 0) top = value;
            // The sum over all experts would cancel out: the weights of those that were chosen add up to 1.
            const float weight = __expf(value - top);
            sum += weight;
            if (lane == r) mine = weight, my_expert = expert;
        }
        if (lane < k) {
            ids[(u64)token * k + lane] = my_expert;
            weights[(u64)token * k + lane] = mine / sum;
            atomicAdd(&hits[my_expert], 1);
        }
    }
    __syncthreads();
    if (gridDim.x > 1) {
        for (u32 i = threadIdx.x; i < experts; i += blockDim.x)
            if (hits[i]) atomicAdd(&work[i], hits[i]);
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) is_last = atomicAdd(&work[experts], 1) == gridDim.x - 1;
        __syncthreads();
        if (!is_last) return;
        __threadfence();
        for (u32 i = threadIdx.x; i < experts; i += blockDim.x) hits[i] = __ldcg(&work[i]), work[i] = 0;
        if (threadIdx.x == 0) work[experts] = 0;
        __syncthreads();
    }
    if (warp == 0) write_counts<PER>(hits, experts, lane, counts, offsets);
}

// The chain, first: the probabilities of all experts.
template <int PER>
__device__ __forceinline__ void softmax(const float *logits, u32 tokens, u32 experts, float *probabilities) {
    const u32 lane = threadIdx.x % 32, token = (u32)(first() / 32);
    if (token >= tokens) return;
    float v[PER], most = below_all(), sum = 0;
    load<PER>(logits + (u64)token * experts, experts, lane, v);
#pragma unroll
    for (int j = 0; j < PER; j++) most = fmaxf(most, v[j]);
    most = warp_max(most);
#pragma unroll
    for (int j = 0; j < PER; j++) v[j] = __expf(v[j] - most), sum += v[j];
    sum = warp_sum(sum);
    float *row = probabilities + (u64)token * experts;
#pragma unroll
    for (int j = 0; j < PER; j++)
        if (lane * PER + j < experts) row[lane * PER + j] = v[j] / sum;
}

// Second: the k largest of them.
template <int PER>
__device__ __forceinline__ void top_k(const float *probabilities, u32 tokens, u32 experts, u32 k, u32 *ids, float *values) {
    const u32 lane = threadIdx.x % 32, token = (u32)(first() / 32);
    if (token >= tokens) return;
    float v[PER], mine = 0;
    u32 my_expert = 0;
    load<PER>(probabilities + (u64)token * experts, experts, lane, v);
    for (u32 r = 0; r < k; r++) {
        u32 expert;
        const float value = take_largest<PER>(v, lane, expert);
        if (lane == r) mine = value, my_expert = expert;
    }
    if (lane < k) {
        ids[(u64)token * k + lane] = my_expert;
        values[(u64)token * k + lane] = mine;
    }
}

// Third: weights that add up to 1.
extern "C" __global__ void __launch_bounds__(256) renormalise(const float *values, u32 tokens, u32 k, float *weights) {
    const u64 token = first();
    if (token >= tokens) return;
    float sum = 0;
    for (u32 r = 0; r < k; r++) sum += values[token * k + r];
    for (u32 r = 0; r < k; r++) weights[token * k + r] = values[token * k + r] / sum;
}

// Fourth, one block: tokens of each expert.
extern "C" __global__ void __launch_bounds__(1024) count(const u32 *ids, u32 n, u32 experts, u32 *counts, u32 *offsets) {
    __shared__ u32 hits[MOST];
    for (u32 i = threadIdx.x; i < MOST; i += blockDim.x) hits[i] = 0;
    __syncthreads();
    for (u32 i = threadIdx.x; i < n; i += blockDim.x) atomicAdd(&hits[ids[i] % MOST], 1);
    __syncthreads();
    if (threadIdx.x < 32) write_counts<MOST / 32>(hits, experts, threadIdx.x, counts, offsets);
}

// What a launch takes that does nothing.
extern "C" __global__ void empty() {}

#define EXPERTS_A_LANE(PER)                                                                                            \
    extern "C" __global__ void __launch_bounds__(1024)                                                                \
        fused_##PER(const float *logits, u32 tokens, u32 experts, u32 k, u32 *ids, float *weights, u32 *work,         \
                    u32 *counts, u32 *offsets) {                                                                       \
        fused<PER>(logits, tokens, experts, k, ids, weights, work, counts, offsets);                                   \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256)                                                                 \
        softmax_##PER(const float *logits, u32 tokens, u32 experts, float *probabilities) {                            \
        softmax<PER>(logits, tokens, experts, probabilities);                                                          \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256)                                                                 \
        top_k_##PER(const float *probabilities, u32 tokens, u32 experts, u32 k, u32 *ids, float *values) {             \
        top_k<PER>(probabilities, tokens, experts, k, ids, values);                                                    \
    }

EXPERTS_A_LANE(1)
EXPERTS_A_LANE(2)
EXPERTS_A_LANE(4)
EXPERTS_A_LANE(8)
