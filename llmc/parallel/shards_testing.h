// llmc/parallel/shards_testing.h: a parameter layout for tests of shards.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "llmc/core/layout.h"

// Odd sizes; a padded tensor; a layer larger than the next one.
inline ParamLayout odd_layout() {
    ParamLayout layout;
    const auto block = [&](const std::string& name,
                           std::vector<std::pair<int64_t, int64_t>> sizes) {
        ParamBlock b{name, {}, layout.size, 0};
        for (const auto& [count, size] : sizes) {
            ParamTensor t{name + std::to_string(b.tensors.size()),
                          {count},
                          size,
                          b.size,
                          b.tensors.empty(),
                          0,
                          1};
            b.size += (size + kTensorAlign - 1) / kTensorAlign * kTensorAlign;
            b.tensors.push_back(t);
        }
        layout.size += b.size;
        layout.blocks.push_back(b);
    };
    block("embedding", {{37 * 3, 40 * 3}, {7, 7}});
    block("layer 0.", {{331, 331}, {1, 1}});
    block("layer 1.", {{5, 5}, {129, 129}});
    block("head", {{64, 64}});
    return layout;
}
