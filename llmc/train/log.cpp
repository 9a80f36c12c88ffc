// llmc/train/log.cpp: the two voices of a run, console and log.jsonl.
#include "llmc/train/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "llmc/core/check.h"

// Keys in the order of writing; floats as floats, so that the shortest text which returns the exact
// float is written. The library writes null for what is not finite.
using LogJson = nlohmann::basic_json<nlohmann::ordered_map, std::vector, std::string, bool, int64_t,
                                     uint64_t, float>;

double flops_per_token(const ModelConfig& c, int T) {
    const double attention = double(c.C) * c.QKV() + double(c.A()) * c.C;
    const double mlp = double(c.C) * (c.FC() + c.F), head = double(c.V) * c.C;
    return 6 * (c.L * (attention + mlp) + head) + 12.0 * c.L * c.A() * T;
}

namespace {

// The step of a complete line of ours, or -1.
int64_t line_step(const std::string& line) {
    const LogJson json = LogJson::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) return -1;
    return json["step"].get<int64_t>();
}

// Keeps the lines up to `resume_step`; a new run (-1) keeps none.
void drop_lines(const std::string& path, int resume_step) {
    std::ifstream in(path, std::ios::binary);
    if (!in) return;
    std::string kept;
    bool dropped = false, first = true;
    for (std::string line; std::getline(in, line); first = false) {
        const bool torn = in.eof();  // no newline at its end
        const int64_t step = torn ? -1 : line_step(line);
        CHECK(!first || torn || step >= 0, Exit::Usage, path + " is not a log of train_gpt",
              "'" + line.substr(0, 40) + "'", "lines like {\"step\":1,...}",
              "choose another --out, or move the file away");
        if (step >= 0 && step <= resume_step)
            kept += line + "\n";
        else
            dropped = true;
    }
    if (dropped) file_replace(path, kept);
}

const char* colour(const char* code) {
    static const bool wanted = colours_wanted(STDOUT_FILENO);
    return wanted ? code : "";
}
const char *const kPlain = "\033[0m", *const kBold = "\033[1m", *const kDim = "\033[2m",
                  *const kGreen = "\033[32m", *const kYellow = "\033[33m";

}  // namespace

Log::Log(const LogSetup& setup) : setup_(setup), path_(setup.dir + "/log.jsonl") {
    if (!setup_.speaks) return;
    drop_lines(path_, setup_.resume_step);
    file_ = Fd(open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
    CHECK(file_ >= 0, Exit::Usage, "cannot write " + path_, std::strerror(errno));
}

void Log::sync() {
    if (file_ >= 0) fsync(file_);
}

// A full disk must not end the training: it is said once, and half a line is taken back.
void Log::append(const std::string& line) {
    const off_t end = lseek(file_, 0, SEEK_END);
    try {
        write_all(file_, line + "\n", path_);
        write_failed_ = false;
    } catch (const Error& e) {
        (void)!ftruncate(file_, end);
        if (!write_failed_) {
            progress_clear();
            std::fprintf(stderr, "warning: %s; training goes on\n", e.what());
        }
        write_failed_ = true;
    }
}

void Log::step(const StepReport& r) {
    if (!setup_.speaks) return;
    const double tokens_per_s = r.ms > 0 ? double(r.step_tokens) * 1000 / r.ms : 0;
    LogJson json{{"step", r.step},    {"loss", r.loss},    {"grad_norm", r.grad_norm},
                 {"lr", r.lr},        {"ms", float(r.ms)}, {"tokens_per_s", float(tokens_per_s)},
                 {"tokens", r.tokens}};
    char comm[64] = "";
    if (r.comm_exposed_ms >= 0) {
        json["comm_hidden_ms"] = float(r.comm_hidden_ms);
        json["comm_exposed_ms"] = float(r.comm_exposed_ms);
        std::snprintf(comm, sizeof comm, " | comm %.0f ms hidden, %.0f exposed", r.comm_hidden_ms,
                      r.comm_exposed_ms);
    }
    append(json.dump());

    ms_smooth_ = ms_smooth_ == 0 ? r.ms : 0.9 * ms_smooth_ + 0.1 * r.ms;
    char mfu[16] = "n/a";
    if (setup_.peak_flops > 0)
        std::snprintf(mfu, sizeof mfu, "%.1f%%",
                      100 * tokens_per_s * setup_.flops_per_token / setup_.peak_flops);
    progress_clear();
    std::printf(
        "step %*d/%d | loss %.4f | norm %.3f | lr %.2e | %.0f ms%s | %s tok/s | MFU %s | "
        "ETA %s\n",
        int(std::to_string(setup_.steps).size()), r.step, setup_.steps, r.loss, r.grad_norm, r.lr,
        r.ms, comm, grouped(std::llround(tokens_per_s)).c_str(), mfu,
        duration_text(ms_smooth_ / 1000 * (setup_.steps - r.step)).c_str());
    std::fflush(stdout);
    if (!bar_) bar_ = std::make_unique<Progress>("training", setup_.steps);
    bar_->update(r.step);
}

void Log::validation(int step, float val_loss) {
    if (!setup_.speaks) return;
    append(LogJson{{"step", step}, {"val_loss", val_loss}}.dump());
    progress_clear();
    std::printf("%sstep %*d/%d | val loss %.4f%s\n", colour(kGreen),
                int(std::to_string(setup_.steps).size()), step, setup_.steps, val_loss,
                colour(kPlain));
    std::fflush(stdout);
}

void Log::event(int step, const std::string& name, const LogFields& fields,
                const std::string& text) {
    if (!setup_.speaks) return;
    LogJson json{{"step", step}, {"event", name}};
    for (const auto& [key, value] : fields)
        json[key] = std::visit([](const auto& v) { return LogJson(v); }, value);
    append(json.dump(-1, ' ', false, LogJson::error_handler_t::replace));
    progress_clear();
    std::printf("%sstep %*d/%d | %s%s\n", colour(name == "skip" ? kYellow : kDim),
                int(std::to_string(setup_.steps).size()), step, setup_.steps, text.c_str(),
                colour(kPlain));
    std::fflush(stdout);
}

void Log::sample(int step, const std::string& text) {
    if (!setup_.speaks) return;
    LogJson json{{"step", step}, {"event", "sample"}, {"text", text}};
    append(json.dump(-1, ' ', false, LogJson::error_handler_t::replace));
    progress_clear();
    std::printf("%s---- a sample at step %d%s\n%s\n%s----%s\n", colour(kDim), step, colour(kPlain),
                text.c_str(), colour(kDim), colour(kPlain));
    std::fflush(stdout);
}

void table_print(const std::string& title,
                 const std::vector<std::pair<std::string, std::string>>& rows) {
    size_t width = 0;
    for (const auto& [name, text] : rows) width = std::max(width, name.size());
    progress_clear();
    std::printf("%s%s%s\n", colour(kBold), title.c_str(), colour(kPlain));
    for (const auto& [name, text] : rows)
        std::printf("  %-*s  %s\n", int(width), name.c_str(), text.c_str());
    std::fflush(stdout);
}
