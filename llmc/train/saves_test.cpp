// llmc/train/saves_test.cpp: a run resumes only from a checkpoint of its own model.
#include "llmc/train/saves.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "llmc/core/check.h"

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

TEST(saves, the_seed_may_have_all_its_bits) {
    const ModelConfig cfg = model_config("gpt2:d2");
    Options opt, other;
    opt.seed = UINT64_MAX, other.seed = UINT64_MAX - 1;
    EXPECT_NO_THROW(checkpoint_state(checkpoint_of(cfg, opt), opt, cfg));
    EXPECT_THROW(checkpoint_state(checkpoint_of(cfg, opt), other, cfg), Error);
}
