#include "llmc/io/run_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "llmc/core/check.h"
#include "llmc/core/host.h"
#include "llmc/io/checkpoint_agree.h"

using nlohmann::json;

static constexpr int64_t kOwnerLimit = 64 << 10;
static constexpr int kSeenTries = 30;                             // of 0.1 s each
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

// Takes the lock, or says who holds it.
static Fd take_lock(const std::string& out) {
    const std::string path = out + "/.lock";
    Fd fd = file_open_or_create(path);
    struct flock lock = {};
    lock.l_type = F_WRLCK, lock.l_whence = SEEK_SET;
    if (::fcntl(fd, F_SETLK, &lock) == 0) return fd;
    if (errno != EACCES && errno != EAGAIN) fail_errno("locking", path);
    const json owner = read_owner(out);
    const std::string who = owner.is_null()
                                ? "a run that has not said who it is"
                                : str("run ", owner["run_id"].get<std::string>(), ", process ",
                                      owner.value("pid", json("?")).dump(), " on ",
                                      owner.value("host", json("?")).dump());
    fail(Exit::Usage, str(out, " is in use by another run"), who, "",
         "wait for it, stop it, or use another --out");
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

// Makes the directory and takes it. Whose it is is asked under the lock: of two first starts at
// once the second finds that the first holds it, whatever that has written by then.
static Fd take(const std::string& out) {
    if (!path_exists(out) || read_owner(out).is_null()) {
        make_dirs(std::filesystem::path(out).lexically_normal());
        // The lock file is the first that a run of ours makes: where there is none, what lies there
        // is somebody else's, and nothing is to be put beside it.
        const std::string name = foreign_name(out);
        if (!path_exists(out + "/.lock") && read_owner(out).is_null()) check_not_foreign(out, name);
    }
    Fd lock = take_lock(out);
    if (read_owner(out).is_null()) check_not_foreign(out, foreign_name(out));
    return lock;
}

// A rank writes its own file of each checkpoint: it must see the directory that rank 0 has taken,
// and may write there. A network file system may show it a moment later.
static void check_seen(const std::string& out, const json& owner) {
    json found;
    for (int tries = 0; found != owner && tries < kSeenTries; tries++) {
        if (tries) std::this_thread::sleep_for(std::chrono::milliseconds(100));
        found = path_exists(out) ? read_owner(out) : nullptr;
    }
    CHECK(found == owner, Exit::Usage,
          str("--out ", out, " is another directory here than on rank 0"),
          found.is_null() ? "no owner.json of train_gpt" : found.dump(), owner.dump(),
          "all ranks need the same file system under --out");
    CHECK(::access(out.c_str(), R_OK | W_OK | X_OK) == 0, Exit::Usage,
          str("--out ", out, " cannot be used"), std::strerror(errno),
          "a directory that can be written, on every rank");
}

RunLock::RunLock(const std::string& out, const std::string& run_id, Comm& comm) {
    json owner;
    auto error = agree_on_root(comm, [&] {
        try {
            lock_ = take(out);
            owner = {{"program", "train_gpt"},
                     {"run_id", run_id},
                     {"host", host_name()},
                     {"pid", ::getpid()}};
            file_replace(out + "/owner.json", owner.dump(-1, ' ', false, kReplace) + "\n");
            sync_dir(out);
        } catch (const Error& e) {
            if (e.code == Exit::Usage) throw;
            fail(Exit::Usage, str("--out ", out, " cannot be used: ", e.what()), "",
                 "a directory that can be written");
        }
    });
    if (error) throw *error;
    if (comm.size() == 1) return;
    owner = json::parse(broadcast_text(comm, owner.dump(-1, ' ', false, kReplace)));
    error = agree(comm, [&] { check_seen(out, owner); });
    if (error) throw *error;
}
