// llmc/core/nearest.h: "did you mean ...?" for option names, presets and config fields.
#pragma once
#include <string>
#include <vector>

// The name that a reader most likely meant by `wrong`, or "" if none is near.
std::string nearest_name(const std::string& wrong, const std::vector<std::string>& names);
// "did you mean 'X'?", or "" if none is near: a hint for CHECK.
std::string did_you_mean(const std::string& wrong, const std::vector<std::string>& names);
