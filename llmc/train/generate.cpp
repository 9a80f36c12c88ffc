#include "llmc/train/generate.h"

#include <algorithm>
#include <cstdio>

#include "llmc/core/check.h"
#include "llmc/train/commands.h"
#include "llmc/train/device.h"
#include "llmc/train/saves.h"

template <class Elem, class Stream>
void generate(Decoder<Elem, Stream>& decoder, Shards<Elem, Stream>& shards, int V,
              const std::vector<int>& prompt, int n, const Tokenizer& tokenizer,
              const Sampling& how, Comm& ranks, const std::function<void(int)>& emit) {
    decoder.reset();
    V = std::min(V, tokenizer.vocab_size());  // a model may have room for more than there are
    std::vector<int> text = prompt;
    size_t fed = 0;  // of text, in the cache
    for (int i = 0; i < n; i++) {
        if (int64_t(text.size() - fed) > decoder.capacity() - decoder.used()) {
            decoder.reset();
            fed = text.size() - size_t(std::max(decoder.capacity() / 2, 1));
        }
        const float* logits = decoder.feed(shards, text.data() + fed, int(text.size() - fed));
        fed = text.size();
        // Ranks that round differently must not part here: in ZeRO-3 each token is a collective.
        int token = sample_token(logits, V, how, uint64_t(i));
        ranks.broadcast(&token, 1, 0, "token");
        if (tokenizer.ends_text(token)) return;
        text.push_back(token);
        emit(token);
    }
}

#define GENERATE_FOR(Elem, Stream)                                                                 \
    template void generate(Decoder<Elem, Stream>&, Shards<Elem, Stream>&, int,                     \
                           const std::vector<int>&, int, const Tokenizer&, const Sampling&, Comm&, \
                           const std::function<void(int)>&);
GENERATE_FOR(float, CpuStream)
FOR_CUDA(GENERATE_FOR(float, CudaStream) GENERATE_FOR(bf16, CudaStream))

std::vector<int> prompt_tokens(Tokenizer& tokenizer, const std::string& prompt) {
    std::vector<int> ids;
    if (tokenizer.eot() >= 0) ids.push_back(tokenizer.eot());
    tokenizer.encode(prompt, false, ids);
    CHECK(!ids.empty(), Exit::Usage, "an empty prompt, and nothing begins a text",
          "the tokenizer " + tokenizer.name(), "", "--prompt TEXT");
    return ids;
}

void TextWriter::add(const std::string& bytes) {
    waiting_ += bytes;
    // A character is cut when a lead byte near the end promises more bytes than there are.
    size_t whole = waiting_.size();
    for (size_t back = 1; back <= 3 && back <= waiting_.size(); back++) {
        const unsigned char c = (unsigned char)waiting_[waiting_.size() - back];
        if ((c & 0xc0) == 0x80) continue;  // a continuation byte: the lead is before it
        const size_t length = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
        if (length > back) whole = waiting_.size() - back;
        break;
    }
    if (whole) write_(waiting_.substr(0, whole));
    waiting_.erase(0, whole);
}

void TextWriter::finish() {
    if (!waiting_.empty()) write_(waiting_);
    waiting_.clear();
}

template <class Elem, class Stream>
static Exit generate_with(const Options& opt, World& world) {
    const StreamOwner<Stream> stream;
    Memory<Stream> memory{stream.get()};
    const auto model = model_load<Elem>(opt.model, world, memory);
    const std::unique_ptr<Tokenizer> tokenizer = model_tokenizer(opt, model.checkpoint, model.cfg);
    const std::vector<int> prompt = prompt_tokens(*tokenizer, opt.prompt);
    Decoder<Elem, Stream> decoder(model.cfg, int(prompt.size()) + opt.tokens, 64, memory);

    TextWriter out([](const std::string& text) {
        std::fwrite(text.data(), 1, text.size(), stdout);
        std::fflush(stdout);
    });
    out.add(opt.prompt);
    bool begins = opt.prompt.empty() && tokenizer->space_before_text();
    generate(decoder, *model.shards, model.cfg.V, prompt, opt.tokens, *tokenizer,
             {opt.temperature, opt.top_k, opt.top_p, opt.seed}, *world.dp, [&](int token) {
                 const std::string& bytes = tokenizer->token_bytes(token);
                 out.add(begins && bytes.starts_with(' ') ? bytes.substr(1) : bytes);
                 begins = false;
             });
    out.add("\n");
    out.finish();
    return Exit::Done;
}

Exit generate_run(const Options& opt, World& world) {
    return on_device(
        opt, [&]<class Elem, class Stream>() { return generate_with<Elem, Stream>(opt, world); });
}
