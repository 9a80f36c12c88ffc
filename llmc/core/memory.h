// llmc/core/memory.h: all memory of a run, planned by the same code that allocates it.
//
// Every buffer is asked for once, at start, by kind and name. Memory either allocates it or, for
// `train_gpt plan`, only writes it down; so the printed plan and what a run holds cannot differ.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "llmc/core/backend.h"

struct MemoryRow {
    std::string kind;  // parameters, gradients, optimizer, activations, workspace, generation,
                       // snapshot, host
    std::string name;
    int64_t bytes;
};

struct MemoryPlan {
    std::vector<MemoryRow> rows;
    // Of the device: what it needs in host memory beside it ("host") counts on its own.
    int64_t total() const {
        int64_t sum = 0;
        for (const MemoryRow& r : rows) sum += r.kind == "host" ? 0 : r.bytes;
        return sum;
    }
    int64_t total(const std::string& kind) const {
        int64_t sum = 0;
        for (const MemoryRow& r : rows) sum += r.kind == kind ? r.bytes : 0;
        return sum;
    }
    // In the order of their first rows.
    std::vector<std::string> kinds() const {
        std::vector<std::string> all;
        for (const MemoryRow& r : rows)
            if (std::find(all.begin(), all.end(), r.kind) == all.end()) all.push_back(r.kind);
        return all;
    }
};

enum class MemoryMode { Allocate, Measure };

template <class Stream>
class Memory {
  public:
    explicit Memory(Stream stream, MemoryMode mode = MemoryMode::Allocate)
        : stream_(stream), mode_(mode) {}
    ~Memory() {
        for (size_t i = 0; i < pointers_.size(); i++) {
            const MemoryRow& row = plan_.rows[i];
            if (row.kind == "host")
                memory_free(pointers_[i], size_t(row.bytes), CpuStream{});
            else
                memory_free(pointers_[i], size_t(row.bytes), stream_);
        }
    }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    // count zeroed elements of T; null when only measuring. A second request of the same kind and
    // name adds a row of its own.
    template <class T>
    T* get(const std::string& kind, const std::string& name, int64_t count) {
        return static_cast<T*>(take(kind, name, count * int64_t(sizeof(T)), stream_));
    }
    // The same in host memory, whatever the stream; its kind is "host".
    template <class T>
    T* get_host(const std::string& name, int64_t count) {
        return static_cast<T*>(take("host", name, count * int64_t(sizeof(T)), CpuStream{}));
    }
    Workspace workspace(const std::string& name, size_t bytes) {
        return {get<char>("workspace", name, int64_t(bytes)), bytes};
    }

    const MemoryPlan& plan() const { return plan_; }
    bool measuring() const { return mode_ == MemoryMode::Measure; }
    Stream stream() const { return stream_; }

  private:
    template <class Where>
    void* take(const std::string& kind, const std::string& name, int64_t bytes, Where where) {
        if (mode_ == MemoryMode::Allocate)
            pointers_.push_back(
                memory_alloc(size_t(bytes), (kind + " (" + name + ")").c_str(), where));
        plan_.rows.push_back({kind, name, bytes});
        return mode_ == MemoryMode::Allocate ? pointers_.back() : nullptr;
    }

    Stream stream_;
    MemoryMode mode_;
    MemoryPlan plan_;
    std::vector<void*> pointers_;
};
