// llmc/core/layout.h: named tensors laid out in blocks.
//
// A block (embedding, each layer, head) is the unit of everything distributed: ZeRO slices a block
// over ranks, DDP sends ranges of blocks, ZeRO-3 gathers and releases a block. Its tensors lie in
// one contiguous buffer, each starting at a multiple of kTensorAlign elements; what lies between
// them is zero and stays zero.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

constexpr int64_t kTensorAlign = 64;  // elements: 256 bytes of fp32, and one chunk of an exact sum

// Elements of a tensor of this shape.
inline int64_t shape_elements(const std::vector<int64_t>& shape) {
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    return n;
}

struct ParamTensor {
    std::string name;            // as in Hugging Face's GPT-2, weights as (out, in)
    std::vector<int64_t> shape;  // as stored in files; wte without its padding rows
    int64_t size;                // elements in memory (wte: with padding rows)
    int64_t offset;              // of element 0, in its block
    bool decay;                  // matrices decay, vectors do not
    float init_mean, init_std;
    int slot = 0;  // its place in the block's view (llmc/model/parameters.h)

    // Elements of `shape`; the size - count() elements after them are padding, always zero.
    int64_t count() const { return shape_elements(shape); }
};

// Where the values of tensors come from: to (n) = elements first .. first + n of a tensor, which
// lie inside its count().
using TensorSource =
    std::function<void(const ParamTensor& tensor, int64_t first, int64_t n, float* to)>;

struct ParamBlock {
    std::string name;
    std::vector<ParamTensor> tensors;
    int64_t offset;  // of the block's element 0, in the whole
    int64_t size;    // elements, a multiple of kTensorAlign
};

struct ParamLayout {
    std::vector<ParamBlock> blocks;  // embedding, layer 0..L-1, head
    int64_t size = 0;                // elements of all blocks
    int64_t count = 0;               // parameters, without any padding
    int embedding() const { return 0; }
    int layer(int l) const { return 1 + l; }
    int head() const { return int(blocks.size()) - 1; }
};
