// llmc/train/generate.h: text from a model, token by token.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "llmc/io/tokenizer.h"
#include "llmc/model/decode.h"
#include "llmc/train/options.h"
#include "llmc/train/sampler.h"

// Continues `prompt` by n tokens and hands each one to `emit` as soon as it is known. Ends early at
// a token that ends a text for the tokenizer. When the cache is full, decoding starts over with the
// last half of the text as context. An empty prompt starts after end-of-text.
template <class Elem, class Stream>
void generate(Decoder<Elem, Stream>& decoder, Shards<Elem, Stream>& shards, int V,
              const std::vector<int>& prompt, int n, const Tokenizer& tokenizer,
              const Sampling& how, Comm& ranks, const std::function<void(int)>& emit);

// The prompt's tokens after what begins a document in training, if the tokenizer has that. Usage
// for an empty prompt that nothing begins.
std::vector<int> prompt_tokens(Tokenizer& tokenizer, const std::string& prompt);

// Writes bytes in whole UTF-8 characters: what is cut waits for its rest.
class TextWriter {
  public:
    explicit TextWriter(std::function<void(const std::string&)> write) : write_(std::move(write)) {}
    void add(const std::string& bytes);
    void finish();  // writes what waits, whole or not

  private:
    std::function<void(const std::string&)> write_;
    std::string waiting_;
};
