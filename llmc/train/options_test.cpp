// llmc/train/options_test.cpp: good values arrive, bad ones are refused with code 2 and a hint.
#include "llmc/train/options.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <set>

#include "llmc/core/check.h"
#include "llmc/train/options_table.h"
#include "llmc/train/version.h"

namespace {

Options parse(std::vector<const char*> args) {
    args.insert(args.begin(), "train_gpt");
    return options_parse(int(args.size()), args.data());
}
// The message of a refused command line; empty if it was accepted.
std::string refusal(std::vector<const char*> args) {
    try {
        parse(std::move(args));
    } catch (const Error& e) {
        EXPECT_EQ(e.code, Exit::Usage);
        return e.what();
    }
    return "";
}
std::string refusal_derive(Options opt, int model_max_seq_len, int ranks) {
    try {
        options_derive(opt, model_max_seq_len, ranks);
    } catch (const Error& e) {
        EXPECT_EQ(e.code, Exit::Usage);
        return e.what();
    }
    return "";
}
bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

class ConfigFile {
  public:
    explicit ConfigFile(const std::string& text)
        : path_(testing::TempDir() + "options_test_" + std::to_string(getpid()) + ".toml") {
        std::ofstream(path_) << text;
    }
    ~ConfigFile() { std::remove(path_.c_str()); }
    const char* path() const { return path_.c_str(); }

  private:
    std::string path_;
};

}  // namespace

TEST(options, defaults_are_those_of_the_struct) {
    const Options opt = parse({"--data", "x.bin"}), fresh;
    EXPECT_EQ(opt.command, Command::Train);
    EXPECT_EQ(opt.data, std::vector<std::string>{"x.bin"});
    for (const OptionRow& row : option_table())
        if (row.belongs_to(Command::Train)) {
            EXPECT_EQ(row.get(opt), row.get(fresh)) << row.name;
        }
}

TEST(options, every_row_sets_its_own_field_and_no_other) {
    const Options fresh;
    for (const CommandRow& command : command_table())
        for (const OptionRow& row : option_table()) {
            if (!row.belongs_to(command.command)) continue;
            // A value that is legal and differs from the default, found by trying some.
            bool changed = false;
            for (const char* text :
                 {"1", "0.5", "2", "300", "linear", "cpu", "cuda", "bf16", "stochastic", "block",
                  "fast", "off", "on", "cudnn", "lambada", "hf", "some/path"}) {
                Options opt;
                try {
                    row.set(opt, row.name, {text});
                } catch (const Error&) {
                    continue;
                }
                if (row.many) {
                    changed |= opt.files.size() + opt.data.size() + opt.val_data.size() +
                                   opt.file.size() ==
                               1;
                    continue;
                }
                if (row.get(opt) == row.get(fresh)) continue;
                changed = true;
                for (const OptionRow& other : option_table())
                    if (other.name != row.name && other.belongs_to(command.command)) {
                        EXPECT_EQ(other.get(opt), other.get(fresh)) << row.name << other.name;
                    }
            }
            const bool fixed = row.name == "tp" || row.name == "pp";  // 1 is all they accept
            EXPECT_EQ(changed, !fixed) << command.name << " " << row.name;
        }
}

TEST(options, names_are_unique_in_each_command) {
    for (const CommandRow& command : command_table()) {
        std::set<std::string> seen;
        for (const OptionRow& row : option_table())
            if (row.belongs_to(command.command)) {
                EXPECT_TRUE(seen.insert(row.name).second) << command.name << " " << row.name;
            }
    }
}

TEST(options, values_of_every_type) {
    const Options opt = parse({"train",
                               "--data",
                               "a.bin",
                               "b.bin",
                               "--lr=3e-4",
                               "--steps",
                               "12",
                               "--batch-tokens",
                               "5000000000",
                               "--seed",
                               "18446744073709551615",
                               "--schedule",
                               "wsd",
                               "--dtype",
                               "fp32",
                               "--prompt",
                               "--not an option",
                               "--recompute",
                               "block",
                               "--val-data",
                               "v*.bin",
                               "--data",
                               "c.bin"});
    EXPECT_EQ(opt.data, (std::vector<std::string>{"a.bin", "b.bin", "c.bin"}));
    EXPECT_EQ(opt.val_data, std::vector<std::string>{"v*.bin"});
    EXPECT_EQ(opt.lr, 3e-4);
    EXPECT_EQ(opt.steps, 12);
    EXPECT_EQ(opt.batch_tokens, 5000000000);
    EXPECT_EQ(opt.seed, 18446744073709551615u);
    EXPECT_EQ(opt.schedule, Schedule::Wsd);
    EXPECT_EQ(opt.recompute, Recompute::Block);
    EXPECT_EQ(opt.prompt, "--not an option");
    EXPECT_EQ(parse({"--data", "x", "--prompt", ""}).prompt, "");
    EXPECT_EQ(parse({"--data", "x", "--prompt", "[a, b]"}).prompt, "[a, b]");
    EXPECT_EQ(parse({"--data", "x", "--steps", "5", "--steps", "6"}).steps,
              6);  // the last one wins
}

TEST(options, commands) {
    const Options t = parse({"tokenize", "a.txt", "b.txt", "--tokenizer", "byte", "--out", "p"});
    EXPECT_EQ(t.command, Command::Tokenize);
    EXPECT_EQ(t.files, (std::vector<std::string>{"a.txt", "b.txt"}));
    EXPECT_EQ(t.out, "p");
    EXPECT_EQ(parse({"verify", "out/ckpt/step-1"}).path, "out/ckpt/step-1");
    EXPECT_EQ(parse({"generate", "--model", "m", "--temperature", "0"}).temperature, 0);
    // An option whose value may be left out.
    EXPECT_EQ(parse({"--data", "x"}).async_save, AsyncSaves::Off);
    EXPECT_EQ(parse({"--async-save", "--data", "x"}).async_save, AsyncSaves::On);
    EXPECT_EQ(parse({"--data", "x", "--async-save"}).async_save, AsyncSaves::On);
    EXPECT_EQ(parse({"--async-save", "off", "--data", "x"}).async_save, AsyncSaves::Off);
    EXPECT_TRUE(has(refusal({"--data", "x", "--async-save", "yes"}), "off|on"));
    EXPECT_EQ(
        parse({"--async-save", "--data", "x", "--config", ConfigFile("async-save = off\n").path()})
            .async_save,
        AsyncSaves::On);
    EXPECT_EQ(parse({"--data", "x", "--config", ConfigFile("async-save = on\n").path()}).async_save,
              AsyncSaves::On);
    EXPECT_EQ(parse({"plan", "--ranks", "8", "--zero", "3"}).ranks, 8);
    EXPECT_EQ(parse({"export", "c", "--format", "hf", "--out", "x"}).format, ExportFormat::Hf);
    EXPECT_TRUE(has(refusal({"export", "c", "--format", "hff", "--out", "x"}),
                    "did you mean --format hf?"));
}

TEST(options, unknown_names_are_refused_with_the_nearest) {
    EXPECT_TRUE(has(refusal({"--data", "x", "--stpes", "5"}), "--stpes"));
    EXPECT_TRUE(has(refusal({"--data", "x", "--stpes", "5"}), "did you mean --steps?"));
    EXPECT_TRUE(has(refusal({"--data", "x", "--micro_batch=5"}), "did you mean --micro-batch?"));
    EXPECT_TRUE(has(refusal({"--data", "x", "--temperature", "1"}), "`train_gpt generate`"));
    EXPECT_TRUE(has(refusal({"--data", "x", "--zzzzzzzzz", "1"}), "--help"));
    EXPECT_FALSE(has(refusal({"--data", "x", "--zzzzzzzzz", "1"}), "did you mean"));
    EXPECT_FALSE(has(refusal({"zzzzzzzzz"}), "did you mean"));
    EXPECT_TRUE(has(refusal({"tokenise", "x"}), "did you mean tokenize?"));
    EXPECT_TRUE(has(refusal({"--data", "x", "--schedule", "cosin"}), "--schedule cosine"));
    // Where nothing is near, nothing is suggested.
    for (const auto& args : {std::vector<const char*>{"--data", "x", "--zzzzzzzzz", "1"},
                             {"zzzzzzzzzzzz", "x"},
                             {"--data", "x", "--schedule", "zzzzzzzzz"},
                             {"--data", "x", "--config", "no"}}) {
        EXPECT_FALSE(has(refusal(args), "did you mean")) << refusal(args);
        EXPECT_FALSE(has(refusal(args), "hint: --schedule")) << refusal(args);
    }
    EXPECT_TRUE(has(refusal({"verify", "a", "b"}), "unexpected argument"));
}

TEST(options, bad_values_are_refused) {
    const std::vector<std::vector<const char*>> bad = {
        {"--steps", "0"},
        {"--steps", "-5"},
        {"--steps", "1.5"},
        {"--steps", "ten"},
        {"--steps", ""},
        {"--steps", "3000000000"},
        {"--micro-batch", "0"},
        {"--seq-len", "-1"},
        {"--batch-tokens", "0"},
        {"--lr", "0"},
        {"--lr", "-1e-3"},
        {"--lr", "nan"},
        {"--lr", "inf"},
        {"--lr", "1e-3x"},
        {"--min-lr-frac", "1.5"},
        {"--beta1", "1"},
        {"--eps", "0"},
        {"--grad-clip", "-1"},
        {"--zero", "4"},
        {"--tp", "2"},
        {"--pp", "2"},
        {"--keep", "1"},
        {"--threads", "0"},
        {"--dtype", "fp16"},
        {"--save-every", "-1"},
        {"--seed", "-1"},
        {"--vocab-size", "0"},
        {"--bucket-mb", "0"},
        {"--max-skipped", "0"},
        {"--recompute", "all"},
        {"--schedule", "Cosine"},
        {"--loss-spike-z", "-2"},
        {"--reduction", "slow"},
        {"--sample-tokens", "0"},
        {"--val-batches", "0"},
        {"--warmup-steps", "1001"},
    };
    for (auto args : bad) {
        const std::string name = args[0];
        args.insert(args.begin(), {"--data", "x"});
        EXPECT_TRUE(has(refusal(args), name)) << name << ": " << refusal(args);
    }
    EXPECT_TRUE(
        has(refusal({"--data", "x", "--steps", "0"}), "found '0'; expected a whole number, 1"));
    EXPECT_TRUE(has(refusal({"--data", "x", "--steps"}), "--steps needs a value"));
    EXPECT_TRUE(has(refusal({"generate", "--model", "m", "--top-p", "0"}), "--top-p"));
    EXPECT_TRUE(has(refusal({"train-bpe", "f", "--out", "o", "--vocab-size", "256"}), "257"));
}

TEST(options, what_is_missing_is_named) {
    EXPECT_TRUE(has(refusal({}), "make quickstart"));
    EXPECT_TRUE(has(refusal({"tokenize", "--tokenizer", "byte", "--out", "p"}), "needs FILE..."));
    EXPECT_TRUE(has(refusal({"tokenize", "f", "--out", "p"}), "needs --tokenizer"));
    EXPECT_TRUE(has(refusal({"generate"}), "needs --model PATH"));
    EXPECT_TRUE(has(refusal({"verify"}), "needs PATH"));
    EXPECT_EQ(refusal({"plan"}), "");
}

TEST(options, config_file) {
    const ConfigFile file(
        "# a comment\n"
        "steps = 77\n"
        "data = [\"a*.bin\", \"b.bin\"]\n"
        "prompt = \"It was, he said\"\n"
        "lr = 1e-3\n");
    const Options opt = parse({"--config", file.path(), "--lr", "2e-3"});
    EXPECT_EQ(opt.steps, 77);
    EXPECT_EQ(opt.data, (std::vector<std::string>{"a*.bin", "b.bin"}));
    EXPECT_EQ(opt.prompt, "It was, he said");
    EXPECT_EQ(opt.lr, 2e-3);  // the command line wins
}

TEST(options, config_file_refusals) {
    const auto refused = [](const std::string& text) {
        const ConfigFile file(text);
        return refusal({"--data", "x", "--config", file.path()});
    };
    EXPECT_TRUE(has(refused("stesp = 3\n"), "stesp"));
    EXPECT_TRUE(has(refused("stesp = 3\n"), "did you mean steps?"));
    EXPECT_TRUE(has(refused("steps = 0\n"), "bad value for --steps"));
    EXPECT_TRUE(has(refused("[train]\nsteps = 3\n"), "sections"));
    EXPECT_TRUE(has(refused("temperature = 3\n"), "generate"));
    EXPECT_TRUE(has(refused("\x7f\x45\x4c\x46\x02\x01\n"), "no option"));
    EXPECT_TRUE(has(refusal({"--data", "x", "--config", "/nonexistent/x.toml"}), "/nonexistent"));
}

TEST(options, help_names_every_option_of_the_command_once) {
    for (const CommandRow& command : command_table()) {
        const std::string help = options_help(command.command);
        EXPECT_TRUE(has(help, command.usage));
        for (const OptionRow& row : option_table()) {
            if (row.positional()) continue;
            const std::string line = "\n  --" + row.name + " ";
            size_t count = 0;
            for (size_t at = help.find(line); at != std::string::npos; at = help.find(line, at + 1))
                count++;
            bool mine = false;
            for (const OptionRow& same : option_table())
                mine |= same.name == row.name && same.belongs_to(command.command);
            EXPECT_EQ(count, mine ? 1u : 0u) << command.name << " " << row.name;
        }
        for (size_t start = 0, end; (end = help.find('\n', start)) != std::string::npos;
             start = end + 1)
            EXPECT_LE(end - start, 112u) << help.substr(start, end - start);
    }
    for (const auto& [command, option, text] : {std::tuple("train", "--help", "--batch-tokens N"),
                                                {"verify", "-h", "train_gpt verify PATH"},
                                                {"plan", "--version", "compiler"}}) {
        testing::internal::CaptureStdout();
        EXPECT_TRUE(parse({command, option}).answered);
        EXPECT_TRUE(has(testing::internal::GetCapturedStdout(), text)) << command << option;
    }
    EXPECT_FALSE(parse({"train", "--data", "x"}).answered);
    for (const char* fact : {"compiler", "flags", "CUDA", "MPI", "BLAS", "HDF5"})
        EXPECT_TRUE(has(version_text(), fact)) << fact;
}

TEST(options, a_glance_before_they_are_checked) {
    const auto glance = [](std::vector<const char*> args) {
        return options_glance(int(args.size()), args.data());
    };
    EXPECT_EQ(glance({"train_gpt"}).start_limit, Options().start_limit);
    EXPECT_EQ(glance({"train_gpt", "--no-such", "--start-limit", "3.5"}).start_limit, 3.5);
    EXPECT_EQ(glance({"train_gpt", "--start-limit=2", "--lr"}).start_limit, 2);
    for (const char* bad : {"0", "-1", "soon", "nan"})
        EXPECT_EQ(glance({"train_gpt", "--start-limit", bad}).start_limit, Options().start_limit);
    EXPECT_EQ(glance({"train_gpt", "--start-limit"}).start_limit, Options().start_limit);
    EXPECT_TRUE(glance({"train_gpt"}).trains);
    EXPECT_TRUE(glance({"train_gpt", "--data", "x"}).trains);
    EXPECT_TRUE(glance({"train_gpt", "train"}).trains);
    EXPECT_FALSE(glance({"train_gpt", "generate", "--tokens", "3"}).trains);
}

TEST(options, derived_batch) {
    Options opt;
    opt.micro_batch = 2;
    opt.seq_len = 64;
    options_derive(opt, 1024, 3);
    EXPECT_EQ(opt.batch_tokens, 2 * 64 * 3);
    EXPECT_EQ(opt.grad_accum, 1);

    opt.batch_tokens = 2 * 64 * 3 * 5;
    options_derive(opt, 1024, 3);
    EXPECT_EQ(opt.grad_accum, 5);
    EXPECT_EQ(step_text(opt), "1,920 tokens = 5 x 2 x 64 on 3 ranks");

    // Ranks need not divide the micro-batches.
    options_derive(opt, 1024, 4);
    EXPECT_EQ(opt.micro_batches, 15);
    EXPECT_EQ(opt.grad_accum, 4);
    EXPECT_EQ(
        step_text(opt),
        "1,920 tokens = 15 micro-batches of 2 x 64 on 4 ranks, 4 or 3 each: 6 % of the work is "
        "padding");
    EXPECT_TRUE(has(refusal_derive(opt, 1024, 16), "--batch-tokens 2048, or at most 15 ranks"));

    opt.batch_tokens = 1000;
    EXPECT_TRUE(has(refusal_derive(opt, 1024, 1), "--batch-tokens 896 or 1024"));
    EXPECT_TRUE(has(refusal_derive(opt, 1024, 8), "--batch-tokens 1024"));
    EXPECT_FALSE(has(refusal_derive(opt, 1024, 8), "896"));
    EXPECT_TRUE(has(refusal_derive(opt, 1024, 1), "micro-batch 2 x seq-len 64 = 128"));
    opt.batch_tokens = 100;
    EXPECT_TRUE(has(refusal_derive(opt, 1024, 1), "--batch-tokens 128"));
    EXPECT_TRUE(has(refusal_derive(opt, 32, 1), "--seq-len is longer"));

    Options wide;  // products are 64-bit
    wide.micro_batch = 1 << 20;
    wide.seq_len = 1 << 20;
    EXPECT_TRUE(has(refusal_derive(wide, 1 << 20, 1), "too large"));
}

TEST(options, derived_defaults) {
    Options opt;
    opt.steps = 100;
    options_derive(opt, 2048, 1);
    EXPECT_EQ(opt.seq_len, 1024);
    EXPECT_EQ(opt.warmup_steps, 10);
    Options tiny;
    tiny.steps = 100'000;
    options_derive(tiny, 6, 1);
    EXPECT_EQ(tiny.seq_len, 6);
    EXPECT_EQ(tiny.warmup_steps, 700);
}
