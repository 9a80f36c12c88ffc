// llmc/core/nearest.h: "did you mean ...?" for option names, presets and config fields.
#pragma once
#include <string>
#include <vector>

// The candidate with the smallest edit distance (Levenshtein) to `word`; "" when there is none.
std::string nearest_name(const std::string& word, const std::vector<std::string>& candidates);
