#include "llmc/parallel/slicing.h"

#include <algorithm>
#include <iterator>

Slicing slicing(const ParamLayout& layout, int ranks, bool within_blocks, double bucket_bytes,
                int width) {
    const auto elements = [&](double bytes) {
        const int64_t limit = int64_t(std::min(bytes, 0x1p62));  // it has to fit
        return std::max(kTensorAlign, limit / width / kTensorAlign * kTensorAlign);
    };
    const int64_t most = elements(bucket_bytes), first_most = std::min(most, elements(1 << 20));

    Slicing s;
    int block = int(layout.blocks.size()) - 1;
    for (int64_t end = layout.size; end > 0;) {
        while (layout.blocks[size_t(block)].offset >= end) block--;
        const int64_t floor = within_blocks ? layout.blocks[size_t(block)].offset : 0;
        const int64_t first = std::max(floor, end - (s.buckets.empty() ? first_most : most));
        const int64_t n = end - first, each = round_up((n + ranks - 1) / ranks, kTensorAlign);
        s.buckets.push_back({first, n, each, 0});
        end = first;
    }
    // Local places ascend with the whole, so that one rank's slices are the whole.
    for (auto b = s.buckets.rbegin(); b != s.buckets.rend(); ++b) {
        b->local = s.local_size;
        s.local_size += b->each;
    }
    return s;
}

std::vector<Range> owned_ranges(const Slicing& s, int rank) {
    std::vector<Range> ranges;
    for (auto b = s.buckets.rbegin(); b != s.buckets.rend(); ++b)
        if (const int64_t n = int64_t(b->slices().count(rank)))
            ranges.push_back({b->first + int64_t(b->slices().begin(rank)), n, b->local});
    return ranges;
}

std::vector<TensorPart> tensor_parts(const ParamLayout& layout, const std::vector<Range>& ranges,
                                     bool with_padding) {
    std::vector<TensorPart> parts;
    auto range = ranges.begin();
    for (const ParamBlock& b : layout.blocks)
        for (const ParamTensor& t : b.tensors) {
            const int64_t begin = b.offset + t.offset;
            const int64_t end = begin + (with_padding ? t.size : t.count());
            while (range != ranges.end() && range->first + range->n <= begin) ++range;
            for (auto r = range; r != ranges.end() && r->first < end; ++r) {
                const int64_t from = std::max(begin, r->first);
                const int64_t n = std::min(end, r->first + r->n) - from;
                if (n > 0) parts.push_back({&t, from - begin, n, from, r->local + from - r->first});
            }
        }
    return parts;
}
