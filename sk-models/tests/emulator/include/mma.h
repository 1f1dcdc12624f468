// Matrices of a warp. Each lane has the whole matrix, and all do the same.
#pragma once
#include "cuda_bf16.h"

namespace nvcuda {
namespace wmma {

struct row_major {};
struct col_major {};
struct matrix_a {};
struct matrix_b {};
struct accumulator {};
enum layout_t { mem_row_major, mem_col_major };
namespace precision {
struct tf32 {};
} // namespace precision

template <class Use, int M, int N, int K> struct Shape;
template <int M, int N, int K> struct Shape<matrix_a, M, N, K> { static constexpr int rows = M, columns = K; };
template <int M, int N, int K> struct Shape<matrix_b, M, N, K> { static constexpr int rows = K, columns = N; };
template <int M, int N, int K> struct Shape<accumulator, M, N, K> { static constexpr int rows = M, columns = N; };

template <class T> struct Entry { using type = T; };
template <> struct Entry<precision::tf32> { using type = float; };

template <class Use, int M, int N, int K, class T, class Layout = void> struct fragment : Shape<Use, M, N, K> {
    static constexpr int num_elements = Shape<Use, M, N, K>::rows * Shape<Use, M, N, K>::columns;
    typename Entry<T>::type x[num_elements];
};

// TF32 has the exponent of f32 and ten bits after the point.
static inline float __float_to_tf32(float x) { return __uint_as_float((__float_as_uint(x) + 0x1000) & ~0x1fffu); }
template <class T> float read(T x, const void*) { return x; }
static inline float read(float x, const precision::tf32*) { return __uint_as_float(__float_as_uint(x) & ~0x1fffu); }

template <class Fragment, class T> void fill_fragment(Fragment& f, T value) {
    for (auto& entry : f.x) entry = value;
}

template <class Fragment, class P> void load(Fragment& f, const P* from, unsigned stride, bool by_rows) {
    emulated_warp_barrier();
    for (int r = 0; r < Fragment::rows; r++) {
        for (int c = 0; c < Fragment::columns; c++) {
            f.x[r * Fragment::columns + c] = by_rows ? from[r * stride + c] : from[c * stride + r];
        }
    }
    emulated_warp_barrier();
}

template <class Use, int M, int N, int K, class T, class Layout, class P>
void load_matrix_sync(fragment<Use, M, N, K, T, Layout>& f, const P* from, unsigned stride) {
    load(f, from, stride, std::is_same_v<Layout, row_major>);
}

template <int M, int N, int K, class T, class P>
void load_matrix_sync(fragment<accumulator, M, N, K, T>& f, const P* from, unsigned stride, layout_t layout) {
    load(f, from, stride, layout == mem_row_major);
}

template <int M, int N, int K, class T, class P>
void store_matrix_sync(P* to, const fragment<accumulator, M, N, K, T>& f, unsigned stride, layout_t layout) {
    emulated_warp_barrier();
    for (int r = 0; r < M; r++) {
        for (int c = 0; c < N; c++) to[layout == mem_row_major ? r * stride + c : c * stride + r] = f.x[r * N + c];
    }
    emulated_warp_barrier();
}

template <int M, int N, int K, class A, class LA, class B, class LB, class T>
void mma_sync(fragment<accumulator, M, N, K, T>& out, const fragment<matrix_a, M, N, K, A, LA>& a,
              const fragment<matrix_b, M, N, K, B, LB>& b, const fragment<accumulator, M, N, K, T>& c) {
    fragment<accumulator, M, N, K, T> sums;
    for (int i = 0; i < M; i++) {
        for (int j = 0; j < N; j++) {
            float sum = c.x[i * N + j];
            for (int k = 0; k < K; k++) sum += read(a.x[i * K + k], (A*)nullptr) * read(b.x[k * N + j], (B*)nullptr);
            sums.x[i * N + j] = sum;
        }
    }
    out = sums;
}

} // namespace wmma
} // namespace nvcuda
using nvcuda::wmma::__float_to_tf32;
