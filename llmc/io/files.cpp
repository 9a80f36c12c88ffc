#include "llmc/io/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include "llmc/core/check.h"
#include "llmc/core/plural.h"
#include "llmc/parallel/liveness.h"

// Repeats a call that a signal interrupted.
template <class Call>
static auto uninterrupted(Call call) {
    auto result = call();
    while (result < 0 && errno == EINTR) result = call();
    return result;
}

void fail_errno(const std::string& what, const std::string& path) {
    const int e = errno;
    // EIO is the device's word about itself: the file may be whole, and be read at the next
    // attempt.
    const bool about_file = e == ENOENT || e == ELOOP || e == ENOTDIR || e == EISDIR;
    fail(about_file ? Exit::Damaged : Exit::Resource, str(what, " ", path), std::strerror(e));
}

Fd::~Fd() {
    if (fd_ >= 0) ::close(fd_);
}

void Fd::close(const std::string& path) {
    const int fd = std::exchange(fd_, -1);
    // After EINTR Linux has closed the descriptor; repeating could close somebody else's.
    if (fd >= 0 && ::close(fd) < 0 && errno != EINTR) fail_errno("closing", path);
}

Fd dir_open(const std::string& path) {
    Fd fd(uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
    if (fd < 0) fail_errno("opening directory", path);
    return fd;
}

Fd dir_open_in(int dir, const std::string& name) {
    Fd fd(uninterrupted([&] {
        return ::openat(dir, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    }));
    if (fd < 0) fail_errno("opening directory", name);
    return fd;
}

// Without O_NONBLOCK a FIFO in place of the file would hold us for ever.
Fd file_open(const std::string& path) {
    Fd fd(uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC); }));
    if (fd < 0) fail_errno("opening", path);
    file_size(fd, path);
    return fd;
}

Fd file_open_in(int dir, const std::string& name) {
    Fd fd(uninterrupted([&] {
        return ::openat(dir, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    }));
    if (fd < 0) fail_errno("opening", name);
    file_size(fd, name);
    return fd;
}

Fd file_open_or_create(const std::string& path) {
    Fd fd(uninterrupted(
        [&] { return ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666); }));
    if (fd < 0) fail_errno("opening", path);
    return fd;
}

Fd file_create(const std::string& path) {
    Fd fd(uninterrupted([&] {
        return ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    }));
    if (fd < 0) fail_errno("creating", path);
    return fd;
}

int64_t file_size(int fd, const std::string& path) {
    struct stat st;
    if (::fstat(fd, &st) < 0) fail_errno("asking about", path);
    CHECK(S_ISREG(st.st_mode), Exit::Damaged, str(path, " is not a regular file"));
    return st.st_size;
}

std::vector<std::string> dir_list(int directory, const std::string& path) {
    // A descriptor of its own: fdopendir takes it over, and its read position with it.
    Fd fd = dir_open_in(directory, ".");
    std::unique_ptr<DIR, int (*)(DIR*)> dir(::fdopendir(fd), ::closedir);
    if (!dir) fail_errno("listing", path);
    fd.release();
    std::vector<std::string> names;
    for (;;) {
        errno = 0;
        const dirent* entry = ::readdir(dir.get());
        if (!entry && errno != 0) fail_errno("listing", path);
        if (!entry) break;
        const std::string name = entry->d_name;
        if (name != "." && name != "..") names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
}

bool path_exists(const std::string& path) {
    struct stat st;
    if (::lstat(path.c_str(), &st) == 0) return true;
    if (errno != ENOENT) fail_errno("asking about", path);
    return false;
}

std::string dir_of(const std::string& path) {
    const std::filesystem::path p = path;
    return p.has_parent_path() ? p.parent_path().string() : ".";
}

void sync_file(int fd, const std::string& path) {
    if (uninterrupted([&] { return ::fsync(fd); }) < 0) fail_errno("syncing", path);
}

void sync_dir(const std::string& path) {
    Fd fd = dir_open(path);
    sync_file(fd, path);
    fd.close(path);
}

void dir_make(const std::string& path) {
    if (::mkdir(path.c_str(), 0777) < 0) fail_errno("making directory", path);
}

void rename_path(const std::string& from, const std::string& to) {
    if (::rename(from.c_str(), to.c_str()) < 0) fail_errno("renaming to " + to + " from", from);
}

void file_remove(const std::string& path) {
    if (::unlink(path.c_str()) < 0 && errno != ENOENT) fail_errno("removing", path);
}

void read_exactly(int fd, void* to, size_t n, int64_t offset, const std::string& path) {
    char* at = static_cast<char*>(to);
    while (n > 0) {
        const ssize_t got = uninterrupted([&] { return ::pread(fd, at, n, offset); });
        if (got < 0) fail_errno("reading", path);
        CHECK(got > 0, Exit::Damaged, str(path, " is too short"), str("end at byte ", offset),
              str(counted(int64_t(n), "byte"), " more"));
        at += got, offset += got, n -= size_t(got);
        liveness_mark();
    }
}

void file_stream(int fd, int64_t size, const std::string& path,
                 const std::function<void(const char*, size_t)>& take) {
    std::vector<char> buffer(size_t(std::clamp<int64_t>(size, 1, 4 << 20)));
    for (int64_t at = 0; at < size;) {
        const size_t n = size_t(std::min<int64_t>(size - at, int64_t(buffer.size())));
        read_exactly(fd, buffer.data(), n, at, path);
        take(buffer.data(), n);
        at += int64_t(n);
    }
}

void write_all(int fd, const std::string& text, const std::string& path) {
    for (size_t at = 0; at < text.size();) {
        const ssize_t n =
            uninterrupted([&] { return ::write(fd, text.data() + at, text.size() - at); });
        if (n < 0) fail_errno("writing", path);
        at += size_t(n);
        liveness_mark();
    }
}

void write_exactly(int fd, const void* from, size_t n, int64_t offset, const std::string& path) {
    const char* at = static_cast<const char*>(from);
    while (n > 0) {
        const ssize_t done = uninterrupted([&] { return ::pwrite(fd, at, n, offset); });
        if (done < 0) fail_errno("writing", path);
        at += done, offset += done, n -= size_t(done);
        liveness_mark();
    }
}

void file_resize(int fd, int64_t size, const std::string& path) {
    if (uninterrupted([&] { return ::ftruncate(fd, size); }) < 0) fail_errno("resizing", path);
}

void file_write_durable(const std::string& path, const std::string& text) {
    Fd fd = file_create(path);
    write_exactly(fd, text.data(), text.size(), 0, path);
    sync_file(fd, path);
    std::string back(text.size(), '\0');
    read_exactly(fd, back.data(), back.size(), 0, path);
    CHECK(back == text && file_size(fd, path) == int64_t(text.size()), Exit::Damaged,
          str(path, " does not read back as it was written"));
    fd.close(path);
}

std::string file_read_in(int dir, const std::string& name, int64_t limit) {
    Fd fd = file_open_in(dir, name);
    const int64_t size = file_size(fd, name);
    CHECK(size <= limit, Exit::Damaged, str(name, " is too large"), counted(size, "byte"),
          str("at most ", limit));
    std::string text(size_t(size), '\0');
    read_exactly(fd, text.data(), text.size(), 0, name);
    return text;
}

void file_replace(const std::string& path, const std::string& text) {
    const std::string tmp = path + ".tmp";
    file_remove(tmp);
    file_write_durable(tmp, text);
    rename_path(tmp, path);
}

static void remove_in(int dir, const std::string& name) {
    struct stat st;
    if (::fstatat(dir, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) < 0) fail_errno("removing", name);
    if (!S_ISDIR(st.st_mode)) {
        if (::unlinkat(dir, name.c_str(), 0) < 0) fail_errno("removing", name);
        return;
    }
    Fd inner = dir_open_in(dir, name);
    for (const std::string& entry : dir_list(inner, name)) remove_in(inner, entry);
    if (::unlinkat(dir, name.c_str(), AT_REMOVEDIR) < 0) fail_errno("removing", name);
}

void tree_remove(const std::string& path) {
    remove_in(AT_FDCWD, path);
}

int64_t free_bytes(const std::string& path) {
    struct statvfs v;
    if (::statvfs(path.c_str(), &v) < 0) fail_errno("asking about the file system of", path);
    return int64_t(v.f_bavail) * int64_t(v.f_frsize);
}
