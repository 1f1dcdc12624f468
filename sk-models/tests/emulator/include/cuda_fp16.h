#pragma once
#include "../kernel.h"

typedef _Float16 __half;

struct __half2 {
    __half x, y;
};

static inline float __half2float(__half a) { return a; }
static inline __half __float2half(float a) { return __half(a); }
