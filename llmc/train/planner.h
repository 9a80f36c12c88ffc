// llmc/train/planner.h: what a run will hold in memory and on disk, before it holds anything.
#pragma once
#include <string>

#include "llmc/core/memory.h"
#include "llmc/io/checkpoint.h"
#include "llmc/io/tokenizer.h"
#include "llmc/model/config.h"
#include "llmc/train/options.h"

// The memory of a training run with these (derived) options: the same constructors run, measuring.
// For opt.ranks ranks it is what each of them holds.
MemoryPlan plan_memory(const Options& opt, const ModelConfig& cfg);

// Positions and prompt tokens that sampling during training needs room for; 0, 0 without sampling.
struct SamplingRoom {
    int capacity, batch;
};
SamplingRoom sampling_room(const Options& opt, const ModelConfig& cfg);

// "1.5 GiB"
std::string bytes_text(int64_t bytes);

// The `plan` command: the table on stdout. tokenizer: what checkpoints will carry, or null.
void plan_print(const Options& opt, const ModelConfig& cfg, const Tokenizer* tokenizer);
