#include "llmc/model/config.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "llmc/model/config_testing.h"
#include "llmc/model/parameters.h"

// Sizes as published: GPT-2's parameters with the tied head counted once.
TEST(config, presets_have_the_published_number_of_parameters) {
    EXPECT_EQ(param_layout(model_config("gpt2:124M")).count, 124439808);
    EXPECT_EQ(param_layout(model_config("gpt2:350M")).count, 354823168);
    EXPECT_EQ(param_layout(model_config("gpt2:774M")).count, 774030080);
    EXPECT_EQ(param_layout(model_config("gpt2:1558M")).count, 1557611200);
    EXPECT_EQ(param_layout(model_config("gpt2:d12")).count, 124439808);
    EXPECT_EQ(model_config("gpt2:d6").C, 384);
    EXPECT_EQ(model_config("gpt2:d48").C, 1600);
    EXPECT_EQ(model_config("gpt2:124M").Vp, 50304);
    EXPECT_EQ(model_config("gpt2:d6", 257).Vp, 384);
}

TEST(config, every_listed_preset_is_known) {
    for (const std::string& name : model_presets()) EXPECT_GT(model_config(name).L, 0) << name;
}

TEST(config, an_unknown_preset_is_refused_with_the_nearest) {
    EXPECT_NE(error_of([] { model_config("gpt2:125M"); }).find("gpt2:124M"), std::string::npos);
    EXPECT_NE(error_of([] { model_config("gpt2:d13"); }).find("unknown model"), std::string::npos);
    EXPECT_NE(error_of([] { model_config("gpt2:d-1"); }).find("unknown model"), std::string::npos);
}

TEST(config, json_round_trips_and_bad_fields_are_named) {
    ModelConfig c = model_config("gpt2:d3", 300);
    c.tied = false;
    c.eps = 1e-6f;
    const nlohmann::json json = model_config_to_json(c);
    const ModelConfig back = model_config_from_json(json, "x.json");
    EXPECT_EQ(model_config_to_json(back), json);
    EXPECT_EQ(back.Vp, 384);

    auto with = [&](const char* key, nlohmann::json value) {
        nlohmann::json bad = json;
        bad[key] = std::move(value);
        return error_of([&] { model_config_from_json(bad, "x.json"); });
    };
    EXPECT_NE(with("n_layers", 3).find("n_layer"), std::string::npos);
    EXPECT_NE(with("n_layer", 0).find("n_layer"), std::string::npos);
    EXPECT_NE(with("n_layer", -2).find("out of range"), std::string::npos);
    EXPECT_NE(with("n_layer", 2.5).find("whole number"), std::string::npos);
    EXPECT_NE(with("n_layer", "3").find("whole number"), std::string::npos);
    EXPECT_NE(with("n_head", 7).find("n_embd % n_head"), std::string::npos);
    EXPECT_NE(with("activation_function", "relu").find("activation_function"), std::string::npos);
    EXPECT_NE(with("model_type", "llamo").find("model_type"), std::string::npos);
    EXPECT_NE(with("tie_word_embeddings", 1).find("true or false"), std::string::npos);
    EXPECT_NE(with("layer_norm_epsilon", 0).find("positive"), std::string::npos);
}

TEST(config, only_small_regular_files_are_read) {
    const std::string path = testing::TempDir() + str("/config_test.", ::getpid(), ".json");
    const auto said = [&] { return error_of([&] { model_config(path); }); };
    EXPECT_NE(said().find("cannot read the model config"), std::string::npos);
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);  // opened to read, it waits for a writer
    EXPECT_NE(said().find("cannot read the model config"), std::string::npos);
    std::remove(path.c_str());
    std::ofstream(path) << std::string((1 << 20) + 1, ' ');
    EXPECT_NE(said().find("at most 1 MiB"), std::string::npos);
    std::remove(path.c_str());
}

TEST(config, seq_len_must_fit) {
    const ModelConfig c = model_config("gpt2:124M");
    check_seq_len(c, 1024);
    EXPECT_NE(error_of([&] { check_seq_len(c, 1025); }).find("1 to 1024"), std::string::npos);
    EXPECT_NE(error_of([&] { check_seq_len(c, 0); }).find("1 to 1024"), std::string::npos);
}

// What their authors publish.
TEST(config, llama_and_qwen_presets_have_the_published_number_of_parameters) {
    for (const auto& [name, count] : {std::pair("llama:tinyllama-1.1B", int64_t(1100048384)),
                                      {"llama:3.2-1B", 1235814400},
                                      {"llama:3.1-8B", 8030261248},
                                      {"qwen2.5:0.5B", 494032768},
                                      {"qwen2.5:7B", 7615616512},
                                      {"qwen3:0.6B", 596049920},
                                      {"qwen3:8B", 8190735360}})
        EXPECT_EQ(param_layout(model_config(name)).count, count) << name;
}

TEST(config, qwen_is_read_and_written_as_hugging_face_has_it) {
    for (const char* preset : {"qwen2.5:0.5B", "qwen3:0.6B", "llama:3.1-8B"}) {
        const ModelConfig c = model_config(preset);
        const nlohmann::json json = model_config_to_json(c);
        const ModelConfig back = model_config_from_json(json, "x.json");
        EXPECT_EQ(model_config_to_json(back), json);
        EXPECT_EQ(back.qk_norm, c.qk_norm);
        EXPECT_EQ(back.qkv_bias, c.qkv_bias);
        EXPECT_EQ(back.QKV(), c.QKV()) << preset;
    }
    nlohmann::json json = model_config_to_json(model_config("qwen3:0.6B"));
    EXPECT_EQ(json["model_type"], "qwen3");
    EXPECT_EQ(model_config("qwen3:0.6B").A(), 2048);  // wider than the residual stream's 1024

    // As published: no windows, said in several ways.
    json["use_sliding_window"] = false, json["sliding_window"] = nullptr;
    json["max_window_layers"] = 28, json["layer_types"] = {"full_attention", "full_attention"};
    model_config_from_json(json, "x.json");
    const auto with = [&](const char* key, const nlohmann::json& value) {
        nlohmann::json bad = json;
        bad[key] = value;
        return error_of([&] { model_config_from_json(bad, "x.json"); });
    };
    EXPECT_NE(with("use_sliding_window", true).find("use_sliding_window"), std::string::npos);
    EXPECT_NE(with("layer_types", {"sliding_attention"}).find("layer_types"), std::string::npos);
    EXPECT_NE(with("attention_bias", true).find("attention_bias"), std::string::npos);
    EXPECT_NE(with("mlp_bias", false).find("mlp_bias"), std::string::npos);
    EXPECT_NE(with("rope_scaling", {{"rope_type", "yarn"}}).find("yarn"), std::string::npos);
    // Its heads are 128 wide where the file does not say; theta may stand in rope_parameters.
    json.erase("head_dim"), json.erase("rope_theta");
    json["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 1000000.0}};
    const ModelConfig c = model_config_from_json(json, "x.json");
    EXPECT_EQ(c.HS(), 128);
    EXPECT_EQ(c.rope_theta, 1e6);
}
