// Attention by cuDNN, as far as a machine without a GPU can tell. First, what the graphs mean: each
// is computed here, operation by operation, and agrees with attention_cpu.cpp. Second, the library
// takes them for attention and makes one fused kernel of each, for GPUs that are only described to
// it. That these kernels do what the graphs say is for a GPU to show: attention_cuda_test.cu.
#include "llmc/ops/attention_cudnn.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <map>

#include "llmc/core/check.h"
#include "llmc/core/rng.h"
#include "llmc/ops/attention.h"
#include "llmc/ops/cudnn_plan.h"

namespace {
using namespace cudnn;

// ---- what a graph means: its steps in double precision
class Meaning {
  public:
    Meaning(const Graph& g, const std::map<int64_t, float*>& memory) : g_(g) {
        for (const TensorInfo& t : g.tensors) {
            Place p;
            if (t.where == TensorInfo::Memory) {
                p.memory = memory.at(t.id);
            } else {
                size_t size = 1;
                for (size_t i = 0; i < 4; i++) size += size_t((t.shape[i] - 1) * t.strides[i]);
                p.own = std::make_shared<std::vector<double>>(size, t.value);
            }
            places_.push_back(p);
        }
        for (const Step& step : g.steps) run(step);
    }

  private:
    using At = std::array<int64_t, 4>;
    struct Place {
        float* memory = nullptr;
        std::shared_ptr<std::vector<double>> own;
    };
    const TensorInfo& info(Tensor t) const { return g_.tensors[size_t(t)]; }
    int64_t offset(Tensor t, const At& at) const {
        int64_t sum = 0;
        for (size_t i = 0; i < 4; i++) sum += at[i] * info(t).strides[i];
        return sum;
    }
    double read(Tensor t, const At& at) const {
        const Place& p = places_[size_t(t)];
        return p.memory ? p.memory[offset(t, at)] : (*p.own)[size_t(offset(t, at))];
    }
    void write(Tensor t, const At& at, double value) {
        const Place& p = places_[size_t(t)];
        if (p.memory)
            p.memory[offset(t, at)] = float(value);
        else
            (*p.own)[size_t(offset(t, at))] = value;
    }
    void for_all(Tensor t, const std::function<void(const At&)>& what) const {
        const Shape& n = info(t).shape;
        for (At at{}; at[0] < n[0]; at[0]++)
            for (at[1] = 0; at[1] < n[1]; at[1]++)
                for (at[2] = 0; at[2] < n[2]; at[2]++)
                    for (at[3] = 0; at[3] < n[3]; at[3]++) what(at);
    }
    // The same place in a tensor whose axes are shorter by a factor.
    At shared(Tensor t, At at, const Shape& shape) const {
        for (size_t i = 0; i < 4; i++) at[i] = at[i] / (shape[i] / info(t).shape[i]);
        return at;
    }
    void run(const Step& s) {
        const Shape& shape = info(s.y).shape;
        const auto x = [&](const At& at) { return read(s.x, shared(s.x, at, shape)); };
        const auto b = [&](const At& at) { return read(s.b, shared(s.b, at, shape)); };
        const auto each = [&](const std::function<double(const At&)>& f) {
            for_all(s.y, [&](const At& at) { write(s.y, at, f(at)); });
        };
        switch (s.op) {
            case Op::View:
                places_[size_t(s.y)] = places_[size_t(s.x)];
                break;
            case Op::Multiply:
                each([&](const At& at) { return x(at) * b(at); });
                break;
            case Op::Add:
                each([&](const At& at) { return x(at) + b(at); });
                break;
            case Op::Subtract:
                each([&](const At& at) { return x(at) - b(at); });
                break;
            case Op::Divide:
                each([&](const At& at) { return x(at) / b(at); });
                break;
            case Op::AtLeast:
                each([&](const At& at) { return x(at) >= b(at); });
                break;
            case Op::Select:
                each([&](const At& at) { return read(s.t, at) ? x(at) : b(at); });
                break;
            case Op::Exp:
                each([&](const At& at) { return std::exp(x(at)); });
                break;
            case Op::Log:
                each([&](const At& at) { return std::log(x(at)); });
                break;
            case Op::Copy:
                each(x);
                break;
            case Op::Index:
                each([&](const At& at) { return at[size_t(s.axis)]; });
                break;
            case Op::Matmul:
                each([&](const At& at) { return product(s, at); });
                break;
            case Op::Max:
            case Op::Sum:
                reduce(s);
                break;
        }
    }
    double product(const Step& s, const At& at) const {
        const int64_t heads = info(s.y).shape[1], depth = info(s.x).shape[3];
        const int64_t hx = at[1] / (heads / info(s.x).shape[1]),
                      hb = at[1] / (heads / info(s.b).shape[1]);
        double sum = 0;
        for (int64_t k = 0; k < depth; k++)
            sum += read(s.x, {at[0], hx, at[2], k}) * read(s.b, {at[0], hb, k, at[3]});
        return sum;
    }
    void reduce(const Step& s) {
        const double start = s.op == Op::Sum ? 0 : -INFINITY;
        for_all(s.y, [&](const At& at) { write(s.y, at, start); });
        for_all(s.x, [&](const At& at) {
            const At to = shared(s.y, at, info(s.x).shape);
            const double old = read(s.y, to), value = read(s.x, at);
            write(s.y, to, s.op == Op::Sum ? old + value : std::max(old, value));
        });
    }
    const Graph& g_;
    std::vector<Place> places_;
};

using Floats = std::vector<float>;
Floats normal(size_t n, const char* name) {
    Floats x(n);
    random_normal(x.data(), n, 0, 0.f, 1.f, 1, name_hash(name));
    return x;
}

// The CPU rounds to fp32 on the way: HS + T + 20 roundings of sums whose terms, of standard normal
// numbers and these sizes, add up to less than 64.
void expect_near(const char* what, const Floats& got, const Floats& want, const AttentionSize& z) {
    for (size_t i = 0; i < got.size(); i++)
        ASSERT_NEAR(got[i], want[i], 0x1p-24 * double(z.HS + z.T + 20) * 64) << what << " " << i;
}

// ---- what the library makes of them
// What cuDNN has to know of a GPU, by its own names. NVIDIA's data sheets of A100, L4, H100, B200.
Device device(int arch) {
    struct Gpu {
        int arch, processors, shared, l2_mib;
    };
    for (const Gpu& g :
         {Gpu{80, 108, 163, 40}, {89, 58, 99, 48}, {90, 132, 227, 50}, {100, 148, 227, 126}})
        if (g.arch == arch)
            return Device::described(str(
                R"({"deviceName":"described","cudaDeviceId":0,"pciDeviceId":0,"isTccDriver":0,)",
                R"("deviceVer":)", arch * 10, R"(,"multiProcessorCount":)", g.processors,
                R"(,"maxSharedMemoryPerBlockOptin":)", g.shared << 10, R"(,"l2CacheSize":)",
                g.l2_mib << 20, R"(,"driverVer":13000,"totalGlobalMem":25769803776,)",
                R"("maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],)",
                R"("regsPerBlock":65536,"maxRegistersPerSM":65536,"warpSize":32,)",
                R"("maxSharedMemoryPerBlock":49152,"reservedSharedMemoryPerBlock":1024,)",
                R"("maxCtasPerSM":32,"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,)",
                R"("supportCoopLaunch":1,"smClockRateKHz":1500000,"memClockRateKHz":2000000})"));
    ADD_FAILURE() << arch;
    std::abort();
}

// The fake driver lies beside this program (dev/fake_driver).
std::string fake_driver_path() {
    char path[4096];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path);
    const std::string program(path, size_t(std::max<ssize_t>(n, 0)));
    return program.substr(0, program.rfind('/')) + "/fake_driver/libcuda.so.1";
}

// Runs `body` in a process of its own, in which cuDNN and the fake driver are loaded. Its failures
// are printed there; here they are one. The body's argument: the kernels that the driver was given.
using Kernels = std::function<std::string()>;
constexpr int kSkipped = 77;
void with_cudnn(const std::function<void(const Kernels&)>& body) {
    if (!built()) GTEST_SKIP() << "a build without cuDNN's headers";
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        const auto skip = [](const std::string& why) {
            std::fprintf(stderr, "%s\n", why.c_str());
            _exit(kSkipped);
        };
        if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD)) skip("a driver is loaded already");
        void* const driver = dlopen(fake_driver_path().c_str(), RTLD_NOW | RTLD_GLOBAL);
        if (!driver) skip(dlerror());
        const auto list = reinterpret_cast<const char* (*)()>(dlsym(driver, "fake_driver_kernels"));
        try {
            load();
        } catch (const Error& e) {
            skip(e.what());
        }
        try {
            size_t seen = 0;
            body([&] {
                const std::string all = list(), fresh = all.substr(seen);
                seen = all.size();
                return fresh;
            });
        } catch (const std::exception& e) {
            ADD_FAILURE() << e.what();
        }
        _exit(testing::Test::HasFailure());
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
    if (WEXITSTATUS(status) == kSkipped) GTEST_SKIP() << "cuDNN cannot be loaded here, see above";
    EXPECT_EQ(WEXITSTATUS(status), 0) << "see above";
}

// One kernel for the architecture, of cuDNN's family of that name, and nothing else.
void expect_kernel(const std::string& kernels, int arch, const std::string& family) {
    EXPECT_TRUE(kernels.starts_with(str("sm_", arch, " "))) << kernels;
    EXPECT_NE(kernels.find(family), std::string::npos) << kernels;
    EXPECT_EQ(kernels.find('\n'), kernels.size() - 1) << kernels;
}

void expect_plans(int arch, const AttentionSize& z, const Kernels& kernels) {
    SCOPED_TRACE(str("sm_", arch, ", T ", z.T, ", H ", z.H, ", KV ", z.KV, ", HS ", z.HS));
    const Device gpu = device(arch);
    const Plan forward(attention_forward_graph(z), gpu);
    expect_kernel(kernels(), arch, "flash_fprop");
    EXPECT_LE(forward.workspace_bytes(), 4096u);  // no matrix of scores

    const Plan ordered(attention_backward_graph(z, true), gpu);
    expect_kernel(kernels(), arch, "flash_bprop");
    // The price of a fixed order, promised in attention_cudnn.h: dS in bf16, its sides rounded up
    // to tiles of at most 128.
    const auto tiles = [](int64_t n) { return (n + 127) / 128 * 128; };
    EXPECT_GE(int64_t(ordered.workspace_bytes()), 2 * z.B * z.H * z.T * z.T);
    EXPECT_LE(int64_t(ordered.workspace_bytes()),
              2 * z.B * z.H * (tiles(z.T) * tiles(z.T) + 2 * tiles(z.T) * z.HS) + 4096);
}

}  // namespace

// ---- tests
TEST(attention_cudnn, graphs_mean_attention) {
    for (const AttentionSize& z :
         {AttentionSize{2, 5, 2, 2, 4}, {1, 7, 4, 2, 3}, {2, 3, 3, 1, 2}, {1, 1, 1, 1, 1}}) {
        SCOPED_TRACE(str("T ", z.T, ", H ", z.H, ", KV ", z.KV, ", HS ", z.HS));
        const int B = int(z.B), T = int(z.T), H = int(z.H), KV = int(z.KV), HS = int(z.HS);
        const size_t N = size_t(z.B * z.T), A = size_t(z.H * z.HS);
        Floats qkv = normal(N * size_t(z.packed()), "qkv"), dout = normal(N * A, "dout");
        Floats out(N * A), lse(N * size_t(H)), dqkv(qkv.size()), scratch(1 << 20);
        const Workspace ws{scratch.data(), scratch.size() * sizeof(float)};
        attention_forward(out.data(), lse.data(), qkv.data(), B, T, H, KV, HS, ws, CpuStream{});
        attention_backward(dqkv.data(), dout.data(), qkv.data(), out.data(), lse.data(), B, T, H,
                           KV, HS, ws, CpuStream{});

        const float nan = std::numeric_limits<float>::quiet_NaN();
        Floats their_out(out.size(), nan), their_lse(lse.size(), nan);
        float* const q = qkv.data();
        Meaning(attention_forward_graph(z), {{kQ, q},
                                             {kK, q + H * HS},
                                             {kV, q + (H + KV) * HS},
                                             {kOut, their_out.data()},
                                             {kLse, their_lse.data()}});
        expect_near("out", their_out, out, z);
        expect_near("lse", their_lse, lse, z);

        for (const bool deterministic : {true, false}) {
            Floats theirs(dqkv.size(), nan), delta(lse.size()), dq_sum(out.size());
            float* const d = theirs.data();
            Meaning(attention_backward_graph(z, deterministic), {{kQ, q},
                                                                 {kK, q + H * HS},
                                                                 {kV, q + (H + KV) * HS},
                                                                 {kOut, out.data()},
                                                                 {kDout, dout.data()},
                                                                 {kLse, lse.data()},
                                                                 {kDq, d},
                                                                 {kDk, d + H * HS},
                                                                 {kDv, d + (H + KV) * HS},
                                                                 {kDelta, delta.data()},
                                                                 {kDqSum, dq_sum.data()}});
            expect_near("dqkv", theirs, dqkv, z);
        }
    }
}
TEST(attention_cudnn, graphs_become_one_fused_kernel_each) {
    with_cudnn([](const Kernels& kernels) {
        for (const int arch : {80, 90}) {
            expect_plans(arch, {2, 1024, 3, 3, 64}, kernels);
            expect_plans(arch, {1, 77, 4, 2, 128}, kernels);  // ragged T, grouped heads
        }
    });
}
TEST(attention_cudnn, graphs_become_kernels_for_more_gpus_and_sizes) {
    if (!std::getenv("TEST_DEEP")) GTEST_SKIP() << "make test-deep runs it";
    with_cudnn([](const Kernels& kernels) {
        for (const int arch : {80, 89, 90, 100})
            for (const AttentionSize& z : {AttentionSize{1, 1, 1, 1, 64},
                                           {64, 1024, 12, 12, 64},
                                           {2, 129, 8, 1, 128},
                                           {3, 200, 6, 6, 32},
                                           {1, 65, 2, 2, 8},
                                           {1, 64, 2, 2, 80},
                                           {1, 300, 4, 2, 128}})
                expect_plans(arch, z, kernels);
    });
}
// What the choice of fast sums saves: dq in fp32 instead of dS.
TEST(attention_cudnn, the_fast_backward_keeps_no_matrix_of_scores) {
    with_cudnn([](const Kernels& kernels) {
        const AttentionSize z{2, 1024, 3, 3, 64};
        for (const int arch : {80, 90}) {
            const Plan fast(attention_backward_graph(z, false), device(arch));
            expect_kernel(kernels(), arch, "flash_bprop");
            EXPECT_LE(int64_t(fast.workspace_bytes()), 4 * z.B * z.H * z.T * z.HS + 4096);
        }
    });
}
TEST(attention_cudnn, sizes_that_the_library_lacks_are_refused) {
    with_cudnn([](const Kernels& kernels) {
        const Device gpu = device(80);
        const auto expect_refused = [&](const Graph& graph) {
            try {
                Plan(graph, gpu);
                ADD_FAILURE() << "accepted";
            } catch (const Error& e) {
                EXPECT_EQ(e.code, Exit::Usage) << e.what();
                EXPECT_NE(std::string(e.what()).find("cuDNN has no kernel"), std::string::npos)
                    << e.what();
            }
        };
        expect_refused(attention_forward_graph({1, 64, 2, 2, 5}));
        expect_refused(attention_backward_graph({1, 64, 2, 2, 256}, true));
        EXPECT_EQ(kernels(), "");
    });
}
TEST(attention_cudnn, a_failed_call_is_named_with_the_library_s_explanation) {
    with_cudnn([](const Kernels&) {
        const auto expect_error = [](const std::string& call, const std::string& found,
                                     const std::function<void()>& body) {
            try {
                body();
                ADD_FAILURE() << call;
            } catch (const Error& e) {
                EXPECT_EQ(e.code, Exit::Resource);
                for (const std::string& part : {"cuDNN call failed: " + call, found})
                    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
            }
        };
        expect_error("BackendFinalize", "CUDNN_STATUS_BAD_PARAM",
                     [] { Device::described(R"({"deviceVer":800})"); });
        // There is no GPU here to create a handle for.
        expect_error("Create", "CUDNN_STATUS_",
                     [] { attention_cudnn_workspace_bytes(1, 64, 2, 2, 64, false); });
    });
}
