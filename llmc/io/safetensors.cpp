#include "llmc/io/safetensors.h"

#include <algorithm>
#include <bit>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "llmc/core/check.h"
#include "llmc/core/plural.h"
#include "llmc/core/round.h"
#include "llmc/io/json_integer.h"
#include "llmc/io/text_file.h"

namespace fs = std::filesystem;
using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "the format's numbers are little-endian");

namespace {
constexpr int64_t kMaxHeader = 100'000'000;
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kSingle = "model.safetensors";

// Bytes of an element; 0 for a type that the format does not have.
int64_t element_bytes(const std::string& dtype) {
    static const std::map<std::string, int64_t> sizes = {
        {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1},
        {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},
        {"U32", 4},  {"F32", 4}, {"I64", 8}, {"U64", 8},     {"F64", 8}};
    const auto found = sizes.find(dtype);
    return found == sizes.end() ? 0 : found->second;
}

// The types that become fp32.
std::optional<Dtype> float_dtype(const std::string& dtype) {
    if (dtype == "F32") return Dtype::F32;
    if (dtype == "BF16") return Dtype::BF16;
    if (dtype == "F16") return Dtype::F16;
    return std::nullopt;
}

json parse(const std::string& text, const std::string& where) {
    // A header is an object of objects of arrays: nothing deeper is worth the stack.
    const auto shallow = [&](int depth, json::parse_event_t, json&) {
        CHECK(depth <= 8, Exit::Damaged, where + ": JSON nested too deep");
        return true;
    };
    json j;
    try {
        j = json::parse(text, shallow);
    } catch (const json::exception& e) {
        fail(Exit::Damaged, where + ": no valid JSON", e.what());
    }
    CHECK(j.is_object(), Exit::Damaged, where + ": no JSON object");
    return j;
}

int64_t whole_number(const json& j, const std::string& where) {
    CHECK(json_is_integer(j), Exit::Damaged, where + ": not a whole number",
          j.dump().substr(0, 60));
    return j.get<int64_t>();
}

// An entry of the header. data: bytes behind the header.
SafeTensor tensor_from_json(const json& j, int file, int64_t data, const std::string& where) {
    CHECK(j.is_object() && j.size() == 3 && j.contains("dtype") && j["dtype"].is_string() &&
              j.contains("shape") && j["shape"].is_array() && j.contains("data_offsets") &&
              j["data_offsets"].is_array() && j["data_offsets"].size() == 2,
          Exit::Damaged, where + ": not a tensor's entry", j.dump().substr(0, 60),
          "dtype, shape, data_offsets");
    SafeTensor t{file, j["dtype"], {}, whole_number(j["data_offsets"][0], where), 0};
    const int64_t size = element_bytes(t.dtype), end = whole_number(j["data_offsets"][1], where);
    CHECK(size > 0, Exit::Damaged, where + ": unknown dtype", t.dtype);
    CHECK(j["shape"].size() <= 32, Exit::Damaged, where + ": too many dimensions");
    __int128 bytes = size;
    for (const json& d : j["shape"]) {
        t.shape.push_back(whole_number(d, where));
        bytes *= t.shape.back();
        CHECK(bytes <= INT64_MAX, Exit::Damaged, where + ": impossible shape", j["shape"].dump());
    }
    CHECK(t.offset <= end && end <= data, Exit::Damaged, where + ": bytes outside the file",
          str(t.offset, " to ", end), str("within ", data));
    CHECK(end - t.offset == int64_t(bytes), Exit::Damaged, where + ": size and shape differ",
          counted(end - t.offset, "byte"), counted(int64_t(bytes), "byte"));
    t.bytes = int64_t(bytes);
    return t;
}
}  // namespace

// ---- reading
void SafeTensors::add_file(const std::string& path) {
    const int index = int(paths_.size());
    files_.push_back(file_open(path));
    paths_.push_back(path);
    const int fd = files_.back();
    const int64_t size = file_size(fd, path);
    uint64_t header = 0;
    CHECK(size >= 8, Exit::Damaged, path + " is no safetensors file", counted(size, "byte"));
    read_exactly(fd, &header, 8, 0, path);
    CHECK(header <= uint64_t(std::min(kMaxHeader, size - 8)), Exit::Damaged,
          path + " is no safetensors file: impossible length of its header",
          str(header, " ", plural(int64_t(header), "byte")),
          str("at most ", std::min(kMaxHeader, size - 8)));
    std::string text(size_t(header), 0);
    read_exactly(fd, text.data(), text.size(), 8, path);

    const int64_t data = size - 8 - int64_t(header);
    std::vector<std::pair<int64_t, int64_t>> used;
    const json entries = parse(text, path);
    for (const auto& [name, entry] : entries.items()) {
        if (name == "__metadata__") continue;
        SafeTensor t = tensor_from_json(entry, index, data, path + ": " + name);
        used.emplace_back(t.offset, t.offset + t.bytes);
        t.offset += 8 + int64_t(header);
        CHECK(tensors_.emplace(name, t).second, Exit::Damaged,
              "a tensor stands in two files: " + name, path);
    }
    std::sort(used.begin(), used.end());
    int64_t at = 0;
    for (const auto& [begin, end] : used) {
        CHECK(begin == at, Exit::Damaged,
              path + (begin < at ? ": tensors overlap" : ": a hole between tensors"),
              str("byte ", begin), str("byte ", at));
        at = end;
    }
    CHECK(at == data, Exit::Damaged, path + ": bytes behind the last tensor, or too few",
          counted(data, "byte"), str(at), "an interrupted download or copy");
}

SafeTensors::SafeTensors(const std::string& path) {
    std::error_code none;
    const bool folder = fs::is_directory(path, none);
    const fs::path index = folder ? fs::path(path) / kIndex : fs::path(path);
    if (folder && !fs::exists(index, none)) {
        CHECK(fs::exists(fs::path(path) / kSingle, none), Exit::Usage,
              "no weights in the folder " + path, "", str(kSingle, " or ", kIndex));
        add_file(fs::path(path) / kSingle);
        return;
    }
    CHECK(fs::exists(index, none), Exit::Usage, "cannot read the weights", path);
    if (index.extension() != ".json") {
        add_file(path);
        return;
    }

    const fs::path dir = index.has_parent_path() ? index.parent_path() : fs::path(".");
    const json map = parse(text_file_read(index, kMaxHeader), index);
    CHECK(map.contains("weight_map") && map["weight_map"].is_object(), Exit::Damaged,
          index.string() + ": no weight_map");
    std::set<std::string> names;
    for (const auto& [tensor, file] : map["weight_map"].items()) {
        CHECK(file.is_string(), Exit::Damaged, index.string() + ": " + tensor + " has no file");
        const std::string name = file;
        CHECK(!name.empty() && name[0] != '.' && name.find('/') == std::string::npos &&
                  name.find('\0') == std::string::npos,
              Exit::Damaged, index.string() + ": not the name of a file beside it", name);
        names.insert(name);
    }
    for (const std::string& name : names) add_file(dir / name);
    for (const auto& [tensor, file] : map["weight_map"].items()) {
        const auto found = tensors_.find(tensor);
        CHECK(found != tensors_.end() && fs::path(paths_[size_t(found->second.file)]).filename() ==
                                             file.get<std::string>(),
              Exit::Damaged, index.string() + ": a tensor is not where the index says", tensor,
              file.get<std::string>());
    }
}

bool safetensor_is_float(const SafeTensor& t) {
    return float_dtype(t.dtype).has_value();
}

void SafeTensors::read(const std::string& name, int64_t first, int64_t n, float* to) const {
    const SafeTensor& t = tensors_.at(name);
    const std::string& path = paths_[size_t(t.file)];
    const std::optional<Dtype> dtype = float_dtype(t.dtype);
    CHECK(dtype, Exit::Damaged, path + ": unsupported dtype of " + name, t.dtype,
          "F32, BF16 or F16");
    CHECK(first >= 0 && n >= 0 && first + n <= t.count(), Exit::Damaged,
          path + ": elements beyond the end of " + name);
    const int64_t width = int64_t(dtype_bytes(*dtype));
    floats_read(files_[size_t(t.file)], t.offset + first * width, to, n, *dtype, path);
}

// ---- writing
static void file_write(const std::string& path, const std::vector<SafeTensorSource>& tensors,
                       Dtype dtype) {
    const int64_t width = int64_t(dtype_bytes(dtype));
    nlohmann::ordered_json header;
    header["__metadata__"] = {{"format", "pt"}};
    int64_t offset = 0;
    for (const SafeTensorSource& t : tensors) {
        const int64_t end = offset + t.count() * width;
        header[t.name] = {{"dtype", dtype == Dtype::BF16 ? "BF16" : "F32"},
                          {"shape", t.shape},
                          {"data_offsets", {offset, end}}};
        offset = end;
    }
    std::string text = header.dump();
    text.resize(round_up(text.size(), size_t(8)), ' ');  // data begin at a multiple of 8
    const uint64_t length = text.size();

    const std::string tmp = path + ".tmp";
    std::error_code none;
    fs::remove(tmp, none);
    Fd file = file_create(tmp);
    write_all(file, std::string(reinterpret_cast<const char*>(&length), 8) + text, tmp);
    int64_t at = 8 + int64_t(length);
    for (const SafeTensorSource& t : tensors) {
        floats_write(file, at, t.fill, t.count(), dtype, tmp);
        at += t.count() * width;
    }
    sync_file(file, tmp);
    file.close(tmp);
    rename_path(tmp, path);
}

void safetensors_write(const std::string& folder, const std::vector<SafeTensorSource>& tensors,
                       Dtype dtype, int64_t file_bytes) {
    // Whole tensors, in order, until a file is full.
    std::vector<std::vector<SafeTensorSource>> files(1);
    int64_t filled = 0, total = 0;
    for (const SafeTensorSource& t : tensors) {
        const int64_t bytes = t.count() * int64_t(dtype_bytes(dtype));
        if (filled > 0 && filled + bytes > file_bytes) files.emplace_back(), filled = 0;
        files.back().push_back(t);
        filled += bytes, total += bytes;
    }
    if (files.size() == 1) {
        file_write((fs::path(folder) / kSingle).string(), files[0], dtype);
    } else {
        nlohmann::ordered_json index;
        index["metadata"] = {{"total_size", total}};
        for (size_t f = 0; f < files.size(); f++) {
            char name[64];
            std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", f + 1,
                          files.size());
            file_write((fs::path(folder) / name).string(), files[f], dtype);
            for (const SafeTensorSource& t : files[f]) index["weight_map"][t.name] = name;
        }
        file_replace((fs::path(folder) / kIndex).string(), index.dump(2) + "\n");
    }
    sync_dir(folder);
}
