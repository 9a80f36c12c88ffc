// llmc/io/tokenizer_builder.h: puts a BPE model together from the tokens and merges of a file,
// checking each entry.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>

#include "llmc/io/tokenizer_bpe.h"

class BpeBuilder {
  public:
    explicit BpeBuilder(const std::string& where, BpeRules rules = {}) : where_(where) {
        model_.rules = std::move(rules);
    }

    // A token of the vocabulary proper. In a byte-level model its text is in the byte alphabet.
    void token(const std::string& text, const nlohmann::json& id);
    // A token whose text stands for itself; it may have been listed with the others before.
    void special(const std::string& text, const nlohmann::json& id);  // if asked for
    void added(const std::string& text, const nlohmann::json& id);    // always
    void merge(const std::string& line);  // "left right", a line of a list of merges
    void merge(const std::string& left, const std::string& right);

    bool has(const std::string& text) const { return id_of_.count(text) > 0; }
    int id_of(const std::string& text) const;  // Damaged when a merge has a token that is not there
    Vocabulary& vocab() { return model_.vocab; }
    BpeModel finish(std::string source = "");

  private:
    std::string& place(const std::string& text, const nlohmann::json& id);
    void place_special(const std::string& text, const nlohmann::json& id);

    const std::string where_;
    BpeModel model_;
    std::unordered_map<std::string, int> id_of_;
};

// A space for every kSpaceSign.
std::string with_spaces(const std::string& text);

// Damaged, naming `where`, for what is no JSON.
nlohmann::json tokenizer_json_parse(const std::string& text, const std::string& where);
