// llmc/io/tokenizer_sentencepiece.cpp: tokenizers of the sentencepiece library: its .model files
// (LLaMA 2, Mistral), and llama2.c's tokenizer.bin, which lists the same pieces and scores.
// Kudo, Richardson 2018, arXiv:1808.06226.
//
// Bytes that are not well-formed UTF-8 become U+FFFD, as the library has it.
#include <cstring>
#include <nlohmann/json.hpp>
#ifdef LLMC_SENTENCEPIECE
#include <sentencepiece_processor.h>
#endif

#include "llmc/core/check.h"
#include "llmc/core/plural.h"
#include "llmc/io/tokenizer_builder.h"
#include "llmc/io/tokenizer_sentencepiece.h"

using nlohmann::json;

// ---- bytes in JSON
std::string base64_encode(const std::string& bytes) {
    static constexpr char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text;
    for (size_t i = 0; i < bytes.size(); i += 3) {
        uint32_t bits = 0;
        for (size_t k = 0; k < 3; k++)
            bits = bits << 8 | (i + k < bytes.size() ? uint8_t(bytes[i + k]) : 0);
        for (size_t k = 0; k < 4; k++)
            text += i + k <= bytes.size() ? digits[bits >> (18 - 6 * k) & 63] : '=';
    }
    return text;
}

std::string base64_decode(const std::string& text, const std::string& where) {
    std::string bytes;
    uint32_t bits = 0;
    int n = 0;
    for (char c : text) {
        const int digit = c >= 'A' && c <= 'Z'   ? c - 'A'
                          : c >= 'a' && c <= 'z' ? c - 'a' + 26
                          : c >= '0' && c <= '9' ? c - '0' + 52
                          : c == '+'             ? 62
                          : c == '/'             ? 63
                                                 : -1;
        if (c == '=') break;
        CHECK(digit >= 0, Exit::Damaged, "not base64: " + where, std::string(1, c));
        bits = bits << 6 | uint32_t(digit);
        if ((n += 6) >= 8) bytes += char(bits >> (n -= 8));
    }
    return bytes;
}

std::string sentencepiece_from_json(const std::string& text, const std::string& where) {
    const json file = json::parse(text, nullptr, false);
    if (!file.is_object() || !file.contains("model")) return "";
    const json& model = file["model"];
    if (!model.is_object() || model.value("type", "") != "SentencePiece") return "";
    CHECK(model.contains("model_base64") && model["model_base64"].is_string(), Exit::Damaged,
          "not a tokenizer: " + where, "no model_base64");
    return base64_decode(model["model_base64"].get<std::string>(), where);
}

// ---- llama2.c's tokenizer.bin
namespace {
// The library's model file is a protocol buffer (sentencepiece_model.proto, field numbers there).
// Of its format only this much is needed: integers, floats and lengths.
class ProtoWriter {
  public:
    void integer(int field, int64_t value) {
        varint(uint64_t(field) << 3);
        varint(uint64_t(value));
    }
    void real(int field, float value) {
        varint(uint64_t(field) << 3 | 5);
        out_.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    void bytes(int field, const std::string& value) {
        varint(uint64_t(field) << 3 | 2);
        varint(value.size());
        out_ += value;
    }
    const std::string& str() const { return out_; }

  private:
    void varint(uint64_t v) {
        for (; v >= 0x80; v >>= 7) out_ += char(v | 0x80);
        out_ += char(v);
    }
    std::string out_;
};

constexpr int kUnknown = 0, kBos = 1, kEos = 2, kFirstByte = 3;  // ids in llama2.c's files

std::string piece_proto(int id, std::string text, float score) {
    enum { Normal = 1, Unknown = 2, Control = 3, Byte = 6 };
    int kind = Normal;
    if (id == kUnknown) kind = Unknown, text = "<unk>";
    if (id == kBos) kind = Control, text = "<s>";
    if (id == kEos) kind = Control, text = "</s>";
    if (id >= kFirstByte && id < kFirstByte + 256) kind = Byte;
    std::string piece;
    for (char c : text) piece += c == ' ' ? kSpaceSign : std::string(1, c);
    ProtoWriter w;
    w.bytes(1, piece), w.real(2, score), w.integer(3, kind);
    return w.str();
}
}  // namespace

bool llama2c_tokenizer_is(const std::string& file) {
    // The longest token's length, then a score and the length of "<unk>".
    int32_t longest = 0, first = 0;
    if (file.size() < 17) return false;
    std::memcpy(&longest, file.data(), 4);
    std::memcpy(&first, file.data() + 8, 4);
    return longest > 0 && longest < 1024 && first == 5 && file.compare(12, 5, "<unk>") == 0;
}

std::string llama2c_tokenizer_model(const std::string& file, const std::string& where) {
    ProtoWriter model;
    size_t at = 4;
    int id = 0;
    for (; at < file.size(); id++) {
        float score;
        int32_t length = -1;
        if (file.size() - at >= 8) {
            std::memcpy(&score, file.data() + at, 4);
            std::memcpy(&length, file.data() + at + 4, 4);
        }
        CHECK(length > 0 && size_t(length) <= file.size() - at - 8, Exit::Damaged,
              "damaged tokenizer " + where, str("token ", id, " at byte offset ", at));
        model.bytes(1, piece_proto(id, file.substr(at + 8, size_t(length)), score));
        at += 8 + size_t(length);
    }
    CHECK(id > kFirstByte + 256, Exit::Damaged, "damaged tokenizer " + where, counted(id, "token"),
          "three special tokens, 256 bytes and more");
    ProtoWriter trainer, normalizer;
    trainer.integer(3, 2);   // kind: BPE
    trainer.integer(4, id);  // size
    trainer.integer(35, 1);  // bytes for what has no piece
    normalizer.bytes(1, "identity");
    normalizer.integer(3, 1);  // a space before the text
    normalizer.integer(4, 0);  // spaces stay
    normalizer.integer(5, 1);  // as the sign for a space
    model.bytes(2, trainer.str()), model.bytes(3, normalizer.str());
    return model.str();
}

// ---- the tokenizer
#ifdef LLMC_SENTENCEPIECE
namespace {
struct SentencePieceModel {
    std::string serialized;
    sentencepiece::SentencePieceProcessor processor;
    Vocabulary vocab;
};

class SentencePieceTokenizer : public Tokenizer {
  public:
    explicit SentencePieceTokenizer(std::shared_ptr<const SentencePieceModel> model)
        : Tokenizer({model, &model->vocab}), model_(model) {}
    // A space goes before every text, so two parts never encode as the whole does.
    size_t safe_cut(std::string_view) const override { return 0; }
    std::string json() const override {
        return nlohmann::json{{"version", "1.0"},
                              {"model",
                               {{"type", "SentencePiece"},
                                {"model_base64", base64_encode(model_->serialized)}}}}
                   .dump() +
               "\n";
    }
    std::unique_ptr<Tokenizer> clone() const override {
        return std::make_unique<SentencePieceTokenizer>(model_);
    }

  protected:
    void encode_ordinary(std::string_view text, bool, std::vector<int>& ids) override {
        std::vector<int> found;
        const auto status = model_->processor.Encode({text.data(), text.size()}, &found);
        CHECK(status.ok(), Exit::Damaged, "sentencepiece cannot encode", status.ToString());
        ids.insert(ids.end(), found.begin(), found.end());
    }

  private:
    std::shared_ptr<const SentencePieceModel> model_;
};

std::string piece_bytes(const sentencepiece::SentencePieceProcessor& p, int id) {
    const std::string piece = p.IdToPiece(id);
    if (p.IsByte(id)) return std::string(1, char(std::stoi(piece.substr(3, 2), nullptr, 16)));
    if (p.IsControl(id) || p.IsUnknown(id)) return "";
    return with_spaces(piece);
}
}  // namespace

std::unique_ptr<Tokenizer> sentencepiece_tokenizer(std::string serialized,
                                                   const std::string& where) {
    auto model = std::make_shared<SentencePieceModel>();
    model->serialized = std::move(serialized);
    auto& p = model->processor;
    const auto status = p.LoadFromSerializedProto(model->serialized);
    CHECK(status.ok(), Exit::Damaged, "not a sentencepiece model: " + where, status.ToString());
    for (int id = 0; id < p.GetPieceSize(); id++) {
        model->vocab.bytes.push_back(piece_bytes(p, id));
        if (p.IsControl(id)) model->vocab.specials.emplace_back(p.IdToPiece(id), id);
    }
    std::vector<int> probe;
    CHECK(p.Encode("a", &probe).ok() && !probe.empty(), Exit::Damaged,
          "not a sentencepiece model: " + where);
    model->vocab.space_before_text = model->vocab.bytes[size_t(probe[0])].starts_with(' ');
    model->vocab.eot = p.bos_id() >= 0 ? p.bos_id() : p.eos_id();
    CHECK(model->vocab.eot >= 0, Exit::Usage,
          "a sentencepiece model without <s> and </s>: " + where);
    if (p.eos_id() >= 0) model->vocab.ends = {p.eos_id()};
    model->vocab.name = str("sentencepiece-", p.GetPieceSize());
    return std::make_unique<SentencePieceTokenizer>(model);
}
#else
std::unique_ptr<Tokenizer> sentencepiece_tokenizer(std::string, const std::string& where) {
    fail(Exit::Usage, "this build has no sentencepiece, which reads " + where, "", "",
         "the Debian package libsentencepiece-dev, then make");
}
#endif
