#include "llmc/io/manifest.h"

#include <algorithm>
#include <cstdio>
#include <initializer_list>
#include <set>

#include "llmc/core/check.h"
#include "llmc/core/plural.h"
#include "llmc/io/json_integer.h"

using nlohmann::json;

static constexpr const char* FORMAT = "train_gpt checkpoint";
static constexpr int VERSION = 1;
static constexpr int DEPTH_LIMIT = 32;

std::string shard_name(int rank) {
    char name[32];
    std::snprintf(name, sizeof name, "shards/rank-%05d.h5", rank);
    return name;
}

int64_t shape_count(const std::vector<int64_t>& shape) {
    CHECK(!shape.empty() && shape.size() <= 8, Exit::Damaged, "a tensor's number of dimensions",
          str(shape.size()), "1 to 8");
    int64_t n = 1;
    for (int64_t d : shape) {
        CHECK(d > 0 && d <= (int64_t(1) << 60) / n, Exit::Damaged, "a tensor's dimension", str(d),
              "at least 1, and at most 2^60 elements in all");
        n *= d;
    }
    return n;
}

bool name_is_plain(const std::string& name) {
    const auto plain = [](unsigned char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '.' || c == '_' || c == '-';
    };
    return !name.empty() && name.size() <= 128 && name[0] != '.' &&
           std::all_of(name.begin(), name.end(), plain);
}

bool group_is_known(const std::string& group) {
    return group == "weights" || group == "master" || group == "m" || group == "v";
}

static std::string hash_text(const TensorHash& h) {
    return hex128(h.a, h.b);
}

std::string manifest_state(const std::vector<ManifestTensor>& tensors) {
    std::string lines;
    for (const ManifestTensor& t : tensors) {
        lines += str(t.group, "/", t.name, " ", dtype_name(t.dtype));
        for (int64_t d : t.shape) lines += str(" ", d);
        lines += str(" ", hash_text(t.hash), "\n");
    }
    return digest_bytes(lines.data(), lines.size());
}

static void check_files(const Manifest& m) {
    const int shards = int(m.files.size()) - 1;
    CHECK(shards >= 1 && shards <= 99999, Exit::Damaged, "the manifest's list of files",
          str(m.files.size()), "one file a rank, then model.h5");
    for (int i = 0; i <= shards; i++) {
        const std::string expected = i < shards ? shard_name(i) : VIEW_FILE;
        CHECK(m.files[i].name == expected, Exit::Damaged, "a file name in the manifest",
              m.files[i].name, expected);
    }
}

static void check_tensor(const ManifestTensor& t, int shards) {
    const std::string full = t.group + "/" + t.name;
    CHECK(group_is_known(t.group) && name_is_plain(t.name), Exit::Damaged,
          "a tensor's name in the manifest", full,
          "weights, master, m or v, then letters, digits, '.', '_', '-'");
    CHECK(t.dtype == Dtype::F32 || t.dtype == Dtype::BF16, Exit::Damaged,
          str("the element type of ", full), dtype_name(t.dtype), "fp32 or bf16");
    const int64_t n = shape_count(t.shape);
    int64_t end = 0;
    for (const ManifestPiece& p : t.pieces) {
        CHECK(p.file >= 0 && p.file < shards, Exit::Damaged, str("a piece of ", full),
              str("file number ", p.file), str("0 to ", shards - 1));
        CHECK(p.offset == end && p.count >= 1 && p.count <= n - end, Exit::Damaged,
              str("the pieces of ", full, " do not tile it"),
              str("a piece of ", p.count, " at element ", p.offset),
              str("one that starts at ", end, ", of ", n, " in all"));
        end += p.count;
    }
    CHECK(end == n, Exit::Damaged, str("the pieces of ", full, " do not tile it"),
          str("an end at element ", end), str(n));
}

void manifest_check(const Manifest& m) {
    CHECK(m.meta.step >= 0 && m.meta.step <= 9'999'999'999 && m.meta.tokens >= 0, Exit::Damaged,
          "the step or token count of the manifest", str(m.meta.step, ", ", m.meta.tokens),
          "0 to 9999999999, not negative");
    check_files(m);
    const ManifestTensor* last = nullptr;
    for (const ManifestTensor& t : m.tensors) {
        check_tensor(t, int(m.files.size()) - 1);
        CHECK(!last || std::pair(last->group, last->name) < std::pair(t.group, t.name),
              Exit::Damaged, "the order of tensors in the manifest", t.group + "/" + t.name,
              "ascending by group and name, each once");
        last = &t;
    }
    CHECK(manifest_state(m.tensors) == m.state, Exit::Damaged, "the state hash of the manifest",
          m.state, manifest_state(m.tensors));
}

// ---- writing

// The file starts with its own digest, taken over the text with 32 zeros in its place.
static const std::string HEAD = "{\"digest\":\"";

std::string manifest_text(const Manifest& m) {
    json files = json::array(), tensors = json::array();
    for (const ManifestFile& f : m.files)
        files.push_back({{"name", f.name}, {"bytes", f.bytes}, {"digest", f.digest}});
    for (const ManifestTensor& t : m.tensors) {
        json pieces = json::array();
        for (const ManifestPiece& p : t.pieces)
            pieces.push_back({{"file", p.file}, {"offset", p.offset}, {"count", p.count}});
        tensors.push_back({{"group", t.group},
                           {"name", t.name},
                           {"dtype", dtype_name(t.dtype)},
                           {"shape", t.shape},
                           {"hash", hash_text(t.hash)},
                           {"pieces", pieces}});
    }
    const json body = {
        {"format", FORMAT},      {"version", VERSION},      {"run_id", m.meta.run_id},
        {"step", m.meta.step},   {"tokens", m.meta.tokens}, {"model", m.meta.model},
        {"train", m.meta.train}, {"layout", m.meta.layout}, {"state", m.state},
        {"files", files},        {"tensors", tensors}};
    return manifest_seal(body);
}

std::string manifest_seal(const json& body) {
    // Text that is not UTF-8 (a path, say) is replaced rather than failing the save.
    const std::string dump = body.dump(-1, ' ', false, json::error_handler_t::replace);
    std::string text = HEAD + std::string(32, '0') + "\",\n" + dump.substr(1) + "\n";
    text.replace(HEAD.size(), 32, digest_bytes(text.data(), text.size()));
    return text;
}

// ---- reading

static void check_digest(const std::string& text, const std::string& where) {
    CHECK(text.size() > HEAD.size() + 34 && text.compare(0, HEAD.size(), HEAD) == 0, Exit::Damaged,
          str(where, " is no manifest"),
          str(counted(int64_t(text.size()), "byte"), " that start otherwise"), HEAD + "...");
    std::string blank = text;
    blank.replace(HEAD.size(), 32, std::string(32, '0'));
    const std::string is = digest_bytes(blank.data(), blank.size());
    CHECK(text.compare(HEAD.size(), 32, is) == 0, Exit::Damaged, str("the digest of ", where), is,
          text.substr(HEAD.size(), 32));
}

static json parse_json(const std::string& text, const std::string& where) {
    const auto shallow = [&](int depth, json::parse_event_t, json&) {
        CHECK(depth <= DEPTH_LIMIT, Exit::Damaged, str(where, " is nested too deeply"),
              str(depth, " levels"), str("at most ", DEPTH_LIMIT));
        return true;
    };
    try {
        return json::parse(text, shallow);
    } catch (const json::exception& e) {
        fail(Exit::Damaged, str(where, " is not JSON"), e.what());
    }
}

// An object with exactly these keys: one more could mean something that we would ignore.
static void check_keys(const json& object, const std::string& what,
                       std::initializer_list<const char*> keys) {
    CHECK(object.is_object(), Exit::Damaged, str(what, " of the manifest"), object.type_name(),
          "an object");
    for (const char* key : keys)
        CHECK(object.contains(key), Exit::Damaged, str(what, " of the manifest"), "no such field",
              key);
    const std::set<std::string> known(keys.begin(), keys.end());
    for (const auto& item : object.items())
        CHECK(known.count(item.key()), Exit::Damaged, str(what, " of the manifest"),
              str("unknown field '", item.key(), "'"));
}

static int64_t to_int(const json& v, const char* key) {
    CHECK(json_is_integer(v, INT64_MIN), Exit::Damaged, str("field '", key, "' of the manifest"),
          v.dump(), "an integer");
    return v.get<int64_t>();
}

static int64_t get_int(const json& object, const char* key) {
    return to_int(object.at(key), key);
}

static std::string get_text(const json& object, const char* key) {
    const json& v = object.at(key);
    CHECK(v.is_string(), Exit::Damaged, str("field '", key, "' of the manifest"), v.type_name(),
          "a string");
    return v.get<std::string>();
}

static const json& get_array(const json& object, const char* key) {
    const json& v = object.at(key);
    CHECK(v.is_array(), Exit::Damaged, str("field '", key, "' of the manifest"), v.type_name(),
          "an array");
    return v;
}

static std::string get_hex(const json& object, const char* key) {
    const std::string text = get_text(object, key);
    CHECK(text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string::npos,
          Exit::Damaged, str("field '", key, "' of the manifest"), text, "32 hexadecimal digits");
    return text;
}

static ManifestTensor parse_tensor(const json& j) {
    check_keys(j, "a tensor", {"group", "name", "dtype", "shape", "hash", "pieces"});
    ManifestTensor t;
    t.group = get_text(j, "group");
    t.name = get_text(j, "name");
    const std::string dtype = get_text(j, "dtype");
    CHECK(dtype == dtype_name(Dtype::F32) || dtype == dtype_name(Dtype::BF16), Exit::Damaged,
          str("the element type of ", t.group, "/", t.name), dtype, "fp32 or bf16");
    t.dtype = dtype == dtype_name(Dtype::F32) ? Dtype::F32 : Dtype::BF16;
    for (const json& d : get_array(j, "shape")) t.shape.push_back(to_int(d, "shape"));
    const std::string hash = get_hex(j, "hash");
    t.hash.a = std::stoull(hash.substr(0, 16), nullptr, 16);
    t.hash.b = std::stoull(hash.substr(16), nullptr, 16);
    for (const json& p : get_array(j, "pieces")) {
        check_keys(p, "a piece", {"file", "offset", "count"});
        const int64_t file = get_int(p, "file");
        t.pieces.push_back({file >= 0 && file < 100000 ? int(file) : -1, get_int(p, "offset"),
                            get_int(p, "count")});
    }
    return t;
}

Manifest manifest_parse(const std::string& text, const std::string& where) {
    check_digest(text, where);
    const json j = parse_json(text, where);
    CHECK(j.is_object() && j.contains("format") && j["format"] == FORMAT && j.contains("version") &&
              j["version"].is_number_integer(),
          Exit::Damaged, str(where, " is no manifest of a checkpoint"));
    // Whole and intact, but not ours to judge: not damage, and not to be passed over in silence.
    CHECK(j["version"] == VERSION, Exit::Usage, str(where, " has an unknown version"),
          j["version"].dump(), str(VERSION), "use the train_gpt that wrote it, or move it away");
    check_keys(j, "the top level",
               {"digest", "format", "version", "run_id", "step", "tokens", "model", "train",
                "layout", "state", "files", "tensors"});
    Manifest m;
    m.meta.run_id = get_text(j, "run_id");
    m.meta.step = get_int(j, "step");
    m.meta.tokens = get_int(j, "tokens");
    m.meta.model = j["model"], m.meta.train = j["train"], m.meta.layout = j["layout"];
    m.state = get_hex(j, "state");
    for (const json& f : get_array(j, "files")) {
        check_keys(f, "a file", {"name", "bytes", "digest"});
        m.files.push_back({get_text(f, "name"), get_int(f, "bytes"), get_hex(f, "digest")});
    }
    for (const json& t : get_array(j, "tensors")) m.tensors.push_back(parse_tensor(t));
    manifest_check(m);
    return m;
}
