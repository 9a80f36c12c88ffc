// llmc/io/llmc_eval.h: multiple-choice questions in llm.c's file for HellaSwag, already as ids.
//
// A header of 256 int32, then uint16 words, little-endian:
//     header     20240522, 1, questions, bytes of the longest question
//     question   65535, its bytes (these words included), its index, label, choices (4),
//                n, n ids of the context, and for each choice n, n ids
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

constexpr int32_t kLlmcEvalMagic = 20240522, kLlmcEvalVersion = 1;

struct LlmcEvalQuestion {
    int label = 0;
    std::vector<int> context;
    std::vector<std::vector<int>> choices;
};

bool is_llmc_eval(std::string_view bytes);  // by its magic
// Damaged, naming `where` and the byte, where the file is not whole, or counts do not agree.
std::vector<LlmcEvalQuestion> llmc_eval_parse(std::string_view bytes, const std::string& where);
