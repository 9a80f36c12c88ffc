#include "llmc/io/text_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "llmc/core/check.h"
#include "llmc/core/plural.h"
#include "llmc/io/files.h"

std::string text_file_read(const std::string& path, int64_t limit) {
    const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a pipe must not wait
    CHECK(fd >= 0, Exit::Usage, "cannot open " + path, std::strerror(errno));
    struct stat info {};
    CHECK(fstat(fd, &info) == 0 && S_ISREG(info.st_mode), Exit::Usage, "cannot read " + path,
          S_ISDIR(info.st_mode) ? "a directory" : "something not a regular file", "a regular file");
    CHECK(info.st_size <= limit, Exit::Damaged, path + " is too large",
          counted(info.st_size, "byte"), str("at most ", limit));
    std::string text(size_t(info.st_size), '\0');
    read_exactly(fd, text.data(), text.size(), 0, path);
    return text;
}
