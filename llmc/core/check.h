// llmc/core/check.h: how this program says that something is wrong.
//
// One error, one message: what went wrong, what was found, what was expected, and a hint at what
// to do. User-facing faults throw Error; main() prints it once, as
//     [rank 3/8 host] error: what; found X; expected Y; hint: ...
// and every rank exits with the error's code. assert() is for our own mistakes only.
#pragma once
#include <sstream>
#include <stdexcept>
#include <string>

// Exit codes of the program; scripts rely on the numbers.
enum class Exit {
    Done = 0,
    Usage = 2,      // bad usage or input
    Damaged = 3,    // data or checkpoint damaged
    Resource = 4,   // memory, disk
    NonFinite = 5,  // non-finite or spike policy stopped the run
    Hang = 6,       // a rank or a collective stopped making progress
    Signalled = 7,  // stopped by a signal after a clean save
};

struct Error : std::runtime_error {
    Exit code;
    Error(Exit code, const std::string& message) : std::runtime_error(message), code(code) {}
};

// str("a ", 1, " b") == "a 1 b"; floats print with enough digits to come back exactly.
template <class... Args>
std::string str(const Args&... args) {
    std::ostringstream out;
    out.precision(9);
    (out << ... << args);
    return out.str();
}

// Throws Error with the parts joined as "what; found X; expected Y; hint: Z"; empty parts are left
// out.
[[noreturn]] void fail(Exit code, const std::string& what, const std::string& found = "",
                       const std::string& expected = "", const std::string& hint = "");

// CHECK(cond, Exit::Usage, "what", "found", "expected", "hint"): the last three may be left out.
// The texts are evaluated only on failure.
#define CHECK(cond, ...)                \
    do {                                \
        if (!(cond)) fail(__VA_ARGS__); \
    } while (0)
