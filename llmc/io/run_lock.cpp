#include "llmc/io/run_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "llmc/core/check.h"
#include "llmc/core/host.h"
#include "llmc/io/checkpoint_agree.h"
#include "llmc/io/checkpoint_names.h"

using nlohmann::json;

static constexpr int64_t kOwnerLimit = 64 << 10;
static constexpr auto kReplace = json::error_handler_t::replace;  // of what is no UTF-8

// The owner of a directory, or null if there is no owner.json that one of our runs wrote.
static json read_owner(const std::string& out) {
    if (!path_exists(out + "/owner.json")) return nullptr;
    const json j =
        json::parse(file_read_in(dir_open(out), "owner.json", kOwnerLimit), nullptr, false);
    const bool ours = j.is_object() && j.value("program", json()) == "train_gpt" &&
                      j.contains("run_id") && j["run_id"].is_string();
    return ours ? j : json(nullptr);
}

std::string run_owner(const std::string& out) {
    const json owner = path_exists(out) ? read_owner(out) : nullptr;
    return owner.is_null() ? "" : owner["run_id"].get<std::string>();
}

// Makes a directory and its parents, and makes all their names durable: also those that an earlier
// start made just before it was killed.
static void make_dirs(const std::filesystem::path& path) {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    const auto absolute = error ? path : std::filesystem::absolute(path, error);
    CHECK(!error, Exit::Usage, str("making directory ", path.string()), error.message());
    for (auto dir = absolute.parent_path();; dir = dir.parent_path()) {
        // What we may not read we have not made.
        if (::access(dir.c_str(), R_OK) == 0) sync_dir(dir);
        if (dir == dir.root_path()) break;
    }
}

// 0, or why the lock could not be taken.
static int lock_try(int fd) {
    struct flock lock = {};
    lock.l_type = F_WRLCK, lock.l_whence = SEEK_SET;
    return ::fcntl(fd, F_SETLK, &lock) == 0 ? 0 : errno;
}
static bool is_held(int why) {
    return why == EACCES || why == EAGAIN;
}

static std::string holder(const std::string& out) try {
    const json owner = read_owner(out);
    if (owner.is_null()) return "a run that has not said who it is";
    return str("run ", owner["run_id"].get<std::string>(), ", process ",
               owner.value("pid", json("?")).dump(), " on ", owner.value("host", json("?")).dump());
} catch (const Error& e) {
    return e.what();
}

// Something in the directory that no start of ours makes before owner.json; empty if there is none.
static std::string foreign_name(const std::string& out) {
    for (const std::string& name : dir_list(dir_open(out), out))
        if (name != ".lock" && name != "owner.json.tmp") return name;
    return "";
}

static void check_not_foreign(const std::string& out, const std::string& name) {
    CHECK(name.empty(), Exit::Usage, str("--out ", out, " is not empty and not a run's"),
          str("'", name, "' in it"),
          "an empty or new directory, or one with an owner.json of train_gpt");
}

// Makes the directory and opens its lock file: the first file that a run of ours makes. Where there
// is none, what lies there is somebody else's, and nothing is to be put beside it.
static Fd prepare(const std::string& out) {
    if (!path_exists(out) || read_owner(out).is_null()) {
        make_dirs(std::filesystem::path(out).lexically_normal());
        const std::string name = foreign_name(out);
        if (!path_exists(out + "/.lock") && read_owner(out).is_null()) check_not_foreign(out, name);
    }
    return file_open_or_create(out + "/.lock");
}

// Rank 0's tries, while all ranks wait with it. Returns what the last one came to.
static int lock_within(const std::string& out, int fd, double patience, Comm& comm,
                       const std::function<bool()>& stop) {
    int why = 0;
    bool told = false;
    wait_for_all(
        comm, patience,
        [&] {
            why = comm.rank() == 0 ? lock_try(fd) : 0;
            if (is_held(why) && patience > 0 && !told)
                checkpoint_warn(str(out, " is in use by another run: ", holder(out),
                                    "; waiting for it up to ", patience, " s (--lock-wait)"));
            told = true;
            return !is_held(why);
        },
        stop);
    return why;
}

// Whose the directory is is asked under the lock: of two first starts at once the second finds that
// the first holds it, whatever that has written by then.
static json take(const std::string& out, const std::string& run_id, int why) {
    CHECK(!is_held(why), Exit::Usage, str(out, " is in use by another run"), holder(out), "",
          "wait for it (--lock-wait SECONDS), stop it, or use another --out");
    errno = why;
    if (why) fail_errno("locking", out + "/.lock");
    if (read_owner(out).is_null()) check_not_foreign(out, foreign_name(out));
    const json owner = {
        {"program", "train_gpt"}, {"run_id", run_id}, {"host", host_name()}, {"pid", ::getpid()}};
    file_replace(out + "/owner.json", owner.dump(-1, ' ', false, kReplace) + "\n");
    sync_dir(out);
    return owner;
}

// All errors on the way are about --out.
template <class Work>
static std::optional<Error> on_root(const std::string& out, Comm& comm, const Work& work) {
    return agree_on_root(comm, [&] {
        try {
            work();
        } catch (const Error& e) {
            if (e.code == Exit::Usage) throw;
            fail(Exit::Usage, str("--out ", out, " cannot be used: ", e.what()), "",
                 "a directory that can be written");
        }
    });
}

// A rank writes its own file of each checkpoint: it must see the directory that rank 0 has taken,
// and may write there.
static void check_seen(const std::string& out, const json& found, const json& owner) {
    CHECK(found == owner, Exit::Usage,
          str("--out ", out, " is another directory here than on rank 0"),
          found.is_null() ? "no owner.json of train_gpt" : found.dump(), owner.dump(),
          "all ranks need the same file system under --out");
    CHECK(::access(out.c_str(), R_OK | W_OK | X_OK) == 0, Exit::Usage,
          str("--out ", out, " cannot be used"), std::strerror(errno),
          "a directory that can be written, on every rank");
}

RunLock::RunLock(const std::string& out, const std::string& run_id, Comm& comm, double patience,
                 const std::function<bool()>& stop) {
    auto error = on_root(out, comm, [&] { lock_ = prepare(out); });
    if (error) throw *error;
    const int why = lock_within(out, lock_, patience, comm, stop);
    json owner;
    error = on_root(out, comm, [&] { owner = take(out, run_id, why); });
    if (error) throw *error;
    if (comm.size() == 1) return;
    owner = json::parse(broadcast_text(comm, owner.dump(-1, ' ', false, kReplace)));
    json found;
    wait_for_all(comm, std::clamp(patience, kSeenSeconds, kSeenMost), [&] {
        error = agree(comm, [&] { found = path_exists(out) ? read_owner(out) : nullptr; });
        return error || found == owner;
    });
    if (!error) error = agree(comm, [&] { check_seen(out, found, owner); });
    if (error) throw *error;
}
