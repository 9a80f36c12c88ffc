// llmc/train/options_table.h: the shape of one row of the option table (rows: options.cpp).
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "llmc/train/options.h"

// Which commands an option belongs to: bit c for Command c.
constexpr unsigned on(Command c) {
    return 1u << int(c);
}

struct OptionRow {
    std::string name;   // without dashes; a positional argument is written "FILE..." or "PATH"
    std::string value;  // what --help shows after the name
    std::string group;  // heading in --help
    unsigned commands = 0;
    std::string help;
    std::string fallback;   // the default in words, where the plain value would say little
    bool many = false;      // takes one or more values
    std::string bare = {};  // what the option means without a value; empty: it needs one
    bool required = false;
    bool curve = false;  // decides the losses of a run, so it belongs to the run
    // set throws Error(Exit::Usage) if the text is no good; `where` is the option as it was given.
    std::function<void(Options&, const std::string& where, const std::vector<std::string>&)> set =
        nullptr;
    std::function<std::string(const Options&)> get = nullptr;

    bool positional() const { return name[0] >= 'A' && name[0] <= 'Z'; }
    bool belongs_to(Command c) const { return commands & on(c); }
};

struct CommandRow {
    Command command;
    std::string name, usage, what, examples;
};

const std::vector<OptionRow>& option_table();
const std::vector<CommandRow>& command_table();

// The options that decide the curve of a run, and their values: ("lr", "0.0006"), ...
std::vector<std::pair<std::string, std::string>> curve_options(const Options& opt);

// Checks of options against each other; every value has passed its own check.
void options_check(const Options& opt);
