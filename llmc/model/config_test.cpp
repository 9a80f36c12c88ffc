#include "llmc/model/config.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "llmc/core/check.h"
#include "llmc/model/parameters.h"

static std::string error_of(const std::function<void()>& f) {
    try {
        f();
    } catch (const Error& e) {
        EXPECT_EQ(e.code, Exit::Usage);
        return e.what();
    }
    return "no error";
}

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

TEST(config, seq_len_must_fit) {
    const ModelConfig c = model_config("gpt2:124M");
    check_seq_len(c, 1024);
    EXPECT_NE(error_of([&] { check_seq_len(c, 1025); }).find("1 to 1024"), std::string::npos);
    EXPECT_NE(error_of([&] { check_seq_len(c, 0); }).find("1 to 1024"), std::string::npos);
}
