// llmc/io/files.h: the system's calls on files and directories.
//
// Every call's verdict is looked at, interrupted calls are repeated, nothing but dir_open and
// file_open follows a symbolic link. Faults throw Error: Exit::Damaged for what a file is,
// Exit::Resource for what the system refuses (no space, no permission, no descriptors).
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

// A file descriptor that closes itself. close() reports the verdict, which on a network file system
// may be the first news of a failed write.
class Fd {
  public:
    Fd() = default;
    explicit Fd(int fd) : fd_(fd) {}
    Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Fd& operator=(Fd&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~Fd();
    operator int() const { return fd_; }
    void close(const std::string& path);
    int release() { return std::exchange(fd_, -1); }

  private:
    int fd_ = -1;
};

[[noreturn]] void fail_errno(const std::string& what, const std::string& path);

Fd dir_open(const std::string& path);               // may be a link: the user named it
Fd dir_open_in(int dir, const std::string& name);   // may not
Fd file_open(const std::string& path);              // a regular file for reading, or a link to one
Fd file_open_in(int dir, const std::string& name);  // a regular file, no link, for reading
Fd file_open_or_create(const std::string& path);    // for reading and writing, no link
Fd file_create(const std::string& path);            // a new one, for reading and writing
int64_t file_size(int fd, const std::string& path);

// The entries of a directory but "." and "..", sorted.
std::vector<std::string> dir_list(int dir, const std::string& path);
bool path_exists(const std::string& path);    // anything, a dangling link included
std::string dir_of(const std::string& path);  // the directory that it lies in

void sync_dir(const std::string& path);
void sync_file(int fd, const std::string& path);
void dir_make(const std::string& path);  // must not exist
void rename_path(const std::string& from, const std::string& to);
void file_remove(const std::string& path);  // if it is there

// A new file that holds text, synced, read back and compared. Its directory entry is durable only
// after sync_dir of its directory.
void file_write_durable(const std::string& path, const std::string& text);
// The whole of a regular file; longer ones than `limit` are refused before anything is allocated.
std::string file_read_in(int dir, const std::string& name, int64_t limit);
// Replaces path by a file that holds text: afterwards it has the old text or the new one, whatever
// happens in between.
void file_replace(const std::string& path, const std::string& text);

// All of text, at the descriptor's position.
void write_all(int fd, const std::string& text, const std::string& path);
// Exactly n bytes at offset; the end of the file before that is Exit::Damaged.
void read_exactly(int fd, void* to, size_t n, int64_t offset, const std::string& path);
void write_exactly(int fd, const void* from, size_t n, int64_t offset, const std::string& path);
void file_resize(int fd, int64_t size, const std::string& path);
// The file's bytes in order, in pieces of bounded size, up to `size`.
void file_stream(int fd, int64_t size, const std::string& path,
                 const std::function<void(const char*, size_t)>& take);

// Deletes a directory and what is in it, without following links.
void tree_remove(const std::string& path);

int64_t free_bytes(const std::string& path);
