// llmc/model/activations.h: what forward leaves behind for backward, and the scratch both share.
//
// Recompute trades memory for arithmetic, with the same bits, since the same functions run again:
//   none       every value below is kept for each layer             16 C + ... elements a row
//   selective  layer norm outputs and GELU outputs are remade       10 C
//   block      only the layer's input is kept, the layer runs again  1 C
// Chen et al. 2016, arXiv:1604.06174; Korthikanti et al. 2022, arXiv:2205.05198, section 5.
#pragma once
#include <algorithm>
#include <vector>

#include "llmc/core/memory.h"
#include "llmc/core/round.h"
#include "llmc/model/config.h"

enum class Recompute { None, Selective, Block };

// One layer's values; N = B * T rows.
template <class Elem>
struct LayerActs {
    Elem* res1;            // (N, C)     residual stream at the layer's entry
    Elem* ln1;             // (N, C)
    float *mean1, *rstd1;  // (N)
    Elem* qkv;             // (N, QKV)
    Elem* qk;              // (N, (H+KV)*HS)  q and k before their norm, if they have one
    float* rstdqk;         // (N, H+KV)
    Elem* atty;            // (N, A)     attention output, before its projection
    float* lse;            // (B, H, T)
    Elem* res2;            // (N, C)     residual stream after attention
    Elem* ln2;             // (N, C)
    float *mean2, *rstd2;  // (N)
    Elem* pre;             // (N, FC)    before the MLP's activation
    Elem* act;             // (N, F)     after it
};

template <class Elem>
struct Activations {
    int B = 0, T = 0;
    int head_rows = 0;      // rows of logits that exist at a time
    int *tokens, *targets;  // (B, T)
    std::vector<LayerActs<Elem>> layers;
    Elem *resf, *lnf;       // (N, C)   entry of the head, and its layer norm
    float *meanf, *rstdf;   // (N)
    float* losses;          // (N)
    Elem* logits;           // (head_rows, Vp)
    float* rope = nullptr;  // (T, HS)  angles of rotary positions
    // Scratch.
    Elem* branch;  // (N, max(C, A))   forward: what a branch adds to the residual stream;
                   //          backward: the gradient of a layer norm's output or of atty
    Elem* dres;    // (N, C)   backward: the gradient of the residual stream
    Elem* dwide;   // (N, max(FC, QKV))   backward: dpre, then dqkv
    Workspace ws;
};

// Rows of logits that exist at a time: even chunks of at most 64 MiB or 32 rows, whichever is more.
// Fixed by the sizes alone, so that results do not depend on the machine.
template <class Elem>
int head_rows(const ModelConfig& c, int64_t N) {
    const int64_t most =
        std::max<int64_t>((int64_t(64) << 20) / (int64_t(sizeof(Elem)) * c.Vp), 32);
    const int64_t chunks = ceil_div(N, most);
    return int(ceil_div(N, chunks));
}

// Asks `memory` for everything that B sequences of T tokens need; forward_only leaves out what only
// backward reads.
template <class Elem, class Stream>
Activations<Elem> activations_create(const ModelConfig& c, int B, int T, Recompute recompute,
                                     bool forward_only, Memory<Stream>& memory);
