// llmc/ops/cudnn_graph.h: a computation as a graph of small operations, as NVIDIA's cuDNN is told
// it.
//
// Plain data, one line a tensor or an operation, outputs first, without the library:
//
//   Graph g;
//   const Tensor s = g.temporary(Type::F32, {B, H, T, T});
//   g.add(Op::Matmul, s, q, k);
//
// cudnn_plan.h turns it into kernels; attention_cudnn_test.cpp computes it on the CPU, step by
// step. NVIDIA cuDNN documentation, "Graph API".
#pragma once
#include <cstdint>
#include <vector>

namespace cudnn {

enum class Type { F32, BF16, I32, Bool };
using Shape = std::vector<int64_t>;
using Tensor = int;  // its place in Graph::tensors
constexpr Tensor kNone = -1;

// y, x, b and t have four axes. Where an axis of x or b is of size 1, its value serves all of y's;
// where a head axis of a product is smaller by a factor, each of its heads serves that many of y's.
enum class Op {
    Matmul,  // y = x b, matrices of the last two axes
    Multiply,
    Add,
    Subtract,
    Divide,
    AtLeast,  // y = x >= b
    Select,   // y = t ? x : b
    Exp,
    Log,
    Copy,
    Index,  // y = an element's place along `axis`
    Max,
    Sum,  // over the axes in which y is smaller than x
    View  // y = the same memory as x, seen with y's shape and strides
};

struct TensorInfo {
    enum Where { Memory, Temporary, Constant } where;  // a temporary exists inside a kernel only
    int64_t id;                                        // of memory: its name for an execution
    Type type;
    Shape shape, strides;
    float value;  // of a constant
};
struct Step {
    Op op;
    Tensor y, x, b = kNone, t = kNone;
    int axis = 0;
    bool in_order = false;  // a sum with equal bits every time
};

struct Graph {
    std::vector<TensorInfo> tensors;
    std::vector<Step> steps;

    Tensor memory(int64_t id, Type type, const Shape& shape, const Shape& strides) {
        return keep({TensorInfo::Memory, id, type, shape, strides, 0});
    }
    Tensor temporary(Type type, const Shape& shape, const Shape& strides) {
        return keep({TensorInfo::Temporary, 0, type, shape, strides, 0});
    }
    Tensor temporary(Type type, const Shape& shape) {  // dense
        Shape strides(shape.size(), 1);
        for (size_t i = shape.size() - 1; i > 0; i--) strides[i - 1] = strides[i] * shape[i];
        return temporary(type, shape, strides);
    }
    Tensor constant(float value) {
        const Shape one(4, 1);
        return keep({TensorInfo::Constant, 0, Type::F32, one, one, value});
    }
    void add(Op op, Tensor y, Tensor x, Tensor b = kNone, Tensor t = kNone) {
        steps.push_back({op, y, x, b, t});
    }

  private:
    Tensor keep(TensorInfo t) {
        tensors.push_back(std::move(t));
        return Tensor(tensors.size()) - 1;
    }
};

}  // namespace cudnn
