// What the program's own symbol table says about kernels and shared variables.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cusim {

struct SharedVariable {
    char* p;
    size_t bytes;
    std::string owner;  // mangled function it belongs to, without the leading _Z
    std::string name;
    bool claimed = false;  // by a kernel that has run
};
struct KernelInfo {
    std::string name;          // readable
    std::string mangled;       // as cudaFuncGetName gives it
    unsigned max_threads = 0;  // of __launch_bounds__, 0 where there is none
    size_t static_smem = 0;    // its own shared variables; those of functions it calls not counted
    int max_dynamic_smem = 0;  // set by cudaFuncSetAttribute
    std::vector<SharedVariable*> shared;
};
KernelInfo& kernel_info(const void* kernel);

// All shared variables, by address.
const std::vector<SharedVariable*>& shared_variables();
// The one that holds p, or null.
const SharedVariable* shared_variable_at(const void* p);

// "file:line" of each code address: the innermost frame that is not the simulator's or a wrapper's.
std::vector<std::string> source_lines(const std::vector<uintptr_t>& code);
std::string source_line(uintptr_t code);
}  // namespace cusim
