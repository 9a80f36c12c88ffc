// llmc/io/tokenizer_bpe.h: BPE, its parts: what a text is cut into (tokenizer_split.h), what
// merges, the tables of a model.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "llmc/io/tokenizer.h"
#include "llmc/io/tokenizer_split.h"

// ---- model

struct BpeMerge {
    int left, right;  // ids of neighbours
    int merged;       // the id that replaces them
};

// A character model writes spaces as kSpaceSign, and may put one before a text: before its
// beginning alone, or before what follows a special token too.
enum class SpacePrefix { None, FirstUnlessThere, EachUnlessThere, Each };

// How a text becomes the pieces whose first tokens merge. The defaults are GPT-2's.
struct BpeRules {
    std::string pattern = kGpt2Pattern;                    // cuts the text; empty: it stays whole
    size_t (*safe_cut)(std::string_view) = gpt2_safe_cut;  // of that pattern; null: none is known
    bool nfc = false;                                      // normal form C first
    bool whole_pieces = false;  // a piece that is a token is that token, whatever the merges say
    bool characters = false;  // first tokens are characters, and bytes for what has no token, as in
                              // LLaMA 2; else bytes
    SpacePrefix prefix = SpacePrefix::None;  // of a character model
};

struct BpeModel {
    Vocabulary vocab;              // has a token for each single byte
    std::vector<BpeMerge> merges;  // the most urgent first
    std::array<int, 256> byte_id;  // (256) id of each single byte, set by bpe_complete
    BpeRules rules;
    std::unordered_map<std::string, int>
        id_of;           // by the bytes of a piece, where rules look them up
    std::string source;  // the tokenizer.json it came from, if bpe_to_json would not say all of it
};

// Derives byte_id, vocab.eot (unless it is known), vocab.ends and vocab.name from the rest.
// Damaged, naming `where`, if a byte has no token.
void bpe_complete(BpeModel& model, const std::string& where);

// What character models call a byte: <0x0A>.
std::string byte_token(uint8_t byte);

// The model of the byte tokenizer: no merges, id b is byte b, 256 is end-of-text.
BpeModel byte_model();

std::unique_ptr<Tokenizer> bpe_tokenizer(BpeModel model);

// ---- files (tokenizer_json.cpp)

// Byte-level files write bytes as printable characters: 33..126, 161..172, 174..255 as the
// character of that number, the others as the characters from 256 on (space is U+0120). Returns
// the bytes' characters as UTF-8.
std::string bytes_to_printable(std::string_view bytes);
// False where the text has a character that stands for no byte.
bool printable_to_bytes(std::string_view printable, std::string& bytes);

std::string bpe_to_json(const BpeModel& model);
