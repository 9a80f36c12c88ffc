// llmc/train/tokenize.h: `train_gpt tokenize` and `train_gpt train-bpe`.
//
// Both stream: memory does not grow with the text (train-bpe keeps its distinct words). What they
// write is a function of the text and the options alone, byte for byte, for any number of threads.
// data/README.md describes the files. Documents and the validation split: documents.h.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/io/tokenizer.h"  // kEndOfText

struct TokenizeOptions {
    std::vector<std::string> files;      // .jsonl, or text
    std::string tokenizer = "byte";      // as tokenizer_named() takes it
    std::string out;                     // PREFIX of what is written
    double val_fraction = 0.05;          // of the bytes of text; 0: no validation files
    int64_t shard_tokens = 100'000'000;  // in one file
    std::string separator = kEndOfText;  // between documents of a text file; empty: none
    int threads = 0;                     // 0: all cores given to the process
};

// Writes PREFIX_train_*.bin, PREFIX_val_*.bin, PREFIX_tokenizer.json and PREFIX.json; the summary
// goes to stdout. Files of an earlier run with this PREFIX are replaced, all at the end, and those
// that the new run has no use for are removed. Files of the same names that no PREFIX.json claims
// are somebody else's: Usage, and nothing is touched. Returns the exit code, 0; faults throw Error.
int tokenize_run(const TokenizeOptions& opt);

struct TrainBpeOptions {
    std::vector<std::string> files;
    int vocab_size = 2048;  // 256 bytes, merges, and end-of-text as the last
    std::string out;        // a file, or a folder for tokenizer.json
    std::string separator = kEndOfText;
};

// Learns merges from the text and writes a tokenizer.json that Hugging Face's library can load too.
int train_bpe_run(const TrainBpeOptions& opt);
