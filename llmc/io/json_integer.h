// llmc/io/json_integer.h: whole numbers in JSON that somebody else may have written.
#pragma once
#include <nlohmann/json.hpp>

#include <cstdint>
#include <limits>

// Is it a whole number from `least` to `most`? To be asked before get<int>(), which makes anything
// of 1e300 and of 2^40. Json: any of the library's kinds.
template <class Json>
bool json_is_integer(const Json& value, int64_t least = 0,
                     int64_t most = std::numeric_limits<int64_t>::max()) {
    if (!value.is_number_integer()) return false;
    if (value.is_number_unsigned() &&
        value.template get<uint64_t>() > uint64_t(std::numeric_limits<int64_t>::max()))
        return false;
    const int64_t n = value.template get<int64_t>();
    return n >= least && n <= most;
}
