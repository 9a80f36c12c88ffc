// dev/ladder/main.cu: runs the ladders, or those named: ladder
// [layernorm|classifier|matmul|attention]...
#include <cstring>

#include "dev/ladder/ladder.cuh"

int main(int argc, char** argv) try {
    const struct {
        const char* name;
        void (*run)();
    } ladders[] = {{"layernorm", layernorm_ladder},
                   {"classifier", classifier_ladder},
                   {"matmul", matmul_ladder},
                   {"attention", attention_ladder}};
    for (const auto& ladder : ladders) {
        bool wanted = argc == 1;
        for (int i = 1; i < argc; i++) wanted |= !std::strcmp(argv[i], ladder.name);
        if (wanted) ladder.run();
    }
    return Ladder::failed;
} catch (const Error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return int(e.code);
}
