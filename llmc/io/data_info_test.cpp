// The note beside token files: written and read back, and numbers that are none.
#include "llmc/io/data_info.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "llmc/core/check.h"

namespace fs = std::filesystem;

TEST(data_info, numbers_that_are_none_are_refused) {
    const fs::path dir = fs::temp_directory_path() / str("data_info_test.", ::getpid());
    fs::create_directory(dir);
    DataInfo info;
    info.tokenizer = "d_tokenizer.json", info.tokenizer_name = "byte", info.vocab_size = 257;
    info.eot = 256;
    info.train.tokens = 4, info.train.shards = {{"d_train_000000.bin", 4, "00", false}};
    const nlohmann::ordered_json good = nlohmann::ordered_json::parse(data_info_json(info));
    const auto read = [&](const nlohmann::ordered_json& note) {
        std::ofstream(dir / "d.json") << note;
        return data_info_read((dir / "d").string());
    };
    const auto back = read(good);
    ASSERT_TRUE(back);
    EXPECT_EQ(back->vocab_size, 257);
    EXPECT_EQ(back->eot, 256);
    EXPECT_EQ(back->train.shards.at(0).tokens, 4);

    using Pointer = nlohmann::ordered_json::json_pointer;
    for (const char* field : {"/vocab_size", "/end_of_text", "/train/bytes", "/train/documents",
                              "/train/tokens", "/train/untrained", "/train/files/0/tokens"})
        for (const char* value : {"1e300", "2.5", "-2", "18446744073709551615", "\"4\"", "null"}) {
            nlohmann::ordered_json bad = good;
            bad[Pointer(field)] = nlohmann::ordered_json::parse(value);
            try {
                read(bad);
                ADD_FAILURE() << field << " = " << value;
            } catch (const Error& e) {
                EXPECT_EQ(e.code, Exit::Damaged) << field << " = " << value;
            }
        }
    fs::remove_all(dir);
}
