// test_gpt.cu: the whole model against known answers.
//
// Real models with published activations (TEST_DATA); CUDA, on a GPU or in the simulator, against
// the CPU: logits, loss, every gradient, ten steps, checkpoints that change the device. What one op
// does is tested beside the op: llmc/ops/<op>_test.cpp.
#include <gtest/gtest.h>

#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "llmc/model/decode.h"
#include "llmc/model/gpt_testing.h"
#include "llmc/train/planner.h"
#include "llmc/train/run.h"
#include "llmc/train/saves.h"

namespace {
// A folder of the test data, or "" with the reason printed as a skip by the caller.
std::string test_data(const std::string& name) {
    const char* root = std::getenv("TEST_DATA");
    return std::string(root ? root : "data/test") + "/" + name;
}

std::vector<unsigned char> base64(const std::string& text) {
    static const std::string digits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::vector<unsigned char> out;
    uint32_t bits = 0;
    int n = 0;
    for (char c : text) {
        if (c == '=') break;
        bits = bits << 6 | uint32_t(digits.find(c));
        if ((n += 6) >= 8) out.push_back((unsigned char)(bits >> (n -= 8)));
    }
    return out;
}

std::vector<float> floats(const nlohmann::json& tensor) {
    const std::vector<unsigned char> bytes = base64(tensor.at("data").get<std::string>());
    std::vector<float> x(bytes.size() / 4);
    std::memcpy(x.data(), bytes.data(), bytes.size());
    return x;
}

nlohmann::json json_file(const std::string& path) {
    std::ifstream in(path);
    return nlohmann::json::parse(in);
}

// A trained GPT-2-architecture model of 85,728 parameters that sorts letters; its lm_head is not
// tied. The activations were published with it; loss and gradient norms are a float64 program's.
struct NanoSort : testing::Test {
    std::unique_ptr<Comm> comm = comm_self();
    Memory<CpuStream> memory{CpuStream{}};
    std::unique_ptr<Shards<float, CpuStream>> shards;
    Gpt<float, CpuStream> gpt;
    nlohmann::json weights, partials, grads;
    static constexpr int B = 3, T = 11;
    std::vector<int> tokens, targets;

    void SetUp() override {
        const std::string folder = test_data("gpt_nano_sort");
        if (!std::ifstream(folder + "/gpt-nano-sort-model.json"))
            GTEST_SKIP() << "no " << folder << " (data/fetch_test_data.sh brings it)";
        weights = json_file(folder + "/gpt-nano-sort-model.json");
        partials = json_file(folder + "/gpt-nano-sort-t0-partials.json");
        grads = json_file(folder + "/grads.json");

        ModelConfig c;
        c.name = "nano-sort", c.L = 3, c.H = c.KV = 3, c.C = 48, c.F = 192, c.V = 3;
        c.Vp = vocab_padded(3), c.max_T = 11, c.tied = false;
        shards = std::make_unique<Shards<float, CpuStream>>(param_layout(c), ShardsConfig{}, *comm,
                                                            memory);
        gpt = gpt_create<float>(c, B, T, Recompute::None, false, memory);
        for (const TensorSlice& s : shards->master_slices()) {
            const std::vector<float> x = floats(weights.at(s.tensor->name));
            ASSERT_EQ(int64_t(x.size()), s.count) << s.tensor->name;
            std::copy(x.begin(), x.end(), s.data);
        }
        for (const auto& row : grads.at("idx"))
            for (int t = 0; t < T; t++) {
                tokens.push_back(row[size_t(t)]);
                targets.push_back(t + 1 < T ? int(row[size_t(t) + 1]) : kIgnoreTarget);
            }
    }

    // The published tensor against ours; fp32 sums of up to 192 terms: some 1e-6 of the size.
    void expect_near(const char* name, const float* ours) {
        const std::vector<float> published = floats(partials.at(name));
        float largest = 0;
        for (float x : published) largest = std::max(largest, std::abs(x));
        for (size_t i = 0; i < published.size(); i++)
            ASSERT_NEAR(ours[i], published[i], 2e-6 * std::max(1.f, largest)) << name << " " << i;
    }
};
}  // namespace

TEST_F(NanoSort, activations_are_the_published_ones) {
    gpt_forward(gpt, *shards, tokens.data());
    const auto& a = gpt.acts;
    expect_near("x", a.layers[0].res1);
    expect_near("ln1", a.layers[0].ln1);
    expect_near("qkv", a.layers[0].qkv);
    expect_near("y", a.layers[0].atty);
    expect_near("attnResid", a.layers[0].res2);
    expect_near("ln2", a.layers[0].ln2);
    expect_near("fc", a.layers[0].pre);
    expect_near("gelu", a.layers[0].act);
    expect_near("block0", a.layers[1].res1);
    expect_near("block1", a.layers[2].res1);
    expect_near("block2", a.resf);
    expect_near("ln_f", a.lnf);

    const ParamBlock& head = shards->layout().blocks.back();
    const float* lmw = head_params(head, shards->params_acquire(shards->layout().head())).lmw;
    std::vector<float> logits;
    for (int n = 0; n < B * T; n++)
        for (int v = 0; v < 3; v++) {
            double sum = 0;
            for (int k = 0; k < 48; k++) sum += double(a.lnf[n * 48 + k]) * double(lmw[v * 48 + k]);
            logits.push_back(float(sum));
        }
    expect_near("lm_head", logits.data());
}

TEST_F(NanoSort, loss_and_gradient_norms_are_the_float64_ones) {
    gpt_loss_reset(gpt);
    gpt_forward_backward(gpt, *shards, tokens.data(), targets.data(), 1.f / 30);
    const double loss = fixed_sum_value(gpt_loss_sum(gpt)) / 30;
    EXPECT_NEAR(loss, grads.at("loss").get<double>(), 2e-6 * 7.5);

    const float* g = shards->grads_acquire(0);
    int tensors = 0;
    for (const ParamBlock& b : shards->layout().blocks)
        for (const ParamTensor& t : b.tensors) {
            double sum = 0;
            for (int64_t i = 0; i < t.count(); i++)
                sum += double(g[b.offset + t.offset + i]) * double(g[b.offset + t.offset + i]);
            const double expected = grads.at("grad_l2").at(t.name);
            // Gradients pass through three layers of fp32: 1e-5 of the norm.
            EXPECT_NEAR(std::sqrt(sum), expected, 1e-5 * expected) << t.name;
            tensors++;
        }
    EXPECT_EQ(tensors, int(grads.at("grad_l2").size()));
}

// The model was trained to sort: fed a sequence and its own output, it must continue in order.
TEST_F(NanoSort, it_sorts) {
    gpt_forward(gpt, *shards, tokens.data());
    const ParamBlock& head = shards->layout().blocks.back();
    const float* lmw = head_params(head, shards->params_acquire(shards->layout().head())).lmw;
    // Six letters, then their order: position 5 predicts the smallest letter.
    for (int b = 0; b < B; b++) {
        const int smallest = *std::min_element(tokens.begin() + b * T, tokens.begin() + b * T + 6);
        const float* x = gpt.acts.lnf + (b * T + 5) * 48;
        int best = 0;
        double best_logit = -1e30;
        for (int v = 0; v < 3; v++) {
            double logit = 0;
            for (int k = 0; k < 48; k++) logit += double(x[k]) * double(lmw[v * 48 + k]);
            if (logit > best_logit) best_logit = logit, best = v;
        }
        EXPECT_EQ(best, smallest);
    }
}

// ---- CUDA against the CPU
#ifdef LLMC_CUDA
template <class Elem>
struct gpt_cuda : testing::Test {
    using Gpu = Model<Elem, CudaStream>;
    void SetUp() override {
        if (cuda_device_count() == 0) GTEST_SKIP() << cuda_absence();
    }
};
using ElemTypes = testing::Types<float, bf16>;
TYPED_TEST_SUITE(gpt_cuda, ElemTypes);

TYPED_TEST(gpt_cuda, logits_loss_and_every_gradient_are_the_cpus) {
    const double tol = share<TypeParam>();
    for (const ModelConfig& c : small_models()) {
        Cpu cpu(c);
        typename TestFixture::Gpu gpu(c);
        const float scale = 1.f / 65;
        const std::vector<float> expected = cpu.gradients(scale), found = gpu.gradients(scale);

        // The loss is a mean of 65 errors, each at most that of a logit.
        EXPECT_NEAR(gpu.loss() / 65, cpu.loss() / 65, tol * cpu.loss() / 65) << c.name;
        EXPECT_GT(cpu.loss() / 65, 3);
        for (const ParamBlock& b : cpu.shards.layout().blocks)
            for (const ParamTensor& t : b.tensors) {
                const float *e = &expected[size_t(b.offset + t.offset)],
                            *f = &found[size_t(b.offset + t.offset)];
                const double size = length(e, t.size);
                EXPECT_GT(size, 0) << t.name;
                EXPECT_LE(distance({e, e + t.size}, {f, f + t.size}), tol * size)
                    << c.name << " " << t.name;
                for (int64_t i = t.count(); i < t.size; i++)
                    ASSERT_EQ(f[i], 0.f) << "padding of " << t.name;
            }

        // The logits of every position.
        std::vector<float> le(size_t(c.V)), lf(size_t(c.V));
        for (int n = 0; n < 2 * 33; n++) {
            gpt_logits(cpu.gpt, cpu.shards, n, le.data());
            gpt_logits(gpu.gpt, gpu.shards, n, lf.data());
            EXPECT_LE(distance(le, lf), tol * length(le.data(), c.V)) << c.name << " " << n;
        }
    }
}

// AdamW divides by the root of the mean square; an eps of the gradients' size keeps the quotient
// smooth, d step <= lr / eps d g. Movement and error are then both sums over the steps of lr / eps
// times the gradient, so the error keeps its share of the movement; that later gradients are taken
// at slightly different weights is worth another factor of 2.
TYPED_TEST(gpt_cuda, ten_optimizer_steps_go_where_the_cpu_goes) {
    const AdamW hyper{0.02f, 0.9f, 0.95f, 0.02f, 0.1f, 1};
    for (const ModelConfig& c : {small_config(false), small_llama(true)}) {
        SCOPED_TRACE(c.name);
        Cpu cpu(c);
        typename TestFixture::Gpu gpu(c);
        const std::vector<float> start = cpu.masters();
        cpu.steps(10, hyper, 1.f / 65);
        gpu.steps(10, hyper, 1.f / 65);
        const std::vector<float> expected = cpu.masters(), found = gpu.masters();
        const double moved = distance(expected, start);
        EXPECT_GT(moved, 0.1);
        EXPECT_LE(distance(expected, found), 2 * share<TypeParam>() * moved);
        EXPECT_LT(cpu.loss() / 65, std::log(c.V) - 0.5);  // it has learned
        EXPECT_NEAR(gpu.loss() / 65, cpu.loss() / 65, 2 * share<TypeParam>() * cpu.loss() / 65);
        EXPECT_NEAR(gpu.shards.norm(), cpu.shards.norm(),
                    4 * share<TypeParam>() * double(cpu.shards.norm()));
    }
}

TYPED_TEST(gpt_cuda, recomputing_changes_no_bit) {
    for (const ModelConfig& c : small_models()) {
        typename TestFixture::Gpu none(c);
        const std::vector<float> kept = none.gradients(0.1f);
        for (Recompute r : {Recompute::Selective, Recompute::Block}) {
            typename TestFixture::Gpu other(c, 2, 33, r);
            EXPECT_TRUE(same_bits(other.gradients(0.1f), kept)) << c.name << " " << int(r);
        }
    }
}

TYPED_TEST(gpt_cuda, micro_batches_add_up_in_any_order) {
    const ModelConfig c = small_config(false);
    const AdamW hyper{0.02f, 0.9f, 0.95f, 0.02f, 0.1f, 1};
    ShardsConfig two;
    two.micro_batches = 2;
    // A step over two micro-batches: the norm, and where the weights went.
    const auto run = [&](auto&& m, int first, int second) {
        m.micro_batch(1.f / 65, first);
        m.micro_batch(1.f / 65, second);
        m.shards.reduce();
        m.shards.clip(0, m.gpt.loss_sum);
        const float norm = m.shards.norm();
        m.shards.step(hyper);
        return std::pair(norm, m.masters());
    };
    using Gpu = typename TestFixture::Gpu;
    const auto [n01, p01] = run(Gpu(c, 1, 33, Recompute::None, two), 0, 1);
    const auto [n10, p10] = run(Gpu(c, 1, 33, Recompute::None, two), 1, 0);
    EXPECT_EQ(n01, n10);
    EXPECT_TRUE(same_bits(p01, p10));

    // Both micro-batches count: the step is that of one batch of both, on the CPU.
    Cpu whole(c);
    const std::vector<float> start = whole.masters();
    whole.steps(1, hyper, 1.f / 65, 0);
    const std::vector<float> expected = whole.masters();
    const double norm = double(whole.shards.norm());
    EXPECT_NEAR(n01, norm, share<TypeParam>() * norm);
    EXPECT_GT(norm, 0);
    EXPECT_LE(distance(expected, p01), share<TypeParam>() * distance(expected, start));
}

TYPED_TEST(gpt_cuda, a_short_sequence_leaves_later_positions_alone) {
    const ModelConfig c = small_config(false);
    for (int T : {1, 7}) {
        Cpu cpu(c, 2, T);
        typename TestFixture::Gpu gpu(c, 2, T);
        const std::vector<float> expected = cpu.gradients(0.1f), found = gpu.gradients(0.1f);
        EXPECT_LE(distance(expected, found),
                  share<TypeParam>() * length(expected.data(), int64_t(expected.size())));
        const ParamTensor& wpe = gpu.shards.layout().blocks[0].tensors[1];
        for (int64_t i = T * c.C; i < wpe.count(); i++)
            ASSERT_EQ(found[size_t(wpe.offset + i)], 0.f) << i;
    }
}

// What the GPU writes to disk is what the CPU reads, and back: equal hashes.
TYPED_TEST(gpt_cuda, a_checkpoint_travels_between_devices) {
    const ModelConfig c = small_config(true);
    const std::string dir = testing::TempDir() + "gpt_cuda_" + std::to_string(getpid());
    const auto save = [&](auto& model, const std::string& name) {
        model.shards.state_to_host();
        CheckpointMeta meta;
        meta.run_id = "test", meta.step = 1;
        Saves saves;
        std::filesystem::create_directories(dir + name);
        const SaveResult r = checkpoint_save(dir + name, meta,
                                             state_pieces(model.shards, Groups::All, Pieces::Owned),
                                             *model.comm, saves);
        EXPECT_TRUE(r.ok) << r.reason;
        return r.state;
    };
    const auto load = [&](auto& model, const std::string& name, int64_t updates) {
        checkpoint_read(checkpoint_open(dir + name, *model.comm),
                        state_pieces(model.shards, Groups::All, Pieces::Held), *model.comm);
        model.shards.state_from_host(updates);
    };
    const AdamW hyper{0.02f, 0.9f, 0.95f, 1e-8f, 0.1f, 1};
    Cpu first(c), last(c);
    typename TestFixture::Gpu middle(c);
    first.steps(3, hyper, 1.f / 65);
    const std::string cpu = save(first, "_cpu");
    load(middle, "_cpu", 3);
    EXPECT_EQ(save(middle, "_gpu"), cpu);
    load(last, "_gpu", 3);
    EXPECT_EQ(save(last, "_again"), cpu);
    // And it is the model that goes on, not only its numbers.
    middle.steps(1, hyper, 1.f / 65), last.steps(1, hyper, 1.f / 65);
    EXPECT_NEAR(middle.loss(), last.loss(), share<TypeParam>() * last.loss());
    EXPECT_NE(save(middle, "_next"), cpu);
    for (const char* name : {"_cpu", "_gpu", "_again", "_next"})
        std::filesystem::remove_all(dir + name);
}

// The plan is what a run allocates, to the byte.
TYPED_TEST(gpt_cuda, the_plan_equals_what_a_run_allocates) {
    World world = world_init(60);
    const ModelConfig cfg = model_config("gpt2:d2", 300);
    for (int accumulate : {1, 3})
        for (Recompute recompute : {Recompute::None, Recompute::Block}) {
            Options opt;
            opt.device = Device::Cuda;
            opt.dtype = std::is_same_v<TypeParam, bf16> ? Dtype::BF16 : Dtype::F32;
            opt.micro_batch = 2, opt.seq_len = 33, opt.recompute = recompute;
            opt.batch_tokens = int64_t(accumulate) * 2 * 33;
            opt.sample_every = 10, opt.prompt = "abc";
            options_derive(opt, cfg.max_T, 1);
            const MemoryPlan plan = plan_memory(opt, cfg);

            const CudaStream s;
            const size_t device = memory_in_use(s), host = memory_in_use(CpuStream{});
            Memory<CudaStream> memory{s};
            Shards<TypeParam, CudaStream> shards(param_layout(cfg), shards_config(opt), *world.dp,
                                                 memory);
            gpt_create<TypeParam>(cfg, opt.micro_batch, opt.seq_len, opt.recompute, false, memory);
            const SamplingRoom room = sampling_room(opt, cfg);
            Decoder<TypeParam, CudaStream>(cfg, room.capacity, room.batch, memory);
            EXPECT_EQ(int64_t(memory_in_use(s) - device), plan.total());
            EXPECT_EQ(int64_t(memory_in_use(CpuStream{}) - host), plan.total("host"));
        }
}

// Generation on a GPU runs the whole text again; the CPU keeps a cache. Same logits.
TYPED_TEST(gpt_cuda, decoding_gives_the_logits_of_the_cpu) {
    const ModelConfig c = small_config(false);
    Cpu cpu(c);
    typename TestFixture::Gpu gpu(c);
    Decoder<float, CpuStream> cached(c, 20, 8, cpu.memory);
    Decoder<TypeParam, CudaStream> again(c, 20, 8, gpu.memory);
    const std::vector<int> text = cpu.ids(0);
    for (int at = 0, n = 3; at < 20; at += n, n = 17) {
        const float* e = cached.feed(cpu.shards, text.data() + at, n);
        const float* f = again.feed(gpu.shards, text.data() + at, n);
        EXPECT_LE(distance({e, e + c.V}, {f, f + c.V}), share<TypeParam>() * length(e, c.V));
        EXPECT_EQ(again.used(), cached.used());
    }
}

TEST(cuda_absence, names_the_reason) {
    const int no_device = 100, insufficient = 35;
    EXPECT_EQ(cuda_absence(insufficient, "", 0, 13000), "no NVIDIA driver on this machine");
    EXPECT_EQ(cuda_absence(insufficient, "", 11040, 13000),
              "the NVIDIA driver is too old: it serves CUDA 11.4, this build needs 13.0");
    EXPECT_NE(cuda_absence(no_device, "", 13000, 13000).find("CUDA_VISIBLE_DEVICES"),
              std::string::npos);
    EXPECT_NE(cuda_absence(803, "cudaErrorSystemDriverMismatch", 13000, 13000)
                  .find("cudaErrorSystemDriverMismatch"),
              std::string::npos);
}
#endif
