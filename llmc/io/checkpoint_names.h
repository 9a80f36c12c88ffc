// llmc/io/checkpoint_names.h: the names inside OUT/ckpt, and who is who among them.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

std::string ckpt_dir(const std::string& out_dir);  // OUT/ckpt
std::string step_name(int64_t step);               // step-0000001200
// The step of a name that is exactly a step name, else -1.
int64_t step_of(const std::string& name);
// The part of a name behind its step ("" for a checkpoint, ".tmp-12ab", ".del", ".bad", ".bad.1"),
// or "?" if it does not start with a step name.
std::string step_suffix(const std::string& name);

bool is_unfinished(const std::string& name);  // left behind by a save or a deletion that was killed
bool is_refused(const std::string& name);     // renamed to .bad

// Renames dir/name to dir/name + suffix, with a number behind it if that is taken. Returns the new
// name.
std::string rename_aside(const std::string& dir, const std::string& name,
                         const std::string& suffix);

// A line on stderr.
void checkpoint_warn(const std::string& text);
