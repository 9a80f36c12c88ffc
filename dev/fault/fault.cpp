#include "dev/fault/fault.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <map>

// The function that we stand in front of.
template <class Function>
static Function* next(const char* name) {
    return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}
#define NEXT(name) static auto* real = next<decltype(name)>(#name)

namespace {
struct Flip {
    dev_t dev;
    ino_t ino;
    int64_t offset;
};
struct State {
    FaultPlan plan;
    bool armed = false;
    int calls = 0;
    int log_fd = -1;
    std::string last_change;  // kind of the last call that changed something
    std::vector<Flip> flips;
};
// Never destroyed: calls still come in while the process ends.
State& state() {
    static State* s = new State;
    return *s;
}

// What is to become of a call.
enum class Verdict { Do, Fail, Skip, Half, Flip };
}  // namespace

// ---- which calls are watched

// The path relative to the watched directory ("." for itself); empty if it is elsewhere.
static std::string watched(const std::string& absolute) {
    const State& s = state();
    if (!s.armed) return "";
    const std::string& dir = s.plan.dir;
    if (absolute == dir) return ".";
    if (absolute.compare(0, dir.size() + 1, dir + "/") != 0) return "";
    return absolute.substr(dir.size() + 1);
}

static std::string fd_target(int fd) {
    char link[64], target[4096];
    std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    static auto* real = next<ssize_t(const char*, char*, size_t)>("readlink");
    const ssize_t n = real(link, target, sizeof target);
    return n > 0 ? std::string(target, size_t(n)) : "";
}

static std::string watched_fd(int fd) {
    return state().armed ? watched(fd_target(fd)) : "";
}

static std::string watched_path(int dir, const char* path) {
    if (!state().armed || !path) return "";
    std::string full = path;
    if (full.empty() || full[0] != '/') {
        char cwd[4096] = "";
        if (dir == AT_FDCWD && !::getcwd(cwd, sizeof cwd)) return "";
        full = (dir == AT_FDCWD ? std::string(cwd) : fd_target(dir)) + "/" + full;
    }
    std::string plain;  // without "//", "/." and a trailing slash
    for (size_t at = 0; at < full.size();) {
        const size_t end = std::min(full.find('/', at + 1), full.size());
        const std::string part = full.substr(at, end - at);
        if (part != "/" && part != "/.") plain += part;
        at = end;
    }
    return watched(plain);
}

const char* fault_op_name(FaultOp op) {
    const char* names[] = {"Open",     "Create", "Read",   "Write", "Sync",
                           "Close",    "Rename", "Unlink", "Mkdir", "Rmdir",
                           "Truncate", "Stat",   "List",   "Call",  "Mark"};
    return names[int(op)];
}

std::string fault_role(const std::string& path) {
    std::string role;
    for (size_t i = 0; i < path.size();) {
        if (path.compare(i, 5, ".tmp-") == 0) {
            role += ".tmp-#";
            i = std::min(path.find('/', i), path.size());
        } else if (path[i] >= '0' && path[i] <= '9') {
            role += '#';
            while (i < path.size() && path[i] >= '0' && path[i] <= '9') i++;
        } else {
            role += path[i++];
        }
    }
    return role;
}

static bool changes(FaultOp op) {
    return op != FaultOp::Open && op != FaultOp::Read && op != FaultOp::Close &&
           op != FaultOp::Stat && op != FaultOp::List;
}

static bool needs_room(FaultOp op) {
    return op == FaultOp::Create || op == FaultOp::Write || op == FaultOp::Mkdir;
}

// ---- the log: op, three lengths, offset, then the texts

static void log_record(const FaultRecord& r) {
    if (state().log_fd < 0) return;
    const int64_t head[5] = {int64_t(r.op), int64_t(r.path.size()), int64_t(r.to.size()),
                             int64_t(r.data.size()), r.offset};
    std::string bytes(reinterpret_cast<const char*>(head), sizeof head);
    bytes += r.path + r.to + r.data;
    static auto* real = next<ssize_t(int, const void*, size_t)>("write");
    if (real(state().log_fd, bytes.data(), bytes.size()) != ssize_t(bytes.size())) std::abort();
}

std::vector<FaultRecord> fault_log_read(const std::string& path) {
    std::vector<FaultRecord> records;
    FILE* f = std::fopen(path.c_str(), "rb");
    if (!f) return records;
    int64_t head[5];
    const auto text = [&](int64_t n) {
        std::string t(size_t(n), '\0');
        if (std::fread(t.data(), 1, t.size(), f) != t.size()) std::abort();
        return t;
    };
    while (std::fread(head, sizeof head, 1, f) == 1) {
        FaultRecord r;
        r.op = FaultOp(head[0]), r.offset = head[4];
        r.path = text(head[1]), r.to = text(head[2]), r.data = text(head[3]);
        records.push_back(r);
    }
    std::fclose(f);
    return records;
}

// ---- counting and judging

static bool is_ignored(const std::string& site, const std::string& ignore) {
    if (ignore.empty() || ignore.back() != '*') return site == ignore;
    return site.compare(0, ignore.size() - 1, ignore, 0, ignore.size() - 1) == 0;
}

static Verdict judge(FaultOp op, const std::string& path, const std::string& to = "") {
    State& s = state();
    // The site of a call: what it does to what, for example "Sync out/ckpt/step-#.tmp-#", and where
    // it changes something the change before it, which tells apart two syncs of one directory.
    std::string kind = std::string(fault_op_name(op)) + " " + fault_role(path);
    if (!to.empty()) kind += " -> " + fault_role(to);
    const std::string site = changes(op) ? kind + " after " + s.last_change : kind;
    if (changes(op)) s.last_change = kind;
    s.calls++;
    log_record({FaultOp::Call, site, fault_op_name(op), 0, ""});

    const FaultPlan& p = s.plan;
    if (p.delay_ms) ::usleep(useconds_t(p.delay_ms) * 1000);
    if (s.calls == p.kill_at) {
        if (p.kill_torn && op == FaultOp::Write) return Verdict::Half;  // the caller kills
        ::kill(::getpid(), SIGKILL);
    }
    if (p.fail_at && (s.calls == p.fail_at || (p.stays && s.calls > p.fail_at && needs_room(op)))) {
        if (p.fail_errno == 0) return Verdict::Half;
        errno = p.fail_errno;
        return Verdict::Fail;
    }
    if (s.calls == p.flip_at && op == FaultOp::Write) return Verdict::Flip;
    return is_ignored(site, p.ignore) ? Verdict::Skip : Verdict::Do;
}

// A call without data: done, failed or skipped as judged; logged if it succeeded.
template <class Call>
static int guarded(FaultOp op, const std::string& path, Call real, const std::string& to = "",
                   int64_t offset = 0) {
    if (path.empty()) return real();
    switch (judge(op, path, to)) {
        case Verdict::Fail:
            return -1;
        case Verdict::Skip:
            return 0;
        default:
            break;
    }
    const int result = real();
    const int saved = errno;
    if (result >= 0 && changes(op)) log_record({op, path, to, offset, ""});
    errno = saved;
    return result;
}

// ---- opening and closing

template <class Call>
static int guarded_open(int dir, const char* path, int flags, Call real) {
    const std::string name = watched_path(dir, path);
    if (name.empty()) return real();
    struct stat st;
    static auto* look = next<int(int, const char*, struct stat*, int)>("fstatat");
    const bool exists = look(dir, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
    if ((flags & O_CREAT) && !exists) return guarded(FaultOp::Create, name, real);
    if ((flags & O_TRUNC) && exists) return guarded(FaultOp::Truncate, name, real);
    return guarded(FaultOp::Open, name, real);
}

static bool takes_mode(int flags) {
    return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE;
}

extern "C" int open(const char* path, int flags, ...) {
    NEXT(open);
    va_list args;
    va_start(args, flags);
    const mode_t mode = takes_mode(flags) ? va_arg(args, mode_t) : 0;
    va_end(args);
    return guarded_open(AT_FDCWD, path, flags, [&] { return real(path, flags, mode); });
}

extern "C" int openat(int dir, const char* path, int flags, ...) {
    NEXT(openat);
    va_list args;
    va_start(args, flags);
    const mode_t mode = takes_mode(flags) ? va_arg(args, mode_t) : 0;
    va_end(args);
    return guarded_open(dir, path, flags, [&] { return real(dir, path, flags, mode); });
}

extern "C" int open64(const char* path, int flags, ...) __attribute__((alias("open")));
extern "C" int openat64(int dir, const char* path, int flags, ...) __attribute__((alias("openat")));

extern "C" int close(int fd) {
    NEXT(close);
    const std::string path = watched_fd(fd);
    if (path.empty()) return real(fd);
    // A close that reports an error has closed the descriptor all the same, as on Linux.
    const Verdict verdict = judge(FaultOp::Close, path);
    const int error = errno, result = real(fd);
    if (verdict != Verdict::Fail) return result;
    errno = error;
    return -1;
}

// ---- data

static void remember_flip(int fd, int64_t offset) {
    struct stat st;
    if (::fstat(fd, &st) == 0) state().flips.push_back({st.st_dev, st.st_ino, offset});
}

template <class Call>
static ssize_t guarded_write(int fd, const void* data, size_t n, int64_t offset, Call real) {
    const std::string path = watched_fd(fd);
    if (path.empty()) return real(data, n);
    std::string bytes(static_cast<const char*>(data), n);
    const Verdict verdict = judge(FaultOp::Write, path);
    switch (verdict) {
        case Verdict::Fail:
            return -1;
        case Verdict::Skip:
            return ssize_t(n);
        case Verdict::Half:
            bytes.resize((n + 1) / 2);
            break;
        case Verdict::Flip:
            bytes[n / 2] = char(bytes[n / 2] ^ 4);
            remember_flip(fd, offset + int64_t(n / 2));
            break;
        case Verdict::Do:
            break;
    }
    const ssize_t done = real(bytes.data(), bytes.size());
    const int saved = errno;
    if (done > 0) log_record({FaultOp::Write, path, "", offset, bytes.substr(0, size_t(done))});
    if (verdict == Verdict::Half && state().calls == state().plan.kill_at)
        ::kill(::getpid(), SIGKILL);
    errno = saved;
    return done;
}

extern "C" ssize_t write(int fd, const void* data, size_t n) {
    NEXT(write);
    const auto call = [&](const void* p, size_t bytes) { return real(fd, p, bytes); };
    if (!state().armed) return call(data, n);
    return guarded_write(fd, data, n, ::lseek(fd, 0, SEEK_CUR), call);
}

extern "C" ssize_t pwrite(int fd, const void* data, size_t n, off_t offset) {
    NEXT(pwrite);
    const auto call = [&](const void* p, size_t bytes) { return real(fd, p, bytes, offset); };
    return guarded_write(fd, data, n, offset, call);
}
extern "C" ssize_t pwrite64(int, const void*, size_t, off_t) __attribute__((alias("pwrite")));

extern "C" ssize_t writev(int fd, const struct iovec* parts, int n) {
    NEXT(writev);
    if (watched_fd(fd).empty()) return real(fd, parts, n);
    std::string all;
    for (int i = 0; i < n; i++)
        all.append(static_cast<const char*>(parts[i].iov_base), parts[i].iov_len);
    return ::write(fd, all.data(), all.size());
}

template <class Call>
static ssize_t guarded_read(int fd, void* data, size_t n, int64_t offset, Call real) {
    const std::string path = watched_fd(fd);
    if (path.empty()) return real(n);
    const Verdict verdict = judge(FaultOp::Read, path);
    if (verdict == Verdict::Fail) return -1;
    const ssize_t got = real(verdict == Verdict::Half ? (n + 1) / 2 : n);
    struct stat st;
    if (got > 0 && state().plan.hide_flip && ::fstat(fd, &st) == 0)
        for (const Flip& f : state().flips)
            if (f.dev == st.st_dev && f.ino == st.st_ino && f.offset >= offset &&
                f.offset < offset + got)
                static_cast<char*>(data)[f.offset - offset] ^= 4;
    return got;
}

extern "C" ssize_t read(int fd, void* data, size_t n) {
    NEXT(read);
    const auto call = [&](size_t bytes) { return real(fd, data, bytes); };
    if (!state().armed) return call(n);
    return guarded_read(fd, data, n, ::lseek(fd, 0, SEEK_CUR), call);
}

extern "C" ssize_t pread(int fd, void* data, size_t n, off_t offset) {
    NEXT(pread);
    return guarded_read(fd, data, n, offset, [&](size_t b) { return real(fd, data, b, offset); });
}
extern "C" ssize_t pread64(int, void*, size_t, off_t) __attribute__((alias("pread")));

extern "C" int ftruncate(int fd, off_t size) {
    NEXT(ftruncate);
    return guarded(
        FaultOp::Truncate, watched_fd(fd), [&] { return real(fd, size); }, "", size);
}
extern "C" int ftruncate64(int fd, off_t size) __attribute__((alias("ftruncate")));

extern "C" int fsync(int fd) {
    NEXT(fsync);
    return guarded(FaultOp::Sync, watched_fd(fd), [&] { return real(fd); });
}
extern "C" int fdatasync(int fd) {
    NEXT(fdatasync);
    return guarded(FaultOp::Sync, watched_fd(fd), [&] { return real(fd); });
}

// ---- names

extern "C" int rename(const char* from, const char* to) {
    NEXT(rename);
    return guarded(
        FaultOp::Rename, watched_path(AT_FDCWD, from), [&] { return real(from, to); },
        watched_path(AT_FDCWD, to));
}
extern "C" int renameat(int dir, const char* from, int to_dir, const char* to) {
    NEXT(renameat);
    return guarded(
        FaultOp::Rename, watched_path(dir, from), [&] { return real(dir, from, to_dir, to); },
        watched_path(to_dir, to));
}
extern "C" int unlink(const char* path) {
    NEXT(unlink);
    return guarded(FaultOp::Unlink, watched_path(AT_FDCWD, path), [&] { return real(path); });
}
extern "C" int unlinkat(int dir, const char* path, int flags) {
    NEXT(unlinkat);
    const FaultOp op = flags & AT_REMOVEDIR ? FaultOp::Rmdir : FaultOp::Unlink;
    return guarded(op, watched_path(dir, path), [&] { return real(dir, path, flags); });
}
extern "C" int mkdir(const char* path, mode_t mode) {
    NEXT(mkdir);
    return guarded(FaultOp::Mkdir, watched_path(AT_FDCWD, path), [&] { return real(path, mode); });
}
extern "C" int mkdirat(int dir, const char* path, mode_t mode) {
    NEXT(mkdirat);
    return guarded(FaultOp::Mkdir, watched_path(dir, path), [&] { return real(dir, path, mode); });
}
extern "C" int rmdir(const char* path) {
    NEXT(rmdir);
    return guarded(FaultOp::Rmdir, watched_path(AT_FDCWD, path), [&] { return real(path); });
}

// ---- asking

extern "C" int stat(const char* path, struct stat* st) {
    NEXT(stat);
    return guarded(FaultOp::Stat, watched_path(AT_FDCWD, path), [&] { return real(path, st); });
}
extern "C" int lstat(const char* path, struct stat* st) {
    NEXT(lstat);
    return guarded(FaultOp::Stat, watched_path(AT_FDCWD, path), [&] { return real(path, st); });
}
extern "C" int fstatat(int dir, const char* path, struct stat* st, int flags) {
    NEXT(fstatat);
    return guarded(FaultOp::Stat, watched_path(dir, path),
                   [&] { return real(dir, path, st, flags); });
}
extern "C" struct dirent* readdir(DIR* dir) {
    NEXT(readdir);
    const std::string path = state().armed ? watched_fd(::dirfd(dir)) : "";
    if (!path.empty() && judge(FaultOp::List, path) == Verdict::Fail) return nullptr;
    return real(dir);
}
extern "C" int statvfs(const char* path, struct statvfs* v) {
    NEXT(statvfs);
    const int result =
        guarded(FaultOp::Stat, watched_path(AT_FDCWD, path), [&] { return real(path, v); });
    if (result == 0 && state().armed && state().plan.free_bytes >= 0)
        v->f_bavail = fsblkcnt_t(state().plan.free_bytes) / v->f_frsize;
    return result;
}

// ---- control

void fault_arm(const FaultPlan& plan) {
    fault_disarm();
    State& s = state();
    s.plan = plan, s.calls = 0, s.flips.clear(), s.last_change.clear();
    if (!plan.log.empty()) {
        s.log_fd = ::open(plan.log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        if (s.log_fd < 0) std::abort();
    }
    s.armed = true;
}

void fault_disarm() {
    State& s = state();
    s.armed = false;
    if (s.log_fd >= 0) ::close(s.log_fd);
    s.log_fd = -1;
}

int fault_calls() {
    return state().calls;
}

void fault_mark(const std::string& text) {
    if (state().armed) log_record({FaultOp::Mark, "", "", 0, text});
}

// FAULT_DIR arms the library in a program that knows nothing of it.
__attribute__((constructor)) static void arm_from_environment() {
    const char* dir = std::getenv("FAULT_DIR");
    if (!dir) return;
    const auto text = [](const char* name) {
        const char* value = std::getenv(name);
        return std::string(value ? value : "");
    };
    const auto number = [&](const char* name) { return std::atoi(text(name).c_str()); };
    FaultPlan p;
    p.dir = dir, p.log = text("FAULT_LOG");
    p.kill_at = number("FAULT_KILL_AT"), p.kill_torn = number("FAULT_KILL_TORN");
    p.fail_at = number("FAULT_FAIL_AT"), p.fail_errno = number("FAULT_FAIL_ERRNO");
    p.stays = number("FAULT_STAYS"), p.ignore = text("FAULT_IGNORE");
    p.flip_at = number("FAULT_FLIP_AT"), p.delay_ms = number("FAULT_DELAY_MS");
    if (std::getenv("FAULT_FREE_BYTES"))
        p.free_bytes = std::atoll(text("FAULT_FREE_BYTES").c_str());
    fault_arm(p);
}
