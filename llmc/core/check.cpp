#include "llmc/core/check.h"

void fail(Exit code, const std::string& what, const std::string& found, const std::string& expected,
          const std::string& hint) {
    std::string message = what;
    if (!found.empty()) message += "; found " + found;
    if (!expected.empty()) message += "; expected " + expected;
    if (!hint.empty()) message += "; hint: " + hint;
    throw Error(code, message);
}
