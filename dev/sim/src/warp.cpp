// Shuffles, votes and reductions of a warp, each one function over all lanes' arguments.
#include <algorithm>
#include <cmath>

#include "block.h"
#include "report.h"

namespace cusim {
namespace {

template <class Arg>
Arg& arg_of(void* const* args, int lane) {
    return *static_cast<Arg*>(args[lane]);
}
template <class F>
void for_lanes(unsigned lanes, F f) {
    for (; lanes; lanes &= lanes - 1) f(__builtin_ctz(lanes));
}

// ---- shuffles

struct ShuffleArg {
    uint64_t value, result;
    Shuffle kind;
    int operand, width;
    Where at;
};

// The lane that `lane` reads; its own where the source would leave the segment.
int shuffle_source(const ShuffleArg& a, int lane) {
    const int first = lane & ~(a.width - 1), end = first + a.width;
    switch (a.kind) {
        case Shuffle::Index:
            return first | (a.operand & (a.width - 1));
        case Shuffle::Up:
            return lane - a.operand >= first ? lane - a.operand : lane;
        case Shuffle::Down:
            return lane + a.operand < end ? lane + a.operand : lane;
        case Shuffle::Xor:
            return (lane ^ a.operand) < end ? lane ^ a.operand : lane;
    }
    return lane;
}
void shuffle_all(void* const* args, unsigned lanes) {
    for_lanes(lanes, [&](int lane) {
        auto& a = arg_of<ShuffleArg>(args, lane);
        const int source = shuffle_source(a, lane);
        if (!(lanes >> source & 1))
            fail("shuffle at %s:%d: lane %d reads lane %d, which takes no part (mask %08x)",
                 a.at.file, a.at.line, lane, source, lanes);
        a.result = arg_of<ShuffleArg>(args, source).value;
    });
}

// ---- votes and integer reductions

struct VoteArg {
    uint32_t value, result;
    Vote op;
};
uint32_t combine(Vote op, uint32_t a, uint32_t b) {
    switch (op) {
        case Vote::Add:
            return a + b;
        case Vote::MinU:
            return std::min(a, b);
        case Vote::MaxU:
            return std::max(a, b);
        case Vote::MinS:
            return uint32_t(std::min(int(a), int(b)));
        case Vote::MaxS:
            return uint32_t(std::max(int(a), int(b)));
        case Vote::And:
            return a & b;
        case Vote::Or:
            return a | b;
        case Vote::Xor:
            return a ^ b;
        default:
            return a;
    }
}
void vote_all(void* const* args, unsigned lanes) {
    const int first = __builtin_ctz(lanes);
    const Vote op = arg_of<VoteArg>(args, first).op;
    uint32_t ballot = 0, reduced = arg_of<VoteArg>(args, first).value;
    for_lanes(lanes, [&](int lane) {
        const uint32_t v = arg_of<VoteArg>(args, lane).value;
        ballot |= uint32_t(v != 0) << lane;
        if (lane != first) reduced = combine(op, reduced, v);
    });
    for_lanes(lanes, [&](int lane) {
        auto& a = arg_of<VoteArg>(args, lane);
        switch (op) {
            case Vote::Ballot:
                a.result = ballot;
                break;
            case Vote::All:
                a.result = ballot == lanes;
                break;
            case Vote::Any:
                a.result = ballot != 0;
                break;
            case Vote::MatchAny:
                a.result = 0;
                for_lanes(lanes, [&](int other) {
                    a.result |= uint32_t(arg_of<VoteArg>(args, other).value == a.value) << other;
                });
                break;
            default:
                a.result = reduced;
        }
    });
}

// ---- float reductions of a whole warp: lane l combines with l^16, l^8, l^4, l^2, l^1

template <class Op>
void butterfly(void* const* args, unsigned lanes, Op op) {
    if (lanes != 0xffffffffu) fail("a warp reduction needs the whole warp (lanes %08x)", lanes);
    float x[kWarp], y[kWarp];
    for (int l = 0; l < kWarp; l++) x[l] = arg_of<float>(args, l);
    for (int offset = kWarp / 2; offset > 0; offset /= 2) {
        for (int l = 0; l < kWarp; l++) y[l] = op(x[l], x[l ^ offset]);
        for (int l = 0; l < kWarp; l++) x[l] = y[l];
    }
    for (int l = 0; l < kWarp; l++) arg_of<float>(args, l) = x[l];
}
void sum_all(void* const* args, unsigned lanes) {
    butterfly(args, lanes, [](float a, float b) { return a + b; });
}
void max_all(void* const* args, unsigned lanes) {
    butterfly(args, lanes, [](float a, float b) { return fmaxf(a, b); });
}

// ---- tensor cores

// One bf16 half of a register as a float.
float low_half(uint32_t u) {
    return from_bits<float>(uint64_t(u << 16));
}
float high_half(uint32_t u) {
    return from_bits<float>(uint64_t(u & 0xffff0000u));
}

struct MmaArg {
    float* d;
    const uint32_t *a, *b;
};
// Gathers the fragments into matrices (layout: llmc/core/tensorop.cuh), multiplies with the plain
// triple loop in fp32, scatters. No fused multiply-add: the same bits on every machine.
#if defined(__x86_64__) && !defined(__clang__)
__attribute__((target_clones("avx2", "default")))
#endif
void mma_all(void* const* args, unsigned lanes) {
    typedef float Row __attribute__((vector_size(32), may_alias));
    if (lanes != 0xffffffffu) fail("mma.sync needs the whole warp (lanes %08x)", lanes);
    alignas(32) float A[16][16], B[16][8], D[16][8];
    for (int l = 0; l < kWarp; l++) {
        const auto& x = arg_of<MmaArg>(args, l);
        const int g = l / 4, t = 2 * (l % 4);
        for (int r = 0; r < 4; r++) {
            const int row = g + r % 2 * 8, col = t + r / 2 * 8;
            A[row][col] = low_half(x.a[r]);
            A[row][col + 1] = high_half(x.a[r]);
            D[g + r / 2 * 8][t + r % 2] = x.d[r];
        }
        for (int r = 0; r < 2; r++) {
            B[t + r * 8][g] = low_half(x.b[r]);
            B[t + r * 8 + 1][g] = high_half(x.b[r]);
        }
    }
    for (int i = 0; i < 16; i++) {
        Row sum = *reinterpret_cast<Row*>(D[i]);
        for (int k = 0; k < 16; k++) sum += A[i][k] * *reinterpret_cast<Row*>(B[k]);
        *reinterpret_cast<Row*>(D[i]) = sum;
    }
    for (int l = 0; l < kWarp; l++) {
        const auto& x = arg_of<MmaArg>(args, l);
        const int g = l / 4, t = 2 * (l % 4);
        for (int r = 0; r < 4; r++) x.d[r] = D[g + r / 2 * 8][t + r % 2];
    }
}

struct LdmatrixArg {
    uint32_t* r;
    const uint32_t* row;  // 4 words of 2 elements
    int n;
    bool transpose;
};
void ldmatrix_all(void* const* args, unsigned lanes) {
    if (lanes != 0xffffffffu) fail("ldmatrix needs the whole warp (lanes %08x)", lanes);
    auto row = [&](int lane) { return arg_of<LdmatrixArg>(args, lane).row; };
    for (int l = 0; l < kWarp; l++) {
        auto& a = arg_of<LdmatrixArg>(args, l);
        const int g = l / 4, t = 2 * (l % 4);
        for (int i = 0; i < a.n; i++) {
            if (!a.transpose) {
                a.r[i] = row(8 * i + g)[t / 2];
            } else {  // element (t, g) and (t + 1, g) of matrix i
                auto element = [&](int r) { return row(8 * i + r)[g / 2] >> g % 2 * 16 & 0xffff; };
                a.r[i] = element(t) | element(t + 1) << 16;
            }
        }
    }
}

}  // namespace

uint64_t shuffle(Shuffle kind, unsigned mask, uint64_t value, int operand, int width, Where at) {
    static const char* const names[] = {"__shfl_sync", "__shfl_up_sync", "__shfl_down_sync",
                                        "__shfl_xor_sync"};
    ShuffleArg a{value, 0, kind, operand, width, at};
    warp_call(shuffle_all, names[int(kind)], mask, &a, false, at);
    return a.result;
}
uint32_t vote(Vote op, unsigned mask, uint32_t value, Where at) {
    static const char* const names[] = {
        "__ballot_sync",     "__all_sync",        "__any_sync",        "__match_any_sync",
        "__reduce_add_sync", "__reduce_min_sync", "__reduce_max_sync", "__reduce_min_sync",
        "__reduce_max_sync", "__reduce_and_sync", "__reduce_or_sync",  "__reduce_xor_sync"};
    VoteArg a{value, 0, op};
    warp_call(vote_all, names[int(op)], mask, &a, false, at);
    return a.result;
}
float butterfly_sum(float v, Where at) {
    warp_call(sum_all, "warp_sum", 0xffffffffu, &v, false, at);
    return v;
}
float butterfly_max(float v, Where at) {
    warp_call(max_all, "warp_max", 0xffffffffu, &v, false, at);
    return v;
}
void mma_m16n8k16_bf16(float* d, const uint32_t* a, const uint32_t* b, Where at) {
    MmaArg x{d, a, b};
    warp_call(mma_all, "mma.sync.m16n8k16", 0xffffffffu, &x, false, at);
}
void ldmatrix(uint32_t* r, const uint32_t* row, int n, bool transpose, Where at) {
    LdmatrixArg x{r, row, n, transpose};
    warp_call(ldmatrix_all, transpose ? "ldmatrix.trans" : "ldmatrix", 0xffffffffu, &x, false, at);
}

// ---- cp.async: a queue for each thread

void copy_issue(void* dst, const void* src, bool valid, Where at) {
    CopyQueue& q = block.current->copies;
    if (q.copy_end - q.first_copy == CopyQueue::kSize)
        fail("cp.async at %s:%d: more than %u copies of one thread in flight", at.file, at.line,
             CopyQueue::kSize);
    Copy& c = q.copies[q.copy_end++ % CopyQueue::kSize];
    c.dst = dst;
    c.src = src;
    c.valid = valid;
    q.open++;
}
void copy_commit() {
    CopyQueue& q = block.current->copies;
    if (q.group_end - q.first_group == CopyQueue::kSize)
        fail("more than %u cp.async groups of one thread in flight", CopyQueue::kSize);
    q.groups[q.group_end++ % CopyQueue::kSize] = static_cast<unsigned short>(q.open);
    q.open = 0;
}
bool copy_next(int pending, Copy* copy) {
    CopyQueue& q = block.current->copies;
    auto waiting = [&] { return int(q.group_end - q.first_group) > pending; };
    while (waiting() && q.groups[q.first_group % CopyQueue::kSize] == 0) q.first_group++;
    if (!waiting()) return false;
    q.groups[q.first_group % CopyQueue::kSize]--;
    const Copy& c = q.copies[q.first_copy++ % CopyQueue::kSize];
    copy->dst = c.dst;
    copy->src = c.src;
    copy->valid = c.valid;
    return true;
}

}  // namespace cusim
