// What the probes' kernels share. No header of a toolkit is needed.

typedef unsigned int u32;
typedef unsigned long long u64;

// Word i of the data with this seed: the same as `random` in src/probe/cuda/random.rs (SplitMix64's finaliser).
__device__ __forceinline__ u64 random_word(u64 i, u64 seed) {
    u64 z = (i + seed) * 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

// First index of this thread and how far it is to its next one.
__device__ __forceinline__ u64 first() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ __forceinline__ u64 stride() { return (u64)gridDim.x * blockDim.x; }
