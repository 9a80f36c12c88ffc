// llmc/model/norm.h: the norm that the model's config asks for: layernorm (ops/layernorm.h) or
// rmsnorm (ops/rmsnorm.h), which has no mean and no shift. Same arguments, same order.
#pragma once
#include "llmc/model/config.h"
#include "llmc/ops/layernorm.h"
#include "llmc/ops/rmsnorm.h"

template <class Elem, class Stream>
void norm_forward(const ModelConfig& c, Elem* y, float* mean, float* rstd, const Elem* x,
                  const Elem* w, const Elem* b, int N, Stream s) {
    if (c.norm == Norm::Layer)
        layernorm_forward(y, mean, rstd, x, w, b, N, c.C, c.eps, s);
    else
        rmsnorm_forward(y, rstd, x, w, N, c.C, c.eps, s);
}

template <class Elem, class Stream>
void residual_norm_forward(const ModelConfig& c, Elem* residual, Elem* y, float* mean, float* rstd,
                           const Elem* x, const Elem* branch, const Elem* w, const Elem* b, int N,
                           Stream s) {
    if (c.norm == Norm::Layer)
        residual_layernorm_forward(residual, y, mean, rstd, x, branch, w, b, N, c.C, c.eps, s);
    else
        residual_rmsnorm_forward(residual, y, rstd, x, branch, w, N, c.C, c.eps, s);
}

template <class Stream>
size_t norm_backward_workspace_bytes(const ModelConfig& c, int N, Stream s) {
    return c.norm == Norm::Layer ? layernorm_backward_workspace_bytes(N, c.C, s)
                                 : rmsnorm_backward_workspace_bytes(N, c.C, s);
}

template <class Elem, class Stream>
void norm_backward(const ModelConfig& c, Elem* dx, float* dw, float* db, const Elem* dy,
                   const Elem* x, const Elem* w, const float* mean, const float* rstd, int N,
                   Workspace ws, Stream s) {
    if (c.norm == Norm::Layer)
        layernorm_backward(dx, dw, db, dy, x, w, mean, rstd, N, c.C, ws, s);
    else
        rmsnorm_backward(dx, dw, dy, x, w, rstd, N, c.C, ws, s);
}

template <class Elem, class Stream>
void residual_norm_backward(const ModelConfig& c, Elem* dresidual, float* dw, float* db,
                            const Elem* dy, const Elem* residual, const Elem* w, const float* mean,
                            const float* rstd, int N, Workspace ws, Stream s) {
    if (c.norm == Norm::Layer)
        residual_layernorm_backward(dresidual, dw, db, dy, residual, w, mean, rstd, N, c.C, ws, s);
    else
        residual_rmsnorm_backward(dresidual, dw, dy, residual, w, rstd, N, c.C, ws, s);
}
