// llmc/io/text_file.h: a whole file that the user named, as text.
#pragma once
#include <cstdint>
#include <string>

// May be a link. Usage when it cannot be opened or is not a regular file, Damaged when it has more
// than `limit` bytes, before anything is allocated.
std::string text_file_read(const std::string& path, int64_t limit);
