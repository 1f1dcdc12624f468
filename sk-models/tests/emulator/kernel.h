// What the CUDA C++ of a kernel uses, for the processor. It stands before the kernel's own text.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __shared__
#define __restrict__
#define __align__(n) __attribute__((aligned(n)))

// ---- The device, which the driver is.

struct Triple {
    unsigned x, y, z;
};

extern "C" {
extern Triple emulated_thread, emulated_block, emulated_block_size, emulated_grid;
void emulated_block_barrier();
void emulated_warp_barrier();
unsigned emulated_lane();
unsigned emulated_active();
// Shows a number to the lanes that come to the same place of the source, and returns which these are.
unsigned emulated_show(uint64_t number, unsigned place);
uint64_t emulated_shown(unsigned lane);
}

#define threadIdx emulated_thread
#define blockIdx emulated_block
#define blockDim emulated_block_size
#define gridDim emulated_grid
constexpr int warpSize = 32;

static inline void __syncthreads() { emulated_block_barrier(); }
static inline void __syncwarp(unsigned = ~0u) { emulated_warp_barrier(); }
static inline void __threadfence() {}
static inline void __threadfence_block() {}
static inline unsigned __activemask() { return emulated_active(); }

template <class T> uint64_t to_bits(T value) {
    static_assert(sizeof(T) <= 8, "a shuffle moves up to eight bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    return bits;
}

template <class T> T from_bits(uint64_t bits) {
    T value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// The value of another lane; the own one where that lane is not there.
template <class T> T shuffle(T value, int lane, unsigned place) {
    unsigned there = emulated_show(to_bits(value), place);
    return lane >= 0 && lane < 32 && (there >> lane & 1) ? from_bits<T>(emulated_shown(lane)) : value;
}

static inline unsigned ballot(bool vote, unsigned place) {
    unsigned there = emulated_show(vote, place), votes = 0;
    for (unsigned lane = 0; lane < 32; lane++) {
        if (there >> lane & 1 && emulated_shown(lane)) votes |= 1u << lane;
    }
    return votes;
}

static inline bool all(bool vote, unsigned place) { return ballot(!vote, place) == 0; }

#define __shfl_sync(mask, value, lane) (mask, shuffle(value, int((lane) & 31), __LINE__))
#define __shfl_xor_sync(mask, value, other) (mask, shuffle(value, int(emulated_lane() ^ (other)), __LINE__))
#define __shfl_up_sync(mask, value, by) (mask, shuffle(value, int(emulated_lane()) - int(by), __LINE__))
#define __shfl_down_sync(mask, value, by) (mask, shuffle(value, int(emulated_lane()) + int(by), __LINE__))
#define __ballot_sync(mask, vote) (mask, ballot(vote, __LINE__))
#define __any_sync(mask, vote) (mask, ballot(vote, __LINE__) != 0)
#define __all_sync(mask, vote) (mask, all(vote, __LINE__))

// What `mma.sync.aligned.m16n8k16` computes from bf16, with sums in f32. compile.sh calls it in place of the assembly.
template <class A> void emulated_mma(unsigned place, float& d0, float& d1, float& d2, float& d3, A a0, A a1, A a2, A a3, A b0, A b1,
                                     float c0, float c1, float c2, float c3) {
    auto number = [](uint64_t bits, int at) { return from_bits<float>(bits >> 16 * at << 16 & 0xffff0000); };
    unsigned lane = emulated_lane(), row = lane / 4, column = lane % 4 * 2;
    float a[2][16], b[2][16], *out[2][2] = {{&d0, &d1}, {&d2, &d3}}, sums[2][2] = {{c0, c1}, {c2, c3}};
    for (int half = 0; half < 2; half++) {
        emulated_show(to_bits(half ? a2 : a0) | to_bits(half ? a3 : a1) << 32, place);
        for (int other = 0; other < 4; other++) {
            for (int i = 0; i < 4; i++) a[i / 2][8 * half + 2 * other + i % 2] = number(emulated_shown(4 * row + other), i);
        }
    }
    emulated_show(to_bits(b0) | to_bits(b1) << 32, place);
    for (int side = 0; side < 2; side++) {
        for (int other = 0; other < 4; other++) {
            for (int i = 0; i < 4; i++) b[side][8 * (i / 2) + 2 * other + i % 2] = number(emulated_shown(4 * (column + side) + other), i);
        }
    }
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < 16; k++) sums[i / 2][i % 2] += a[i / 2][k] * b[i % 2][k];
        *out[i / 2][i % 2] = sums[i / 2][i % 2];
    }
}

// ---- Functions of the device.

static inline float __expf(float x) { return expf(x); }
static inline float __logf(float x) { return logf(x); }
static inline float __log2f(float x) { return log2f(x); }
static inline float __sinf(float x) { return sinf(x); }
static inline float __cosf(float x) { return cosf(x); }
static inline float __tanhf(float x) { return tanhf(x); }
static inline float __powf(float x, float y) { return powf(x, y); }
static inline float __fdividef(float x, float y) { return x / y; }
static inline float __fsqrt_rn(float x) { return sqrtf(x); }
static inline float __frsqrt_rn(float x) { return 1.0f / sqrtf(x); }
static inline float __frcp_rn(float x) { return 1.0f / x; }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline float rsqrt(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned(uint64_t(a) * b >> 32); }
static inline int __mulhi(int a, int b) { return int(int64_t(a) * b >> 32); }
static inline uint64_t __umul64hi(uint64_t a, uint64_t b) { return uint64_t((unsigned __int128)a * b >> 64); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(uint64_t x) { return __builtin_popcountll(x); }
static inline int __clz(unsigned x) { return x ? __builtin_clz(x) : 32; }
static inline int __clzll(uint64_t x) { return x ? __builtin_clzll(x) : 64; }
static inline int __ffs(unsigned x) { return __builtin_ffs(int(x)); }
static inline int __ffsll(uint64_t x) { return __builtin_ffsll((long long)x); }
static inline float __uint_as_float(unsigned x) { return from_bits<float>(x); }
static inline float __int_as_float(int x) { return from_bits<float>(uint32_t(x)); }
static inline unsigned __float_as_uint(float x) { return unsigned(to_bits(x)); }
static inline int __float_as_int(float x) { return int(to_bits(x)); }
using std::isinf;
using std::isnan;

template <class T, class = std::enable_if_t<std::is_integral_v<T>>> T max(T a, T b) { return a > b ? a : b; }
template <class T, class = std::enable_if_t<std::is_integral_v<T>>> T min(T a, T b) { return a < b ? a : b; }
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline float min(float a, float b) { return fminf(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }
static inline double min(double a, double b) { return fmin(a, b); }

// Threads take turns only at barriers, so that nothing comes between.
#define ATOMIC(name, result)                        \
    template <class T, class U> T name(T* at, U x) { \
        T old = *at;                                \
        *at = T(result);                            \
        return old;                                 \
    }
ATOMIC(atomicAdd, old + x)
ATOMIC(atomicSub, old - x)
ATOMIC(atomicMax, old > T(x) ? old : T(x))
ATOMIC(atomicMin, old < T(x) ? old : T(x))
ATOMIC(atomicExch, x)
ATOMIC(atomicAnd, old & x)
ATOMIC(atomicOr, old | x)
ATOMIC(atomicXor, old ^ x)
#undef ATOMIC

// ---- The call of a kernel, from pointers to its arguments.

template <class... A, size_t... I> void call(void (*kernel)(A...), void** arguments, std::index_sequence<I...>) {
    kernel(*static_cast<std::remove_const_t<std::remove_reference_t<A>>*>(arguments[I])...);
}

template <class... A> void call(void (*kernel)(A...), void** arguments) {
    call(kernel, arguments, std::index_sequence_for<A...>{});
}

// How many arguments there are, and how long each is.
template <class... A> unsigned lengths(void (*)(A...), size_t* out) {
    ((*out++ = sizeof(std::remove_reference_t<A>)), ...);
    return sizeof...(A);
}
