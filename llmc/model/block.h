// llmc/model/block.h: one transformer layer, forward above backward; backward lists forward's calls
// in reverse.
//
//   ln1 = norm(res1)        qkv = ln1 Wqkv     atty = attention(qkv)   res2 = res1 + atty Wproj
//   ln2 = norm(res2)        pre = ln2 Wfc      act  = gelu(pre)        next = res2 + act Wfcproj
//
// GPT-2: layer norms, biases, GELU. LLaMA: RMS norms, q and k turned by their positions before
// attention, act = swiglu(pre) with a pre of twice the width; fewer k and v heads than q heads.
// Qwen 3: also a norm of each q and k head before they are turned.
//
// The last addition of a layer is fused into the first norm of the next one, so a layer hands on
// res2 and the branch that is still to be added. Pre-norm transformer: Radford et al. 2019,
// section 2.3; Touvron et al. 2023, arXiv:2302.13971, section 2.2.
#pragma once
#include "llmc/model/activations.h"
#include "llmc/model/norm.h"
#include "llmc/model/parameters.h"
#include "llmc/ops/attention.h"
#include "llmc/ops/gelu.h"
#include "llmc/ops/matmul.h"
#include "llmc/ops/qknorm.h"
#include "llmc/ops/rope.h"
#include "llmc/ops/swiglu.h"

// From ln1 to the MLP's activation. Backward runs it again where forward's values were dropped.
template <class Elem, class Stream>
void block_body(LayerActs<Elem>& a, Activations<Elem>& all, const LayerParams<Elem>& p,
                const ModelConfig& c, Stream s) {
    const int B = all.B, T = all.T, N = B * T, C = c.C, F = c.F, QKV = c.QKV();
    matmul_forward(a.qkv, a.ln1, p.qkvw, p.qkvb, N, C, QKV, all.ws, s);
    if (c.qk_norm)
        qknorm_forward(a.qkv, a.qk, a.rstdqk, p.qnormw, p.knormw, N, c.H, c.KV, c.HS(), c.eps, s);
    if (all.rope) rope(a.qkv, all.rope, B, T, c.H, c.KV, c.HS(), c.rope_pairs, 1, s);
    attention_forward(a.atty, a.lse, a.qkv, B, T, c.H, c.KV, c.HS(), all.ws, s);
    matmul_forward(all.branch, a.atty, p.projw, p.projb, N, c.A(), C, all.ws, s);
    residual_norm_forward(c, a.res2, a.ln2, a.mean2, a.rstd2, a.res1, all.branch, p.ln2w, p.ln2b, N,
                          s);
    if (c.mlp == Mlp::Gelu) {
        matmul_gelu_forward(a.act, a.pre, a.ln2, p.fcw, p.fcb, N, C, F, all.ws, s);
    } else {
        matmul_forward(a.pre, a.ln2, p.fcw, p.fcb, N, C, c.FC(), all.ws, s);
        swiglu_forward(a.act, a.pre, N, F, s);
    }
}

// res_in, branch: what the layer below hands on; null for the first layer, whose res1 is the
// embedding. On return all.branch is this layer's last branch.
template <class Elem, class Stream>
void block_forward(LayerActs<Elem>& a, Activations<Elem>& all, const Elem* res_in,
                   const LayerParams<Elem>& p, const ModelConfig& c, Stream s) {
    const int N = all.B * all.T, C = c.C, F = c.F;
    if (res_in)
        residual_norm_forward(c, a.res1, a.ln1, a.mean1, a.rstd1, res_in, all.branch, p.ln1w,
                              p.ln1b, N, s);
    else
        norm_forward(c, a.ln1, a.mean1, a.rstd1, a.res1, p.ln1w, p.ln1b, N, s);
    block_body(a, all, p, c, s);
    matmul_forward(all.branch, a.act, p.fcprojw, p.fcprojb, N, F, C, all.ws, s);
}

// Selective recompute remakes the MLP's activation: SwiGLU from `pre`, and so the CPU's GELU. On
// CUDA cuBLASLt's epilogue took the GELU of what `pre` was before it was rounded and stored: there
// the product has to run again for the same bits.
template <class Elem>
void block_gelu_again(LayerActs<Elem>& a, Activations<Elem>& all, const LayerParams<Elem>&,
                      const ModelConfig& c, CpuStream s) {
    gelu_forward(a.act, a.pre, size_t(all.B) * all.T * c.F, s);
}
template <class Elem>
void block_gelu_again(LayerActs<Elem>& a, Activations<Elem>& all, const LayerParams<Elem>& p,
                      const ModelConfig& c, CudaStream s) {
    matmul_gelu_forward(a.act, a.pre, a.ln2, p.fcw, p.fcb, all.B * all.T, c.C, c.F, all.ws, s);
}

// all.dres: in, the gradient of the layer's output; out, of its input (res1).
template <class Elem, class Stream>
void block_backward(LayerActs<Elem>& a, Activations<Elem>& all, const LayerParams<Elem>& p,
                    const LayerParams<float>& d, Recompute recompute, const ModelConfig& c,
                    Stream s) {
    const int B = all.B, T = all.T, N = B * T, C = c.C, F = c.F, QKV = c.QKV();
    Elem *dres = all.dres, *dwide = all.dwide, *dnarrow = all.branch;

    // Remake what forward dropped.
    if (recompute == Recompute::Block) {
        norm_forward(c, a.ln1, a.mean1, a.rstd1, a.res1, p.ln1w, p.ln1b, N, s);
        block_body(a, all, p, c, s);
    } else if (recompute == Recompute::Selective) {
        norm_forward(c, a.ln2, a.mean2, a.rstd2, a.res2, p.ln2w, p.ln2b, N, s);
        if (c.mlp == Mlp::Gelu)
            block_gelu_again(a, all, p, c, s);
        else
            swiglu_forward(a.act, a.pre, N, F, s);
        norm_forward(c, a.ln1, a.mean1, a.rstd1, a.res1, p.ln1w, p.ln1b, N, s);
    }

    // MLP
    matmul_backward_params(d.fcprojw, d.fcprojb, dres, a.act, N, F, C, all.ws, s);
    if (c.mlp == Mlp::Gelu) {
        matmul_backward_input_gelu(dwide, dres, p.fcprojw, a.pre, N, F, C, all.ws, s);
    } else {
        Elem* const dact = a.act;  // act has served
        matmul_backward_input(dact, dres, p.fcprojw, N, F, C, all.ws, s);
        swiglu_backward(dwide, dact, a.pre, N, F, s);
    }
    matmul_backward_params(d.fcw, d.fcb, dwide, a.ln2, N, C, c.FC(), all.ws, s);
    matmul_backward_input(dnarrow, dwide, p.fcw, N, C, c.FC(), all.ws, s);
    residual_norm_backward(c, dres, d.ln2w, d.ln2b, dnarrow, a.res2, p.ln2w, a.mean2, a.rstd2, N,
                           all.ws, s);
    // Attention
    matmul_backward_params(d.projw, d.projb, dres, a.atty, N, c.A(), C, all.ws, s);
    matmul_backward_input(dnarrow, dres, p.projw, N, c.A(), C, all.ws, s);
    attention_backward(dwide, dnarrow, a.qkv, a.atty, a.lse, B, T, c.H, c.KV, c.HS(), all.ws, s);
    if (all.rope) rope(dwide, all.rope, B, T, c.H, c.KV, c.HS(), c.rope_pairs, -1, s);
    if (c.qk_norm)
        qknorm_backward(dwide, d.qnormw, d.knormw, a.qk, p.qnormw, p.knormw, a.rstdqk, N, c.H, c.KV,
                        c.HS(), all.ws, s);
    matmul_backward_params(d.qkvw, d.qkvb, dwide, a.ln1, N, C, QKV, all.ws, s);
    matmul_backward_input(dnarrow, dwide, p.qkvw, N, C, QKV, all.ws, s);
    residual_norm_backward(c, dres, d.ln1w, d.ln1b, dnarrow, a.res1, p.ln1w, a.mean1, a.rstd1, N,
                           all.ws, s);
}
