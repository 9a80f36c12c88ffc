// SwiGLU on the CPU: element by element, bits independent of threads and position.
#include "llmc/ops/swiglu.h"

#include <cstdint>

#include "llmc/core/phase.h"
#include "llmc/ops/vector_math.h"

// s and 1 - s from e^-|x|, so that neither cancels nor overflows.
struct Sigmoid {
    Vec s, one_minus_s;
};
static Sigmoid sigmoid(Vec x) {
    const Vec e = vec_exp((Vec)((VecInt)x | INT32_MIN)), d = 1.f / (1.f + e);
    return {x < 0.f ? e * d : d, x < 0.f ? d : e * d};
}

void swiglu_forward(float* y, const float* pre, int N, int F, CpuStream) {
    const PhaseTimer timer(Phase::Other);
    const auto gated = [](Vec gate, Vec up) { return gate * sigmoid(gate).s * up; };
#pragma omp parallel for schedule(static)
    for (int n = 0; n < N; n++) {
        const float* const gate = pre + int64_t(n) * 2 * F;
        vec_map(F, y + int64_t(n) * F, gated, gate, gate + F);
    }
}

// Each half of dpre is written over the half of pre that it is made of, so in place the new gate
// has to wait until the new up is known.
void swiglu_backward(float* dpre, const float* dy, const float* pre, int N, int F, CpuStream) {
    const PhaseTimer timer(Phase::Other);
    const auto dup = [](Vec dy, Vec gate) { return dy * gate * sigmoid(gate).s; };
    const auto dgate = [](Vec dy, Vec gate, Vec up) {
        const Sigmoid g = sigmoid(gate);
        return dy * up * g.s * vec_fma(gate, g.one_minus_s, vec_all(1.f));
    };
    constexpr int kPiece = 256;
#pragma omp parallel for schedule(static)
    for (int n = 0; n < N; n++) {
        const float* const gate = pre + int64_t(n) * 2 * F;
        float* const d = dpre + int64_t(n) * 2 * F;
        for (int f = 0; f < F; f += kPiece) {
            const int count = F - f < kPiece ? F - f : kPiece;
            const float* const dyf = dy + int64_t(n) * F + f;
            float new_gate[kPiece];
            vec_map(count, new_gate, dgate, dyf, gate + f, gate + F + f);
            vec_map(count, d + F + f, dup, dyf, gate + f);
            for (int i = 0; i < count; i++) d[f + i] = new_gate[i];
        }
    }
}
