// llmc/io/tokenizer_json.cpp: Hugging Face's tokenizer.json, of the kinds that GPT-2, LLaMA 2,
// LLaMA 3 and Qwen have.
//
// The file describes a pipeline: added tokens are found, a normalizer changes the text between
// them, a pre-tokenizer cuts it, the model merges, a post-processor adds what begins a text. Files
// come from anywhere: every id and every merge is checked, and a setting that would change ids and
// that we do not have is refused by name, a field that we do not know too.
#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "llmc/core/check.h"
#include "llmc/io/tokenizer_builder.h"
#include "llmc/io/tokenizer_sentencepiece.h"

using nlohmann::json;

namespace {

// What the parts around the model say.
class Pipeline {
  public:
    Pipeline(const json& file, const std::string& where) : file_(file), where_(where) {
        fields("", file_,
               {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                "post_processor", "decoder", "model"});
        for (const char* name : {"truncation", "padding"})
            need(field(file_, name).is_null(), name, field(file_, name), "null");
        read_model();
        if (rules.characters)
            read_characters();
        else
            read_bytes();
        read_post_processor();
        read_decoder();
    }

    BpeRules rules;
    std::string bos;              // the special token that begins a text; empty: none
    bool strips_a_space = false;  // decoding does, at its beginning

    // The file's list of added tokens, each to one of the builder's lists.
    void add_tokens(BpeBuilder& builder) {
        for (const json& token : file_.value("added_tokens", json::array())) {
            fields("added_tokens", token,
                   {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
            const std::string text = token.at("content");
            for (const char* name : {"single_word", "lstrip", "rstrip"})
                need(token.value(name, false) == false, str(name, " of ", text), true, "false");
            need(!token.value("normalized", false) || field(file_, "normalizer").is_null(),
                 "normalized of " + text, true, "false");
            if (token.value("special", true)) {
                builder.special(text, token.at("id"));
            } else {
                builder.added(text, token.at("id"));
                // A cut must not fall into it.
                if (text.find_first_of(" \t\r\n") != text.npos) rules.safe_cut = nullptr;
            }
            if (text == bos) builder.vocab().eot = token.at("id");
        }
        need(bos.empty() || builder.vocab().eot >= 0, "post_processor token", bos,
             "one of added_tokens");
        builder.vocab().space_before_text = strips_a_space;
    }

    // Is it all in what bpe_to_json writes?
    bool plain() const {
        return !rules.characters && !rules.nfc && !rules.whole_pieces && bos.empty() &&
               rules.pattern == kGpt2Pattern;
    }

  private:
    void need(bool ok, const std::string& name, const json& found, const char* expected) const {
        CHECK(ok, Exit::Usage, "unsupported kind of tokenizer: " + where_,
              name + " " + found.dump().substr(0, 300), name + " " + expected,
              "byte pair encoding as in GPT-2, LLaMA and Qwen is supported");
    }
    static json field(const json& object, const char* name) { return object.value(name, json()); }
    // Names what an object has besides these fields.
    void fields(const std::string& part, const json& object,
                std::initializer_list<std::string> known) const {
        for (const auto& [key, value] : object.items())
            need(std::count(known.begin(), known.end(), key), part.empty() ? key : part + " " + key,
                 value, "is no field that we know");
    }
    // The members of a part that may be a sequence, one thing or nothing.
    static std::vector<json> members(const json& part, const char* list) {
        if (part.is_null()) return {};
        if (part.value("type", "") != "Sequence") return {part};
        return part.at(list).get<std::vector<json>>();
    }
    static bool is(const json& part, const char* type) { return part.value("type", "") == type; }

    void read_model() {
        const json& model = file_.at("model");
        fields("model", model,
               {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
        const json type = model.value("type", json("BPE"));
        need(type == "BPE", "model type", type, "BPE");
        rules.characters = model.value("byte_fallback", false);
        rules.whole_pieces = model.value("ignore_merges", false);
        for (const char* name :
             {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"}) {
            // What has no token is spelt in bytes: a token for the unknown is never used.
            if (rules.characters && name == std::string("unk_token")) continue;
            const json value = field(model, name);
            need(value.is_null() || value == "", name, value, "null");
        }
    }

    // GPT-2, LLaMA 3, Qwen.
    void read_bytes() {
        const json normalizer = field(file_, "normalizer");
        rules.nfc = normalizer == json{{"type", "NFC"}};
        need(normalizer.is_null() || rules.nfc, "normalizer", normalizer, "null or NFC");
        if (rules.nfc) nfc_check(where_);

        const json all = field(file_, "pre_tokenizer");
        const std::vector<json> parts = members(all, "pretokenizers");
        const bool split = parts.size() == 2 && is(parts[0], "Split");
        need(!parts.empty() && parts.size() == (split ? 2 : 1) && is(parts.back(), "ByteLevel"),
             "pre_tokenizer", all, "ByteLevel, or Split and ByteLevel");
        const json& level = parts.back();
        fields("pre_tokenizer", level, {"type", "add_prefix_space", "trim_offsets", "use_regex"});
        need(level.value("add_prefix_space", true) == false &&
                 level.value("use_regex", true) == !split,
             "pre_tokenizer", level, "without add_prefix_space; one regular expression");
        if (!split) return;

        fields("pre_tokenizer", parts[0], {"type", "pattern", "behavior", "invert"});
        const json& pattern = parts[0].at("pattern");
        need(pattern.size() == 1 && pattern.contains("Regex") &&
                 parts[0].at("behavior") == "Isolated" && parts[0].value("invert", false) == false,
             "pre_tokenizer", all, "Split by a Regex, Isolated");
        const std::string regex = pattern.at("Regex");
        rules.pattern = pattern_from_regex(regex, where_);
        rules.safe_cut = regex == kLlama3Regex || regex == kQwen2Regex ? space_safe_cut : nullptr;
    }

    // LLaMA 2, from before and after its converter learnt not to touch the text.
    void read_characters() {
        static const json sign = kSpaceSign;
        rules.pattern = "";
        rules.safe_cut = nullptr;
        const json normalizer = field(file_, "normalizer"), all = field(file_, "pre_tokenizer");
        std::vector<json> steps = members(normalizer, "normalizers");
        if (!steps.empty() && steps[0] == json{{"type", "Prepend"}, {"prepend", sign}}) {
            rules.prefix = SpacePrefix::Each;
            steps.erase(steps.begin());
        }
        const json spaces = {
            {"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", sign}};
        const bool replaces = steps.size() == 1 && steps[0] == spaces;
        need(replaces || normalizer.is_null(), "normalizer", normalizer,
             "null, or Prepend and Replace with U+2581");
        if (replaces) return need(all.is_null(), "pre_tokenizer", all, "null");

        need(is(all, "Metaspace") && all.value("replacement", "") == kSpaceSign &&
                 all.value("split", true) == false,
             "pre_tokenizer", all, "Metaspace with U+2581 and split false");
        fields("pre_tokenizer", all,
               {"type", "replacement", "add_prefix_space", "prepend_scheme", "split"});
        const std::string scheme = all.value("prepend_scheme", "always");
        need(scheme == "always" || scheme == "first" || scheme == "never", "prepend_scheme", scheme,
             "always, first or never");
        const bool adds = scheme != "never";
        need(all.value("add_prefix_space", adds) == adds, "add_prefix_space", !adds,
             "as prepend_scheme says");
        rules.prefix = scheme == "always"  ? SpacePrefix::EachUnlessThere
                       : scheme == "first" ? SpacePrefix::FirstUnlessThere
                                           : SpacePrefix::None;
    }

    // One token before the text, or none; ByteLevel changes offsets alone, which nobody asks for.
    void read_post_processor() {
        const json all = field(file_, "post_processor");
        for (const json& part : members(all, "processors")) {
            if (is(part, "ByteLevel")) continue;
            need(is(part, "TemplateProcessing"), "post_processor", all, "TemplateProcessing");
            fields("post_processor", part, {"type", "single", "pair", "special_tokens"});
            const json& single = part.at("single");
            const size_t n = single.size();
            need((n == 1 || n == 2) && single.at(n - 1).contains("Sequence") &&
                     (n == 1 || single.at(0).contains("SpecialToken")),
                 "post_processor single", single, "the text, or one special token and the text");
            if (n == 2) bos = single.at(0).at("SpecialToken").at("id");
        }
    }

    void read_decoder() {
        const json all = field(file_, "decoder");
        if (!rules.characters)
            return need(all.is_null() || is(all, "ByteLevel"), "decoder", all, "ByteLevel");
        const json spaces = {
            {"type", "Replace"}, {"pattern", {{"String", kSpaceSign}}}, {"content", " "}};
        const json strip = {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}};
        std::vector<json> steps = members(all, "decoders");
        strips_a_space = !steps.empty() && steps.back() == strip;
        if (strips_a_space) steps.pop_back();
        need(steps == std::vector<json>{spaces, {{"type", "ByteFallback"}}, {{"type", "Fuse"}}},
             "decoder", all, "Replace U+2581, ByteFallback, Fuse, perhaps Strip one space");
    }

    const json& file_;
    const std::string& where_;
};

}  // namespace

std::unique_ptr<Tokenizer> tokenizer_from_json(const std::string& text, const std::string& where) {
    const json file = tokenizer_json_parse(text, where);
    try {
        const json& bpe = file.at("model");
        if (bpe.value("type", json()) == "SentencePiece")  // our own way to keep such a model
            return sentencepiece_tokenizer(
                base64_decode(bpe.at("model_base64").get<std::string>(), where), where);
        Pipeline pipeline(file, where);
        BpeBuilder builder(where, pipeline.rules);
        for (const auto& [token, id] : bpe.at("vocab").items()) builder.token(token, id);
        for (const json& merge : bpe.at("merges")) {
            if (merge.is_array())
                builder.merge(merge.at(0).get<std::string>(), merge.at(1).get<std::string>());
            else
                builder.merge(merge.get<std::string>());
        }
        pipeline.add_tokens(builder);
        const bool plain = pipeline.plain() && builder.vocab().added.empty();
        BpeModel model = builder.finish(plain ? "" : text);
        model.rules.safe_cut = pipeline.rules.safe_cut;
        return bpe_tokenizer(std::move(model));
    } catch (const json::exception& e) {
        fail(Exit::Damaged, "not a tokenizer: " + where, e.what(), "Hugging Face's tokenizer.json");
    }
}

std::string bpe_to_json(const BpeModel& model) {
    if (!model.source.empty()) return model.source;
    // By hand and not through a JSON object, which would put the ids out of order.
    const auto& bytes = model.vocab.bytes;
    std::vector<std::string> printable(bytes.size());
    for (size_t id = 0; id < bytes.size(); id++) printable[id] = bytes_to_printable(bytes[id]);
    std::string added;
    for (const auto& [text, id] : model.vocab.specials) {
        printable[size_t(id)] = text;
        added +=
            str(added.empty() ? "\n" : ",\n", R"(    {"id": )", id, R"(, "content": )",
                json(text).dump(), R"(, "single_word": false, "lstrip": false, "rstrip": false,)",
                R"( "normalized": false, "special": true})");
    }
    std::string vocab, merges;
    for (size_t id = 0; id < bytes.size(); id++)
        vocab += str(id ? ",\n" : "\n", "      ", json(printable[id]).dump(), ": ", id);
    for (const BpeMerge& m : model.merges)
        merges += str(merges.empty() ? "\n" : ",\n", "      ",
                      json(printable[size_t(m.left)] + " " + printable[size_t(m.right)]).dump());
    const std::string level = R"({"type": "ByteLevel", "add_prefix_space": false, )"
                              R"("trim_offsets": true, "use_regex": true})";
    return "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n"
           "  \"added_tokens\": [" +
           added +
           "\n  ],\n  \"normalizer\": null,\n"
           "  \"pre_tokenizer\": " +
           level +
           ",\n  \"post_processor\": null,\n"
           "  \"decoder\": " +
           level +
           ",\n  \"model\": {\n    \"type\": \"BPE\",\n"
           "    \"dropout\": null,\n    \"unk_token\": null,\n"
           "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n"
           "    \"fuse_unk\": false,\n    \"byte_fallback\": false,\n    \"vocab\": {" +
           vocab + "\n    },\n    \"merges\": [" + merges + "\n    ]\n  }\n}\n";
}
