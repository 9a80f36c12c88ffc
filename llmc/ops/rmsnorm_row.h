// llmc/ops/rmsnorm_row.h: one row of an RMS norm on the CPU, for the ops that normalise rows
// (rmsnorm.h has the equations).
#pragma once
#include <cmath>

// y = x * rstd * w; returns rstd. y may be x.
inline float rmsnorm_row(float* y, const float* x, const float* w, int C, float eps) {
    float squares = 0.f;
#pragma omp simd reduction(+ : squares)
    for (int c = 0; c < C; c++) squares += x[c] * x[c];
    const float rstd = 1.f / std::sqrt(squares / float(C) + eps);
#pragma omp simd
    for (int c = 0; c < C; c++) y[c] = x[c] * rstd * w[c];
    return rstd;
}

// dx = (or +=) rstd * (g - xhat * mean(g * xhat)) with g = dy * w, and this row's share of dw,
// added. dx may be dy.
template <bool kAdd>
void rmsnorm_backward_row(float* dx, float* dw, const float* dy, const float* x, const float* w,
                          float rstd, int C) {
    float sum = 0.f;
#pragma omp simd reduction(+ : sum)
    for (int c = 0; c < C; c++) {
        const float xhat = x[c] * rstd;
        dw[c] += dy[c] * xhat;
        sum += dy[c] * w[c] * xhat;
    }
    const float mean = sum / float(C);
#pragma omp simd
    for (int c = 0; c < C; c++) {
        const float d = rstd * (dy[c] * w[c] - x[c] * rstd * mean);
        dx[c] = kAdd ? dx[c] + d : d;
    }
}
