// llmc/ops/cudnn_plan.h: NVIDIA's cuDNN, loaded on first use, and the kernels that it has for a
// graph. Every call that fails throws Error with the call's name, cuDNN's status and its
// explanation. A build without cuDNN's headers has the same functions; load() says there what is
// missing.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "llmc/ops/cudnn_graph.h"

namespace cudnn {

bool built();
// Loads the library if that has not been done: Error(Exit::Resource) where it is not there or too
// old. Returns its version, as "9.19.0".
std::string load();

class Descriptor;  // cuDNN's one kind of object: created, given attributes, finalized

// What kernels are made for: the GPU that this process uses, or one described by cuDNN's JSON,
// which need not exist.
class Device {
  public:
    static Device this_one();
    static Device described(const std::string& json);
    const Descriptor& get() const { return *properties_; }

  private:
    Device();
    std::shared_ptr<Descriptor> properties_;
};

class Plan {
  public:
    // Takes the first of cuDNN's proposals that it can make kernels of, which takes about a second.
    // Error(Exit::Usage) when there is none.
    Plan(const Graph& graph, const Device& device);
    size_t workspace_bytes() const { return workspace_bytes_; }

    struct Address {
        int64_t id;
        void* at;
    };
    // Queues the work on a stream of this process's GPU.
    void execute(const std::vector<Address>& addresses, void* workspace, void* stream) const;

  private:
    std::shared_ptr<Descriptor> plan_;
    std::vector<int64_t> ids_;                       // unique numbers of ...
    std::vector<int64_t> names_;                     // ... tensors in memory, by their ids, and
    std::vector<int64_t> constant_ids_;              // ... of constants, whose
    std::shared_ptr<std::vector<float>> constants_;  // values are read at every execution
    size_t workspace_bytes_ = 0;
};

}  // namespace cudnn
