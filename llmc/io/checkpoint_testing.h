// llmc/io/checkpoint_testing.h: what the tests of checkpoints share: a scratch directory, and a
// small model state cut into pieces.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "llmc/io/checkpoint.h"
#include "llmc/parallel/comm_testing.h"

// A directory that is there during one test: in memory, where syncs cost nothing, unless the test
// needs room.
struct ScratchDir {
    std::string path;
    explicit ScratchDir(bool in_memory = true) {
        const bool shm = in_memory && std::filesystem::exists("/dev/shm");
        std::string name = shm ? "/dev/shm" : std::filesystem::temp_directory_path().string();
        name += "/llmc-XXXXXX";
        if (!::mkdtemp(name.data())) throw std::runtime_error("mkdtemp");
        path = name;
    }
    ~ScratchDir() {
        std::error_code none;
        std::filesystem::remove_all(path, none);
    }
};

// A state of a few tensors with odd sizes, as plain fp32 arrays; every value depends on the tensor,
// the element and the step.
struct ToyState {
    struct Tensor {
        std::string group, name;
        std::vector<int64_t> shape;
        std::vector<float> values;
    };
    std::vector<Tensor> tensors;

    explicit ToyState(int64_t step) {
        const std::pair<const char*, std::vector<int64_t>> shapes[] = {
            {"wte.weight", {13, 7}}, {"h.0.qkv", {3, 5, 7}}, {"h.0.bias", {11}}, {"one", {1}}};
        for (const char* group : {"weights", "m", "v"})
            for (const auto& [name, shape] : shapes) {
                Tensor t{group, name, shape, std::vector<float>(size_t(shape_count(shape)))};
                for (size_t i = 0; i < t.values.size(); i++)
                    t.values[i] = float(i) + 1000.f * float(step) + 0.1f * float(tensors.size());
                tensors.push_back(t);
            }
    }
    // Elements [rank/ranks, (rank+1)/ranks) of each group's tensors laid end to end, as ZeRO cuts.
    std::vector<TensorPiece> pieces(int rank = 0, int ranks = 1) {
        std::map<std::string, int64_t> total, at;
        for (const Tensor& t : tensors) total[t.group] += int64_t(t.values.size());
        std::vector<TensorPiece> cut;
        for (Tensor& t : tensors) {
            const int64_t n = int64_t(t.values.size()), base = at[t.group];
            const int64_t all = total[t.group];
            const int64_t first = std::clamp<int64_t>(all * rank / ranks - base, 0, n);
            const int64_t last = std::clamp<int64_t>(all * (rank + 1) / ranks - base, 0, n);
            cut.push_back({t.group, t.name, Dtype::F32, t.shape, first, last - first,
                           t.values.data() + first});
            at[t.group] += n;
        }
        return cut;
    }
    bool operator==(const ToyState& other) const {
        for (size_t i = 0; i < tensors.size(); i++)
            if (tensors[i].values != other.tensors[i].values) return false;
        return true;
    }
};

inline CheckpointMeta toy_meta(int64_t step) {
    return {"run-1", step, step * 64, {{"layers", 1}}, {{"cursor", step}}, {{"ranks", 1}}};
}
