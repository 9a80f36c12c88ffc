// llmc/core/plural.h: "1 layer", "12 layers", "3 batches".
#pragma once
#include <cstdint>
#include <string>

inline std::string plural(int64_t n, const std::string& noun) {
    return n == 1 ? noun : noun + (noun.ends_with("ch") ? "es" : "s");
}
// With the number before it; grouped(n) of train/progress.h is for the long ones.
inline std::string counted(int64_t n, const std::string& noun) {
    return std::to_string(n) + " " + plural(n, noun);
}
