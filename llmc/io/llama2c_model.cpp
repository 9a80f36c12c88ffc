#include "llmc/io/llama2c_model.h"

#include <cstdlib>

#include "llmc/core/check.h"
#include "llmc/core/plural.h"
#include "llmc/io/file_runs.h"

namespace {
constexpr int kHeaderWords = 7;

int head_size(const Llama2cHeader& h) {
    return h.C / h.H;
}

// Bytes of the file that the header promises, in 128 bits: no header can make it wrap.
__int128 file_bytes(const Llama2cHeader& h) {
    const __int128 L = h.L, C = h.C, F = h.F, V = h.V, kv = h.KV * __int128(head_size(h));
    const __int128 layer = 2 * C + 2 * C * C + 2 * kv * C + 3 * F * C;
    const __int128 angles = __int128(h.max_T) * (head_size(h) / 2) * 2;
    return 4 * (kHeaderWords + (h.tied ? 1 : 2) * V * C + L * layer + C + angles);
}
}  // namespace

Llama2cHeader llama2c_model_header(const std::string& path) {
    int32_t words[kHeaderWords] = {};
    const int64_t size = model_head_read(path, "a llama2.c model file (.bin)", words, sizeof words);
    CHECK(size >= int64_t(sizeof words), Exit::Damaged, path + " is no llama2.c model file",
          counted(size, "byte"), str("at least ", sizeof words, " bytes"));
    const bool tied = words[5] > 0;
    const int64_t V = std::abs(int64_t(words[5]));
    for (auto [name, n] : {std::pair("dim", int64_t(words[0])),
                           {"hidden_dim", words[1]},
                           {"n_layers", words[2]},
                           {"n_heads", words[3]},
                           {"n_kv_heads", words[4]},
                           {"vocab_size", V},
                           {"seq_len", words[6]}})
        CHECK(n >= 1 && n <= 1 << 24, Exit::Damaged,
              str(path, " is no model file of llama2.c, nor has it the magic number of llm.c: ",
                  name, " is out of range"),
              str(n), "1 to 16777216");
    const Llama2cHeader h{words[0], words[1], words[2], words[3], words[4], int(V), words[6], tied};
    CHECK(h.C % h.H == 0 && h.H % h.KV == 0 && head_size(h) % 2 == 0, Exit::Damaged,
          path + ": impossible sizes", str("width ", h.C, ", heads ", h.H, ", key heads ", h.KV));
    CHECK(file_bytes(h) == size, Exit::Damaged, path + ": wrong size for its header",
          counted(size, "byte"), str(double(file_bytes(h)), " bytes"),
          "an interrupted download or copy, or another kind of file");
    return h;
}

TensorSource llama2c_model_source(const std::string& path, const ParamLayout& layout) {
    const Llama2cHeader h = llama2c_model_header(path);
    FileRuns runs;
    int64_t at = kHeaderWords * 4;
    // What comes next in the file is rows first.. of the tensor in this slot of a block.
    const auto add = [&](int block, int slot, int64_t first, int64_t rows, int64_t columns) {
        for (const ParamTensor& t : layout.blocks[size_t(block)].tensors)
            if (t.slot == slot) runs[t.name].push_back({first * columns, rows * columns, at});
        at += rows * columns * int64_t(sizeof(float));
    };
    const auto add_layers = [&](int slot, int64_t first, int64_t rows, int64_t columns) {
        for (int l = 0; l < h.L; l++) add(layout.layer(l), slot, first, rows, columns);
    };
    const int64_t C = h.C, F = h.F, kv = int64_t(h.KV) * head_size(h);
    add(layout.embedding(), 0, 0, h.V, C);
    add_layers(0, 0, 1, C);        // att_norm
    add_layers(2, 0, C, C);        // wq
    add_layers(2, C, kv, C);       // wk
    add_layers(2, C + kv, kv, C);  // wv
    add_layers(4, 0, C, C);        // wo
    add_layers(6, 0, 1, C);        // ffn_norm
    add_layers(8, 0, F, C);        // w1, the gate
    add_layers(10, 0, C, F);       // w2, down
    add_layers(8, F, F, C);        // w3, up
    add(layout.head(), 0, 0, 1, C);
    at += int64_t(h.max_T) * (head_size(h) / 2) * 2 * int64_t(sizeof(float));  // angles
    if (!h.tied) add(layout.head(), 2, 0, h.V, C);
    return file_runs_source(path, std::move(runs), Dtype::F32);
}
