#include "llmc/train/alike.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <vector>

#include "llmc/core/check.h"
#include "llmc/core/hash.h"
#include "llmc/core/plural.h"
#include "llmc/io/checkpoint_agree.h"
#include "llmc/train/options_table.h"
#include "llmc/train/version.h"

constexpr size_t kSample = 1024;  // elements of a tensor

void check_alike(const std::string& mine, World& world) {
    if (world.size == 1) return;
    const std::vector<std::string> all = gather_text(*world.dp, mine);
    for (size_t r = 1; r < all.size(); r++) {
        std::istringstream root(all[0]), other(all[r]);
        for (std::string a, b; all[r] != all[0];) {
            if (!std::getline(root, a)) a = "nothing more";
            if (!std::getline(other, b)) b = "nothing more";
            CHECK(a == b, Exit::Usage,
                  str("rank ", r, " was started with something else than rank 0"), b, a,
                  "the same program, options and files on every rank");
        }
    }
}

static std::string file_digest(const char* path) {
    std::ifstream file(path, std::ios::binary);
    Digest digest;
    std::vector<char> piece(1 << 20);
    while (file.read(piece.data(), std::streamsize(piece.size())), file.gcount() > 0)
        digest.update(piece.data(), size_t(file.gcount()));
    return digest.hex();
}

void check_started_alike(const Options& opt, World& world) {
    if (world.size == 1) return;
    std::string program = version_text();
    std::replace(program.begin(), program.end(), '\n', ' ');
    std::string mine =
        str("program = ", program, ", digest ", file_digest("/proc/self/exe"),
            "\ncommand = ", command_name(opt.command), opt.answered ? ", --help or --version" : "");
    for (const OptionRow& row : option_table())
        if (row.belongs_to(opt.command) && row.name != "threads")
            mine += str("\n", row.positional() ? "" : "--", row.name, " = ", row.get(opt));
    check_alike(mine, world);
}

void check_device_alike(const Options& opt, World& world) {
    check_alike(str("device = ", opt.device == Device::Cuda ? "cuda" : "cpu"), world);
}

std::string alike_lines(const TokenFiles& data) {
    std::string lines;
    for (const TokenShard& s : data.shards())
        lines += str("\n", s.path(), " = ", counted(s.tokens(), "token"), ", ", s.fingerprint());
    return lines;
}

std::string alike_line(const std::string& path, const ModelFile& model) {
    Digest digest;
    std::vector<float> values(kSample);
    for (const ParamBlock& block : model.layout.blocks)
        for (const ParamTensor& t : block.tensors) {
            const int64_t n = std::min(t.count(), int64_t(kSample));
            model.read(t, 0, n, values.data());
            digest.update(values.data(), size_t(n) * sizeof(float));
        }
    return str("\n", path, " = weights ", digest.hex());
}
