// llmc/io/data_info.h: PREFIX.json, the note beside token files that says what they are.
//
// `train_gpt tokenize --out PREFIX` leaves a data set that can be copied as a whole:
//     PREFIX_train_000000.bin ...   PREFIX_val_000000.bin ...   the ids (tokens.h)
//     PREFIX_tokenizer.json         what turns them into text again
//     PREFIX.json                   this note; data/README.md shows one
// Token files from elsewhere, llm.c's for example, have no note and need none.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "llmc/io/token_writer.h"  // TokenShardInfo

struct DataPart {
    int64_t bytes = 0;      // of text
    int64_t documents = 0;  // each begins with end-of-text
    int64_t tokens = 0;     // end-of-text included
    int64_t untrained = 0;  // of them, masked
    std::vector<TokenShardInfo> shards;
};

struct DataInfo {
    std::string tokenizer;         // path of PREFIX_tokenizer.json, for tokenizer_open()
    std::string tokenizer_name;    // "byte", "gpt2", "bpe-2048"
    std::string tokenizer_digest;  // of that file
    int vocab_size = 0;            // of the tokenizer; every id of the data is below
    int eot = -1;
    DataPart train, val;
};

// The note of the data set that the files matching these patterns belong to; nothing when they
// have none. Usage when they have several with different tokenizers; Damaged when a note cannot be
// read, or when the files that it names are not there as it says.
std::optional<DataInfo> data_info_find(const std::vector<std::string>& patterns);

// The note at PREFIX.json; nothing when there is no such file or it is another program's JSON.
std::optional<DataInfo> data_info_read(const std::string& prefix);
std::string data_info_json(const DataInfo& info);

// PREFIX of ".../PREFIX_train_000000.bin" or ".../PREFIX_val_000000.bin"; "" for other names.
std::string data_prefix(const std::string& shard_path);
