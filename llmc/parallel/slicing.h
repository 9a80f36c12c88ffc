// llmc/parallel/slicing.h: which elements are sent together, and which rank owns which of them.
//
// The whole parameter space (core/layout.h) is cut into buckets from its end to its beginning, the
// order in which backward completes gradients. The first bucket is small, so that sending begins
// early (Li et al. 2020, arXiv:2006.15704, section 3.2.3). Each bucket is cut into equal slices at
// multiples of kTensorAlign, which may cross tensors; rank r owns slice r. Of a bucket that does
// not divide, the last slices are short or empty.
//
//     whole   |embedding        |layer 0     |layer 1     |head|
//     buckets |...  3    |   2  |     1      |     0           |    one may hold several blocks
//     slices  |0 |1 |2 |3|0|1|2|3|
//
// Where gradients or parameters are sliced (ZeRO 2, 3) a bucket ends with its block.
#pragma once
#include <vector>

#include "llmc/core/layout.h"
#include "llmc/core/round.h"
#include "llmc/parallel/comm.h"

// How many micro-batches each rank works on: where N does not divide M, some get an empty one.
inline int64_t micro_batches_each(int64_t micro_batches, int ranks) {
    return ceil_div(micro_batches, ranks);
}

struct Bucket {
    int64_t first, n;  // elements of the whole
    int64_t each;      // elements of a full slice
    int64_t local;     // where this rank's slice lies in arrays that hold slices alone
    Slices slices() const { return {size_t(n), size_t(each)}; }
};

struct Slicing {
    std::vector<Bucket> buckets;  // in the order they are sent
    int64_t local_size = 0;  // elements of an array that holds slices alone; equal on all ranks
};

// `bucket_bytes` limits the bytes of a bucket of `width`-byte elements.
Slicing slicing(const ParamLayout& layout, int ranks, bool within_blocks, double bucket_bytes,
                int width);

// A run of elements of the whole and where a rank keeps it.
struct Range {
    int64_t first, n;  // of the whole
    int64_t local;     // index in an array that holds slices alone
};
// This rank's slices, ascending.
std::vector<Range> owned_ranges(const Slicing& s, int rank);

// The part of a tensor that lies in a range.
struct TensorPart {
    const ParamTensor* tensor;
    int64_t first, n;  // of the tensor
    int64_t whole;     // of the whole
    int64_t local;
};
// All parts of all tensors in these ranges; padding behind a tensor's last element is left out
// unless asked for.
std::vector<TensorPart> tensor_parts(const ParamLayout& layout, const std::vector<Range>& ranges,
                                     bool with_padding);
