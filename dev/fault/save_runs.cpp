#include "dev/fault/save_runs.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <sstream>
#include <unordered_set>

#include "llmc/core/check.h"
#include "llmc/core/hash.h"
#include "llmc/io/checkpoint.h"
#include "llmc/io/checkpoint_names.h"
#include "llmc/io/checkpoint_testing.h"
#include "llmc/io/files.h"
#include "llmc/io/h5.h"
#include "llmc/io/run_lock.h"

namespace fs = std::filesystem;

std::string state_of(int64_t step) {
    static std::map<int64_t, std::string> known;
    std::string& state = known[step];
    auto comm = comm_self();
    if (state.empty()) state = checkpoint_state_hash(ToyState(step).pieces(), *comm);
    return state;
}

static int open_descriptors() {
    int n = 0;
    for ([[maybe_unused]] const auto& entry : fs::directory_iterator("/proc/self/fd")) n++;
    return n;
}

// ---- the run

static void report_line(int pipe, const std::string& text) {
    const std::string line = text + "\n";
    if (::write(pipe, line.data(), line.size()) != ssize_t(line.size())) ::_exit(9);
}

static std::string one_line(std::string text) {
    std::replace(text.begin(), text.end(), '\n', ' ');
    return text;
}

// The child: every acknowledgement is in the log and in the pipe at the moment it is given.
static void child(const FaultPlan& plan, const std::string& out, int64_t first, int64_t last,
                  int keep, int pipe) {
    auto comm = comm_self();
    Saves saves;
    saves.keep = keep;
    for (int64_t step = first; step <= last; step++) state_of(step);
    fault_arm(plan);
    const int descriptors = open_descriptors();
    try {
        RunLock lock(out, "run-1", *comm);
        if (auto found = checkpoint_find(out, *comm)) {
            ToyState loaded(-1);
            checkpoint_read(*found, loaded.pieces(), *comm);
            saves.resumed_from = found->path;
            report_line(pipe, str("resumed ", found->manifest.meta.step));
        }
        for (int64_t step = first; step <= last; step++) {
            ToyState state(step);
            const SaveResult r = checkpoint_save(out, toy_meta(step), state.pieces(), *comm, saves);
            if (r.ok) fault_mark(str(step));
            if (r.ok)
                report_line(pipe, str("saved ", step, " ", r.state));
            else
                report_line(pipe, str("refused ", step, " ", one_line(r.reason)));
            if (r.ok && !r.reason.empty()) report_line(pipe, "complaint " + one_line(r.reason));
        }
    } catch (const std::exception& e) {
        report_line(pipe, "error " + one_line(e.what()));
    }
    report_line(pipe, str("end ", fault_calls(), " ", open_descriptors() - descriptors));
}

RunReport run_saves(const FaultPlan& plan, const std::string& out, int64_t first, int64_t last,
                    int keep) {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("pipe");
    std::fflush(nullptr);
    const pid_t pid = ::fork();
    if (pid == 0) {
        ::close(ends[0]);
        ::alarm(60);
        // What the run says on stderr is part of the scenario, not of the test's output.
        if (!std::freopen("/dev/null", "w", stderr)) ::_exit(9);
        child(plan, out, first, last, keep, ends[1]);
        H5close();  // as at the end of a program: whatever the library still holds is flushed now
        ::_exit(0);
    }
    ::close(ends[1]);
    RunReport report;
    FILE* lines = ::fdopen(ends[0], "r");
    char text[4096];
    while (std::fgets(text, sizeof text, lines)) {
        std::istringstream line(text);
        std::string word, rest;
        int64_t step = 0;
        line >> word;
        if (word == "resumed") line >> report.resumed;
        if (word == "saved") line >> step >> report.saved[step];
        if (word == "refused") line >> step, std::getline(line, report.refused[step]);
        if (word == "complaint") std::getline(line, rest), report.complaints.push_back(rest);
        if (word == "error") std::getline(line, report.error);
        if (word == "end") line >> report.calls >> report.leaked;
    }
    std::fclose(lines);
    int status = 0;
    ::waitpid(pid, &status, 0);
    report.killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    report.crashed = !report.killed && !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return report;
}

// ---- the verdicts

namespace {
// Silences what a judged start says on stderr.
class Quiet {
  public:
    Quiet() : saved_(::dup(2)) {
        std::fflush(stderr);
        if (!std::freopen("/dev/null", "w", stderr)) throw std::runtime_error("stderr");
    }
    ~Quiet() {
        std::fflush(stderr);
        ::dup2(saved_, 2);
        ::close(saved_);
    }

  private:
    int saved_;
};
}  // namespace

static std::string judge_latest(const std::string& dir) {
    std::ifstream in(dir + "/latest");
    if (!in) return "";
    std::ostringstream text;
    text << in.rdbuf();
    const std::string name = text.str();
    if (name.empty() || name.back() != '\n' || step_of(name.substr(0, name.size() - 1)) < 0)
        return "latest holds '" + name + "'";
    return fs::exists(dir + "/" + name.substr(0, name.size() - 1) + "/manifest.json")
               ? ""
               : "latest names what is not there: " + name;
}

std::string judge_directory(const std::string& out, const std::vector<int64_t>& allowed) {
    const Quiet quiet;
    auto comm = comm_self();
    const std::string dir = ckpt_dir(out);
    try {
        if (std::string wrong = judge_latest(dir); !wrong.empty()) return wrong;
        std::vector<std::string> names;
        if (fs::exists(dir)) names = dir_list(dir_open(dir), dir);
        for (const std::string& name : names) {
            if (is_refused(name)) return name + " has been refused";
            if (step_of(name) < 0) continue;
            if (checkpoint_verify(dir + "/" + name, *comm) != state_of(step_of(name)))
                return name + " holds another state";
        }
        RunLock lock(out, "run-2", *comm);
        const auto found = checkpoint_find(out, *comm);
        const int64_t step = found ? found->manifest.meta.step : -1;
        if (std::find(allowed.begin(), allowed.end(), step) == allowed.end())
            return str("step ", step, " is found, expected one of ", allowed.front(), " to ",
                       allowed.back());
        if (found) {
            ToyState loaded(-1);
            checkpoint_read(*found, loaded.pieces(), *comm);
            if (!(loaded == ToyState(step))) return str("step ", step, " loads other values");
        }
    } catch (const std::exception& e) {
        return e.what();
    }
    return "";
}

std::string judge_clean_end(const RunReport& report, const std::string& out, int64_t first,
                            int64_t last, int keep) {
    if (report.crashed) return "the run crashed";
    if (!report.error.empty()) return report.error;
    if (!report.refused.empty()) return "a save failed:" + report.refused.begin()->second;
    if (!report.complaints.empty()) return report.complaints.front();
    if (report.leaked != 0) return str(report.leaked, " descriptors leaked");
    for (int64_t step = first; step <= last; step++)
        if (!report.saved.count(step) || report.saved.at(step) != state_of(step))
            return str("step ", step, " was not saved");
    std::vector<std::string> expected = {"latest"};
    for (int64_t step = std::max(first, last - keep + 1); step <= last; step++)
        expected.push_back(step_name(step));
    const std::string dir = ckpt_dir(out);
    if (!fs::exists(dir)) return "there is no ckpt directory";
    if (dir_list(dir_open(dir), dir) != expected) return "other names in ckpt than expected";
    std::ifstream latest(dir + "/latest");
    std::string name;
    if (!std::getline(latest, name) || name != step_name(last))
        return "latest does not name the last";
    return judge_directory(out, {last});
}

// ---- power loss

namespace {
// One logged run, cut at every change, and the states that are judged there.
class PowerLossJudge {
  public:
    PowerLossJudge(const std::string& out, const std::string& scratch)
        : out_(out), scratch_(scratch) {}

    void acknowledged(int64_t step) { last_acknowledged_ = step; }
    void look(const Disk& disk, int random_subsets);
    PowerLossResult result;

  private:
    void look_at(const Disk& disk, const std::string& what, const std::function<Fate(size_t)>& f);
    std::string out_, scratch_;
    int64_t last_acknowledged_ = -1;
    std::unordered_set<std::string> seen_;
    std::mt19937_64 random_{20240601};
};
}  // namespace

void PowerLossJudge::look_at(const Disk& disk, const std::string& what,
                             const std::function<Fate(size_t)>& fate) {
    if (!result.wrong.empty()) return;
    result.states++;
    const DiskTree tree = disk.after(fate);
    // States that look alike to a start are judged once: of what a save had not finished only the
    // names count.
    std::string key = str(last_acknowledged_, "\n");
    for (const auto& [path, bytes] : tree) {
        const bool unfinished =
            path.find(".tmp-") != std::string::npos || path.find(".del") != std::string::npos;
        const bool inside = unfinished && path.find('/', path.find("step-")) != std::string::npos;
        if (inside) continue;
        key += path;
        if (bytes && !unfinished) key += str(" ", digest_bytes(bytes->data(), bytes->size()));
        key += "\n";
    }
    if (!seen_.insert(digest_bytes(key.data(), key.size())).second) return;
    result.distinct++;
    const std::string place = scratch_ + "/state";
    fs::remove_all(place);
    tree_write(tree, place);
    // The newest acknowledged one, or the one that was being saved.
    std::string wrong;
    if (last_acknowledged_ >= 0 || fs::exists(place + "/" + out_))
        wrong = judge_directory(
            place + "/" + out_,
            {last_acknowledged_, last_acknowledged_ < 0 ? 1 : last_acknowledged_ + 1});
    if (!wrong.empty())
        result.wrong = str("power loss after change ", disk.changes(), ", ", what, ": ", wrong);
}

void PowerLossJudge::look(const Disk& disk, int random_subsets) {
    const std::vector<size_t> pending = disk.pending();
    const auto all = [](Fate f) { return [f](size_t) { return f; }; };
    const auto only = [](size_t which, Fate fate, Fate others) {
        return [=](size_t i) { return i == which ? fate : others; };
    };
    const auto by_kind = [&](Fate writes, Fate names) {
        return [&disk, writes, names](size_t i) { return disk.is_write(i) ? writes : names; };
    };
    look_at(disk, "all kept", all(Fate::Kept));
    look_at(disk, "all lost", all(Fate::Lost));
    look_at(disk, "bytes lost", by_kind(Fate::Lost, Fate::Kept));
    look_at(disk, "names lost", by_kind(Fate::Kept, Fate::Lost));
    look_at(disk, "bytes are zeros", by_kind(Fate::Zeros, Fate::Kept));
    for (size_t i : pending) {
        look_at(disk, str("change ", i, " lost"), only(i, Fate::Lost, Fate::Kept));
        look_at(disk, str("only change ", i, " kept"), only(i, Fate::Kept, Fate::Lost));
        if (!disk.is_write(i)) continue;
        look_at(disk, str("change ", i, " torn"), only(i, Fate::Half, Fate::Kept));
        look_at(disk, str("change ", i, " zeros"), only(i, Fate::Zeros, Fate::Kept));
    }
    for (int k = 0; k < random_subsets && pending.size() > 1; k++) {
        std::vector<Fate> fates(disk.changes());
        for (size_t i : pending) fates[i] = Fate(random_() % (disk.is_write(i) ? 4 : 2));
        look_at(disk, str("random subset ", k), [&](size_t i) { return fates[i]; });
    }
}

PowerLossResult judge_power_loss(const std::vector<FaultRecord>& log, const std::string& out,
                                 const std::string& scratch, int random_subsets, bool only_at_end) {
    PowerLossJudge judge(out, scratch);
    Disk disk;
    for (const FaultRecord& r : log) {
        const size_t before = disk.changes();
        if (r.op == FaultOp::Mark)
            judge.acknowledged(std::stoll(r.data));
        else
            disk.add(r);
        // After each change, and after each sync or acknowledgement: what was allowed before may
        // not be any more.
        const bool news =
            disk.changes() != before || r.op == FaultOp::Mark || r.op == FaultOp::Sync;
        if (news && !only_at_end) judge.look(disk, random_subsets);
        if (!judge.result.wrong.empty()) break;
    }
    if (only_at_end) judge.look(disk, random_subsets);
    return judge.result;
}
