// llmc/io/tokenizer_sentencepiece.h: sentencepiece models as tokenizers, where the build has the
// library (Debian's libsentencepiece-dev); else opening one is an error that says so.
#pragma once
#include <memory>
#include <string>

#include "llmc/io/tokenizer.h"

// serialized: the bytes of a .model file. `where` is named in errors. Damaged if it is none.
std::unique_ptr<Tokenizer> sentencepiece_tokenizer(std::string serialized,
                                                   const std::string& where);

// The model in what such a tokenizer's json() gives; empty for the JSON of another kind.
std::string sentencepiece_from_json(const std::string& json, const std::string& where);

// Is it llama2.c's tokenizer.bin? int32 longest length, then for each token float score, int32
// length, bytes; ids 0 to 2 are <unk>, <s>, </s>, then 256 bytes.
bool llama2c_tokenizer_is(const std::string& file);
// The same pieces and scores as a sentencepiece model. Damaged when the file is cut.
std::string llama2c_tokenizer_model(const std::string& file, const std::string& where);

std::string base64_encode(const std::string& bytes);
std::string base64_decode(const std::string& text, const std::string& where);
