// llmc/train/options_parse.cpp: from argv and a config file to Options, and --help, by the table.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "llmc/core/check.h"
#include "llmc/core/nearest.h"
#include "llmc/train/options.h"
#include "llmc/train/options_table.h"
#include "llmc/train/version.h"

namespace {

// Options that every command has; they are not fields, so they are not rows.
const char* const kCommon[] = {"config", "help", "version"};

const CommandRow& command_row(Command c) {
    for (const CommandRow& row : command_table())
        if (row.command == c) return row;
    fail(Exit::Usage, "no such command");
}

std::vector<std::string> option_names(Command c) {
    std::vector<std::string> names(std::begin(kCommon), std::end(kCommon));
    for (const OptionRow& row : option_table())
        if (row.belongs_to(c) && !row.positional()) names.push_back(row.name);
    return names;
}

// Why `name` is not an option of this command, and what the reader may have meant.
[[noreturn]] void unknown_option(Command c, const std::string& what, const std::string& name,
                                 const std::string& dashes) {
    std::string hint = did_you_mean(name, option_names(c), dashes, "",
                                    str("`train_gpt ", command_name(c), " --help` lists all"));
    for (const CommandRow& other : command_table())
        for (const OptionRow& row : option_table())
            if (row.name == name && row.belongs_to(other.command))
                hint = str("it is an option of `train_gpt ", other.name, "`");
    fail(Exit::Usage, str(what, " of `train_gpt ", command_name(c), "`"), dashes + name, "", hint);
}

// `name = value` lines with the names of the command line; CLI11 reads the syntax, and nothing
// that it would skip in silence gets through.
class StrictConfig : public CLI::ConfigTOML {
  public:
    explicit StrictConfig(Command c) : command_(c) {}
    std::vector<CLI::ConfigItem> from_config(std::istream& in) const override {
        const std::vector<CLI::ConfigItem> items = CLI::ConfigTOML::from_config(in);
        const std::vector<std::string> names = option_names(command_);
        for (const CLI::ConfigItem& item : items) {
            CHECK(item.parents.empty() && item.name != "++" && item.name != "--", Exit::Usage,
                  "the config file has sections", "[" + CLI::detail::join(item.parents, ".") + "]",
                  "lines of `name = value` only");
            if (std::find(names.begin(), names.end(), item.name) == names.end())
                unknown_option(command_, "the config file has a key that is no option", item.name,
                               "");
            CHECK(!item.inputs.empty(), Exit::Usage, "the config file gives no value", item.name,
                  item.name + " = value");
        }
        return items;
    }

  private:
    Command command_;
};

Command command_take(std::vector<std::string>& args) {
    if (args.empty() || args[0].empty() || args[0][0] == '-') return Command::Train;
    std::vector<std::string> names;
    for (const CommandRow& row : command_table()) {
        if (row.name == args[0]) {
            args.erase(args.begin());
            return row.command;
        }
        names.push_back(row.name);
    }
    fail(Exit::Usage, "unknown command", "'" + args[0] + "'", CLI::detail::join(names, ", "),
         did_you_mean(args[0], names, "", "",
                      "a value belongs behind its option, as in --data 'shards_*.bin'"));
}

// CLI11's own complaints, in our form.
[[noreturn]] void parse_error(const CLI::ParseError& e, const std::string& command) {
    std::string what = e.what();
    if (const size_t end = what.find(": "); dynamic_cast<const CLI::ArgumentMismatch*>(&e))
        what = what.substr(0, end) + " needs a value";
    fail(Exit::Usage, what, "", "", str("`train_gpt ", command, " --help`"));
}

// Title, then lines of `left` padded to a column and `right` wrapped behind it.
void help_line(std::ostringstream& out, const std::string& left, const std::string& right) {
    constexpr size_t column = 30, width = 100;
    std::string line = "  " + left;
    line += line.size() < column ? std::string(column - line.size(), ' ')
                                 : "\n" + std::string(column, ' ');
    size_t used = column;
    std::istringstream words(right);
    for (std::string word; words >> word; used += word.size() + 1) {
        if (used + word.size() > width) {
            line.pop_back();
            line += "\n" + std::string(column, ' ');
            used = column;
        }
        line += word + " ";
    }
    line.pop_back();
    out << line << "\n";
}

void help_options(std::ostringstream& out, Command c) {
    const Options defaults;
    std::vector<std::string> groups;
    for (const OptionRow& row : option_table())
        if (row.belongs_to(c) && std::find(groups.begin(), groups.end(), row.group) == groups.end())
            groups.push_back(row.group);
    for (const std::string& group : groups) {
        out << "\n" << group << "\n";
        for (const OptionRow& row : option_table()) {
            if (!row.belongs_to(c) || row.group != group) continue;
            const std::string left =
                row.positional() ? row.name : "--" + row.name + " " + row.value;
            std::string value = row.fallback.empty() ? row.get(defaults) : row.fallback;
            if (row.required || row.positional()) value.clear();
            help_line(out, left,
                      row.help + (row.required    ? " (required)"
                                  : value.empty() ? ""
                                                  : " [" + value + "]"));
        }
    }
    out << "\nAnywhere\n";
    help_line(out, "--config FILE",
              "lines of `name = value` with the names above; the command line wins");
    help_line(out, "-h, --help", "this text; behind a command, its options");
    help_line(out, "--version", "how this program was built");
}

}  // namespace

const char* command_name(Command c) {
    return command_row(c).name.c_str();
}

std::string options_help(Command c) {
    std::ostringstream out;
    const CommandRow& mine = command_row(c);
    out << "train_gpt " << mine.name << ": " << mine.what << "\n\n"
        << "Usage: train_gpt " << mine.usage << "\n\nFor example\n"
        << mine.examples << "\n";
    if (c == Command::Train) {
        out << "  make quickstart                              # all of it, from a text to "
               "samples\n"
            << "\nCommands (`train_gpt COMMAND --help` for each)\n";
        for (const CommandRow& row : command_table()) help_line(out, row.name, row.what);
    }
    help_options(out, c);
    out << "\nExit codes: 0 done, 2 bad usage or input, 3 data or checkpoint damaged, 4 out of "
           "memory "
           "or\ndisk, 5 stopped on non-finite numbers or spikes, 6 hang, 7 stopped by a signal "
           "after "
           "a save.\n";
    return out.str();
}

Options options_parse(int argc, const char* const* argv) {
    std::vector<std::string> args(argv + 1, argv + argc);
    Options opt;
    opt.command = command_take(args);
    const Command c = opt.command;

    // One CLI11 option a row.
    CLI::App app;
    app.set_help_flag();
    app.allow_extras();
    bool asked_help = false, asked_version = false;
    app.add_flag("-h,--help", asked_help);
    app.add_flag("--version", asked_version);
    app.set_config("--config");
    app.config_formatter(std::make_shared<StrictConfig>(c));
    std::vector<std::pair<const OptionRow*, CLI::Option*>> known;
    for (const OptionRow& row : option_table()) {
        if (!row.belongs_to(c)) continue;
        const std::string name =
            row.positional() ? row.name.substr(0, row.name.find('.')) : "--" + row.name;
        CLI::Option* option = app.add_option(name, [&opt, &row, name](const CLI::results_t& texts) {
            row.set(opt, name, texts);
            return true;
        });
        if (row.many)
            option->expected(1, -1)->allow_extra_args();
        else
            option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
        if (!row.bare.empty()) option->expected(0, 1)->default_str(row.bare);
        known.emplace_back(&row, option);
    }

    // CLI11 wants the arguments last first.
    try {
        app.parse(std::vector<std::string>(args.rbegin(), args.rend()));
    } catch (const CLI::ParseError& e) {
        parse_error(e, command_name(c));
    }
    if (asked_help || asked_version) {
        std::fputs((asked_version ? version_text() : options_help(c)).c_str(), stdout);
        opt.answered = true;
        return opt;
    }
    for (const std::string& extra : app.remaining()) {
        if (extra.starts_with("-") && extra.size() > 1)
            unknown_option(c, "unknown option", extra.substr(extra.find_first_not_of('-')), "--");
    }
    for (const std::string& extra : app.remaining())
        fail(Exit::Usage, "unexpected argument", "'" + extra + "'", "",
             "a value belongs behind its option; quote globs and texts");
    for (const auto& [row, option] : known) {
        CHECK(option->count() > 0 || !(row->required || row->positional()), Exit::Usage,
              str("`train_gpt ", command_name(c), "` needs ",
                  row->positional() ? row->name : "--" + row->name + " " + row->value),
              "", "", str("train_gpt ", command_row(c).usage));
    }
    options_check(opt);
    return opt;
}

OptionsGlance options_glance(int argc, const char* const* argv) {
    const std::string name = "--start-limit";
    OptionsGlance glance;
    glance.trains = argc < 2 || *argv[1] == '-' || *argv[1] == 0 || argv[1] == std::string("train");
    for (int i = 1; i < argc; i++) {
        const std::string word = argv[i];
        if (word == name && i + 1 < argc) glance.start_limit = std::atof(argv[i + 1]);
        if (word.starts_with(name + "="))
            glance.start_limit = std::atof(word.c_str() + name.size() + 1);
    }
    if (!(glance.start_limit > 0)) glance.start_limit = Options().start_limit;
    return glance;
}
