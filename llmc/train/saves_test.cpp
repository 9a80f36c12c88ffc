// llmc/train/saves_test.cpp: a run resumes only from a checkpoint of its own model.
#include "llmc/train/saves.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "llmc/core/check.h"
#include "llmc/train/options_table.h"

namespace {

OpenCheckpoint checkpoint_of(const ModelConfig& cfg, const Options& opt) {
    OpenCheckpoint c;
    c.path = "out/ckpt/step-0000000003";
    const World world;
    c.manifest.meta = checkpoint_meta("id", {}, opt, cfg, nullptr, world);
    return c;
}

std::string resume(const ModelConfig& there, const ModelConfig& here) {
    Options opt;
    opt.seq_len = 32;
    try {
        checkpoint_state(checkpoint_of(there, opt), opt, here);
    } catch (const Error& e) {
        EXPECT_EQ(e.code, Exit::Usage);
        return e.what();
    }
    return "resumed";
}

ModelConfig llama() {
    ModelConfig c = model_config("llama:tiny");
    c.head_size = 8;
    return c;
}

}  // namespace

// Every field of a config, changed in either direction: fields that one of the two JSON texts
// leaves out among them.
TEST(saves, a_run_resumes_only_from_its_own_model) {
    struct Change {
        const char* field;
        ModelConfig base;
        std::function<void(ModelConfig&)> apply;
    };
    using C = ModelConfig;
    const ModelConfig gpt2 = model_config("gpt2:d2");
    const Change changes[] = {
        {"n_layer", gpt2, [](C& c) { c.L = 3; }},
        {"n_head", gpt2, [](C& c) { c.H = c.KV = 4; }},
        {"n_embd", gpt2, [](C& c) { c.C = 256; }},
        {"n_inner", gpt2, [](C& c) { c.F = 100; }},
        {"vocab_size", gpt2, [](C& c) { c.V = 50256; }},
        {"n_positions", gpt2, [](C& c) { c.max_T = 512; }},
        {"layer_norm_epsilon", gpt2, [](C& c) { c.eps = 1e-6f; }},
        {"tie_word_embeddings", gpt2, [](C& c) { c.tied = false; }},
        {"num_hidden_layers", llama(), [](C& c) { c.L = 3; }},
        {"num_attention_heads", llama(), [](C& c) { c.H = 4; }},
        {"num_key_value_heads", llama(), [](C& c) { c.KV = 2; }},
        {"hidden_size", llama(), [](C& c) { c.C = 128; }},
        {"head_dim", llama(), [](C& c) { c.head_size = 16; }},
        {"intermediate_size", llama(), [](C& c) { c.F = 100; }},
        {"vocab_size", llama(), [](C& c) { c.V = 511; }},
        {"max_position_embeddings", llama(), [](C& c) { c.max_T = 256; }},
        {"rms_norm_eps", llama(), [](C& c) { c.eps = 1e-6f; }},
        {"tie_word_embeddings", llama(), [](C& c) { c.tied = false; }},
        {"rope_theta", llama(), [](C& c) { c.rope_theta = 5e5; }},
        {"rope_interleaved", llama(), [](C& c) { c.rope_pairs = RopePairs::Interleaved; }},
        {"rope_scaling", llama(), [](C& c) { c.rope_scaling.factor = 8; }},
        {"Qwen2ForCausalLM", llama(), [](C& c) { c.qkv_bias = true; }},
        {"Qwen3ForCausalLM", llama(), [](C& c) { c.qk_norm = true; }},
    };
    for (const Change& change : changes) {
        SCOPED_TRACE(change.field);
        ModelConfig other = change.base;
        change.apply(other);
        EXPECT_EQ(resume(change.base, change.base), "resumed");
        EXPECT_EQ(resume(other, other), "resumed");
        for (const std::string& error : {resume(change.base, other), resume(other, change.base)}) {
            EXPECT_NE(error.find("a checkpoint of another model"), std::string::npos) << error;
            EXPECT_NE(error.find(change.field), std::string::npos) << error;
        }
    }
    // ... and the parts of a scaling that both have.
    ModelConfig scaled = llama();
    scaled.rope_scaling.factor = 8;
    for (double RopeScaling::*part :
         {&RopeScaling::factor, &RopeScaling::high_freq_factor, &RopeScaling::old_context}) {
        ModelConfig other = scaled;
        other.rope_scaling.*part *= 2;
        EXPECT_NE(resume(scaled, other).find("rope_scaling"), std::string::npos);
    }
}

TEST(saves, numbers_of_a_run_that_are_none_are_refused) {
    const ModelConfig cfg = model_config("gpt2:d2");
    Options opt;
    opt.seq_len = 32;
    for (const char* value : {"1e300", "32.5", "-32", "18446744073709551615", "\"32\""}) {
        OpenCheckpoint c = checkpoint_of(cfg, opt);
        c.manifest.meta.train["seq_len"] = nlohmann::json::parse(value);
        try {
            checkpoint_state(c, opt, cfg);
            ADD_FAILURE() << value;
        } catch (const Error& e) {
            EXPECT_EQ(e.code, Exit::Damaged) << value;
        }
    }
}

// Every row of the table that says so, changed; and what a run may change without another curve.
TEST(saves, what_decides_the_curve_and_differs_is_told) {
    const ModelConfig cfg = model_config("gpt2:d2");
    Options then;
    then.seq_len = 32;
    OpenCheckpoint c = checkpoint_of(cfg, then);
    c.manifest.meta.train["data"] = "2 shards";
    const auto told = [&](const std::function<void(Options&)>& change) {
        Options now = then;
        change(now);
        return changed_options(c, now, "2 shards");
    };
    using O = Options;
    EXPECT_EQ(told([](O&) {}), "");
    EXPECT_EQ(told([](O& o) { o.lr = 1e-3; }), "--lr 6e-04 -> 0.001");
    EXPECT_EQ(told([](O& o) { o.weight_decay = 0, o.steps = 7; }),
              "--steps 1000 -> 7, --weight-decay 0.1 -> 0");
    EXPECT_EQ(told([](O& o) { o.reduction = Reduction::Fast, o.wire = Wire::Bf16; }),
              "--reduction canonical -> fast, --wire fp32 -> bf16");
    EXPECT_EQ(
        told([](O& o) { o.zero = 3, o.bucket_mb = 1, o.keep = 9, o.out = "x", o.val_every = 7; }),
        "");
    EXPECT_EQ(changed_options(c, then, "3 shards"), "--data 2 shards -> 3 shards");
    EXPECT_EQ(curve_options(then).size(), c.manifest.meta.train["options"].size());
    for (const auto& [name, value] : curve_options(then)) {
        OpenCheckpoint other = c;
        other.manifest.meta.train["options"][name] = "another";
        EXPECT_EQ(changed_options(other, then, "2 shards"), "--" + name + " another -> " + value);
    }
}

TEST(saves, a_checkpoint_without_its_options_resumes_in_silence) {
    const ModelConfig cfg = model_config("gpt2:d2");
    Options opt;
    opt.seq_len = 32;
    OpenCheckpoint c = checkpoint_of(cfg, opt);
    nlohmann::json& train = c.manifest.meta.train;
    train.erase("options");
    opt.lr = 1, opt.micro_batch = 3;
    EXPECT_EQ(changed_options(c, opt, "2 shards"), "");
    train["micro_batch"] = 4, train["batch_tokens"] = 0;  // as they were written then
    EXPECT_EQ(changed_options(c, opt, "2 shards"), "--micro-batch 4 -> 3");
    for (const char* bad : {"7", "\"lr\"", "{\"lr\": 0.1}", "[[1]]"}) {
        train["options"] = nlohmann::json::parse(bad);
        try {
            changed_options(c, opt, "");
            ADD_FAILURE() << bad;
        } catch (const Error& e) {
            EXPECT_EQ(e.code, Exit::Damaged) << bad;
        }
    }
}

TEST(saves, the_seed_may_have_all_its_bits) {
    const ModelConfig cfg = model_config("gpt2:d2");
    Options opt, other;
    opt.seed = UINT64_MAX, other.seed = UINT64_MAX - 1;
    EXPECT_NO_THROW(checkpoint_state(checkpoint_of(cfg, opt), opt, cfg));
    EXPECT_THROW(checkpoint_state(checkpoint_of(cfg, opt), other, cfg), Error);
}
