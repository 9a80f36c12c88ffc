// Runs one planted fault or its twin: faults NAME wrong|right. Without arguments: lists the names.
// Exit code 3: the result is wrong. run.py compares all outcomes with expected.txt.
#include <cstdio>
#include <cstring>
#include <exception>

#include "fault.h"

static std::vector<Case>& cases() {
    static std::vector<Case> all;
    return all;
}
Case::Case(const char* name, void (*run)(bool)) : name(name), run(run) {
    cases().push_back(*this);
}

static bool result_wrong = false;

float* device_floats(int n, Content content) {
    float* p = nullptr;
    CUDA_CHECK(cudaMalloc(&p, size_t(n) * sizeof(float)));
    if (content == Content::Nothing) return p;
    std::vector<float> numbers(n);
    for (int i = 0; i < n; i++) numbers[i] = float(i);
    CUDA_CHECK(cudaMemcpy(p, numbers.data(), size_t(n) * sizeof(float), cudaMemcpyHostToDevice));
    return p;
}
std::vector<float> host_copy(const float* p, int n) {
    std::vector<float> values(n);
    CUDA_CHECK(cudaMemcpy(values.data(), p, size_t(n) * sizeof(float), cudaMemcpyDeviceToHost));
    return values;
}
void expect_values(const std::vector<float>& values, float (*expected)(int i)) {
    int wrong = 0;
    for (int i = 0; i < int(values.size()); i++) wrong += !(values[i] == expected(i));
    if (wrong == 0) return;
    printf("WRONG RESULT: %d of %zu values\n", wrong, values.size());
    result_wrong = true;
}

int main(int argc, char** argv) {
    if (argc != 3) {
        for (const Case& c : cases()) puts(c.name);
        return argc == 1 ? 0 : 2;
    }
    for (const Case& c : cases()) {
        if (strcmp(c.name, argv[1])) continue;
        try {
            c.run(!strcmp(argv[2], "wrong"));
            CUDA_CHECK(cudaDeviceSynchronize());
        } catch (const std::exception& e) {
            fprintf(stderr, "%s\n", e.what());
            return 1;
        }
        return result_wrong ? 3 : 0;
    }
    fprintf(stderr, "no case %s\n", argv[1]);
    return 2;
}
