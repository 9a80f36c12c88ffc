#include "llmc/io/checkpoint_names.h"

#include <cstdio>

#include "llmc/core/check.h"
#include "llmc/io/files.h"

static constexpr size_t STEP_NAME_LENGTH = 15;  // "step-" and ten digits

std::string ckpt_dir(const std::string& out_dir) {
    return out_dir + "/ckpt";
}

std::string step_name(int64_t step) {
    char name[32];
    std::snprintf(name, sizeof name, "step-%010lld", (long long)step);
    return name;
}

int64_t step_of(const std::string& name) {
    if (name.size() != STEP_NAME_LENGTH || name.compare(0, 5, "step-") != 0) return -1;
    int64_t step = 0;
    for (char c : name.substr(5)) {
        if (c < '0' || c > '9') return -1;
        step = step * 10 + (c - '0');
    }
    return step;
}

std::string step_suffix(const std::string& name) {
    if (step_of(name.substr(0, STEP_NAME_LENGTH)) < 0) return "?";
    return name.substr(STEP_NAME_LENGTH);
}

bool is_unfinished(const std::string& name) {
    const std::string suffix = step_suffix(name);
    return suffix == ".del" || suffix.compare(0, 5, ".tmp-") == 0;
}

bool is_refused(const std::string& name) {
    const std::string suffix = step_suffix(name);
    return suffix == ".bad" || suffix.compare(0, 5, ".bad.") == 0;
}

std::string rename_aside(const std::string& dir, const std::string& name,
                         const std::string& suffix) {
    std::string to = name + suffix;
    for (int i = 1; path_exists(dir + "/" + to); i++) to = name + suffix + "." + std::to_string(i);
    rename_path(dir + "/" + name, dir + "/" + to);
    return to;
}

void checkpoint_warn(const std::string& text) {
    std::fprintf(stderr, "%s\n", text.c_str());
}
