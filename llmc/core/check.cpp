#include "llmc/core/check.h"

#include <cstdio>

// what() ends at a NUL, and a terminal obeys what else files may have put into a message.
static std::string plain(const std::string& message) {
    std::string text;
    for (const char c : message) {
        const bool control = (c >= 0 && c < ' ' && c != '\n') || c == 127;
        char code[8];
        std::snprintf(code, sizeof code, "\\x%02x", unsigned(static_cast<unsigned char>(c)));
        text += control ? code : std::string(1, c);
    }
    return text;
}

void fail(Exit code, const std::string& what, const std::string& found, const std::string& expected,
          const std::string& hint) {
    std::string message = what;
    if (!found.empty()) message += "; found " + found;
    if (!expected.empty()) message += "; expected " + expected;
    if (!hint.empty()) message += "; hint: " + hint;
    throw Error(code, plain(message));
}
