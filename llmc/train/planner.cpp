#include "llmc/train/planner.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "llmc/core/check.h"
#include "llmc/core/plural.h"
#include "llmc/model/decode.h"
#include "llmc/model/gpt.h"
#include "llmc/train/device.h"
#include "llmc/train/progress.h"
#include "llmc/train/run.h"
#include "llmc/train/saver.h"
#include "llmc/train/saves.h"

SamplingRoom sampling_room(const Options& opt, const ModelConfig& cfg) {
    if (opt.sample_every <= 0) return {0, 0};
    // A prompt has at most as many tokens as bytes, plus the end-of-text before it.
    const int prompt = int(std::min<size_t>(opt.prompt.size() + 1, size_t(cfg.max_T)));
    return {std::min(cfg.max_T, prompt + opt.sample_tokens), std::min(prompt, 64)};
}

MemoryPlan plan_memory(const Options& opt, const ModelConfig& cfg) {
    const std::unique_ptr<Comm> dp = comm_absent(opt.ranks);
    MemoryPlan plan;
    on_device(opt, [&]<class Elem, class Stream>() {
        Memory<Stream> memory(Stream{}, MemoryMode::Measure);
        Shards<Elem, Stream>(param_layout(cfg), shards_config(opt), *dp, memory);
        gpt_create<Elem>(cfg, opt.micro_batch, opt.seq_len, opt.recompute, false, memory);
        if (const SamplingRoom room = sampling_room(opt, cfg); room.capacity)
            Decoder<Elem, Stream>(cfg, room.capacity, room.batch, memory);
        snapshot_create(opt, cfg, memory);
        plan = memory.plan();
        return Exit::Done;
    });
    return plan;
}

std::string bytes_text(int64_t bytes) {
    const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double x = double(bytes);
    int unit = 0;
    while (x >= 1024 && unit < 4) x /= 1024, unit++;
    char text[32];
    std::snprintf(text, sizeof text, unit ? "%.2f %s" : "%.0f %s", x, units[unit]);
    return text;
}

void plan_print(const Options& opt, const ModelConfig& cfg, const Tokenizer* tokenizer) {
    const MemoryPlan plan = plan_memory(opt, cfg);
    const ParamLayout layout = param_layout(cfg);
    const CheckpointMeta meta = checkpoint_meta("", {}, opt, cfg, tokenizer, World());
    const CheckpointBytes disk =
        checkpoint_bytes(planned_pieces(layout, shards_config(opt), opt.ranks), meta);

    std::printf("model %s: %s parameters, %s, width %d, %s, vocabulary %s (%s with padding)\n",
                cfg.name.c_str(), grouped(layout.count).c_str(), counted(cfg.L, "layer").c_str(),
                cfg.C, counted(cfg.H, "head").c_str(), grouped(cfg.V).c_str(),
                grouped(cfg.Vp).c_str());
    std::printf("step: %s\n\n", step_text(opt).c_str());
    std::printf("%-14s %-36s %16s\n", "memory", "", "bytes a rank");
    std::string kind;
    for (const MemoryRow& row : plan.rows) {
        std::printf("%-14s %-36s %16s\n", row.kind == kind ? "" : row.kind.c_str(),
                    row.name.c_str(), grouped(row.bytes).c_str());
        kind = row.kind;
    }
    std::printf("\n");
    for (const std::string& k : plan.kinds())
        if (k != "host" && plan.total(k))
            std::printf("total %-45s %16s   %s\n", k.c_str(), grouped(plan.total(k)).c_str(),
                        bytes_text(plan.total(k)).c_str());
    std::printf("total %-45s %16s   %s\n", "memory", grouped(plan.total()).c_str(),
                bytes_text(plan.total()).c_str());
    if (plan.total("host"))
        std::printf("total %-45s %16s   %s\n", "host memory beside it",
                    grouped(plan.total("host")).c_str(), bytes_text(plan.total("host")).c_str());
    std::printf("total %-45s %16s   %s\n", "one checkpoint on disk (at most)",
                grouped(disk.total()).c_str(), bytes_text(disk.total()).c_str());
}
