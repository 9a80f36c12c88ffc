// llmc/core/nearest.h: "did you mean ...?" for option names, presets and config fields.
#pragma once
#include <string>
#include <vector>

// The name that a reader most likely meant by `wrong`, or "" if none is near.
std::string nearest_name(const std::string& wrong, const std::vector<std::string>& names);

// For a hint: "did you mean NAME? rest", with `before` and `after` around the name; the rest alone
// if none is near.
std::string did_you_mean(const std::string& wrong, const std::vector<std::string>& names,
                         const std::string& before, const std::string& after = "",
                         const std::string& rest = "");
// "did you mean 'NAME'?", or nothing.
std::string did_you_mean(const std::string& wrong, const std::vector<std::string>& names);
