// bf16: the upper half of an f32, rounded to the nearest, to the even of two.
#pragma once
#include "../kernel.h"

struct __nv_bfloat16 {
    uint16_t bits;

    __nv_bfloat16() = default;

    template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>> __nv_bfloat16(T number) {
        uint32_t whole = __float_as_uint(float(number));
        bits = (whole & 0x7fffffff) > 0x7f800000 ? 0x7fff : uint16_t((whole + 0x7fff + (whole >> 16 & 1)) >> 16);
    }

    operator float() const { return __uint_as_float(uint32_t(bits) << 16); }
};

#define OPERATOR(o)                                                                                              \
    static inline __nv_bfloat16 operator o(__nv_bfloat16 a, __nv_bfloat16 b) { return float(a) o float(b); }     \
    static inline __nv_bfloat16& operator o##=(__nv_bfloat16& a, __nv_bfloat16 b) { return a = a o b; }
OPERATOR(+)
OPERATOR(-)
OPERATOR(*)
OPERATOR(/)
#undef OPERATOR
#define OPERATOR(o) \
    static inline bool operator o(__nv_bfloat16 a, __nv_bfloat16 b) { return float(a) o float(b); }
OPERATOR(<)
OPERATOR(>)
OPERATOR(<=)
OPERATOR(>=)
OPERATOR(==)
OPERATOR(!=)
#undef OPERATOR
static inline __nv_bfloat16 operator-(__nv_bfloat16 a) { return -float(a); }

struct __nv_bfloat162 {
    __nv_bfloat16 x, y;
};

static inline float __bfloat162float(__nv_bfloat16 a) { return a; }
static inline __nv_bfloat16 __float2bfloat16(float a) { return a; }
static inline __nv_bfloat16 __float2bfloat16_rn(float a) { return a; }
static inline __nv_bfloat16 __hmax(__nv_bfloat16 a, __nv_bfloat16 b) { return fmaxf(a, b); }
static inline __nv_bfloat16 __hmin(__nv_bfloat16 a, __nv_bfloat16 b) { return fminf(a, b); }
static inline __nv_bfloat16 __hfma(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) { return fmaf(a, b, c); }
static inline __nv_bfloat16 __habs(__nv_bfloat16 a) { return fabsf(a); }
static inline bool __hisnan(__nv_bfloat16 a) { return std::isnan(float(a)); }
static inline __nv_bfloat16 hexp(__nv_bfloat16 a) { return expf(a); }
static inline __nv_bfloat16 hlog(__nv_bfloat16 a) { return logf(a); }
static inline __nv_bfloat16 hsqrt(__nv_bfloat16 a) { return sqrtf(a); }
