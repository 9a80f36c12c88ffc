// llmc/train/log.h: what a run says: lines on the console and OUT/log.jsonl for programs.
//
// A step's number is the count of optimizer steps done: the first line of a run is step 1, the
// checkpoint step-0000001200 holds the state behind line 1200, and validation before any training
// is step 0. log.jsonl has one JSON object a line:
//   {"step":12,"loss":..,"grad_norm":..,"lr":..,"ms":..,"tokens_per_s":..,"tokens":..}
//   {"step":12,"val_loss":..}
//   {"step":12,"event":"save","path":..}
// Numbers are written so that the exact float comes back; those that are not finite are null.
//
// MFU, model FLOP/s utilisation (Chowdhery et al. 2022, arXiv:2204.02311, appendix B):
//   tokens/s * flops_per_token / peak,   flops_per_token = 6 N + 12 L A T
// N counts the weights that multiply every token: the layers' matrices and the head. Forward is
// 2 N, backward twice that; attention's two T x T products are 12 L A T, causality not deducted.
// peak: device_peak_flops in device.h; n/a where it is not known.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "llmc/io/files.h"
#include "llmc/model/config.h"
#include "llmc/train/progress.h"

double flops_per_token(const ModelConfig& c, int T);

struct LogSetup {
    std::string dir;       // OUT; it exists
    int steps = 0;         // of the whole run
    int resume_step = -1;  // lines beyond it are dropped; -1: a new run, all are
    double flops_per_token = 0;
    double peak_flops = 0;  // of all devices together; 0: unknown, MFU is n/a
    bool speaks = true;     // only one rank does
};

struct StepReport {
    int step = 0;
    float loss = 0, grad_norm = 0, lr = 0;
    double ms = 0;
    int64_t step_tokens = 0;  // of this step, all ranks
    int64_t tokens = 0;       // since the start of the run
    // Communication of gradients and parameters on this rank: behind other work, and waited for.
    double comm_hidden_ms = -1, comm_exposed_ms = -1;  // -1: there is only one rank
};

using LogFields = std::vector<std::pair<std::string, std::variant<std::string, int64_t, float>>>;

class Log {
  public:
    // Opens OUT/log.jsonl for appending after dropping, atomically, a torn last line and what lies
    // beyond the resume step. Refuses a file that is no log of ours.
    explicit Log(const LogSetup& setup);
    Log(const Log&) = delete;
    Log& operator=(const Log&) = delete;

    void step(const StepReport& r);
    void validation(int step, float val_loss);
    // "save", "skip", "resume", ...: the fields go into the JSON line, the text to the console.
    void event(int step, const std::string& name, const LogFields& fields, const std::string& text);
    void sample(int step, const std::string& text);
    // Makes the lines so far survive a power loss; called before a checkpoint is published.
    void sync();

  private:
    void append(const std::string& line);

    LogSetup setup_;
    std::string path_;
    Fd file_;
    bool write_failed_ = false;
    double ms_smooth_ = 0;           // moving average, for the ETA
    std::unique_ptr<Progress> bar_;  // below the lines, on a terminal
};

// Prints rows of (name, text) as one aligned table; a row without a name continues the one above.
void table_print(const std::string& title,
                 const std::vector<std::pair<std::string, std::string>>& rows);
