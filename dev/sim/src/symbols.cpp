// What the program's own symbol table says about kernels and shared variables.
#include "symbols.h"

#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <unordered_map>

#include "report.h"
#include "sanitizer.h"

extern "C" {
// Written by g++ for each function with __launch_bounds__: the address of its first no-operation.
extern const unsigned char* __start___patchable_function_entries[] CUSIM_WEAK;
extern const unsigned char* __stop___patchable_function_entries[] CUSIM_WEAK;
}

namespace cusim {
namespace {

constexpr unsigned char kNop = 0x90;              // x86-64
constexpr char kSharedTag[] = "B12cusim_shared";  // how the ABI tag of __shared__ is mangled

struct Function {
    uintptr_t address;
    std::string mangled;
};
struct Symbols {
    uintptr_t base = 0;
    std::vector<Function> functions;  // by address
    std::vector<std::unique_ptr<SharedVariable>> owned;
    std::vector<SharedVariable*> shared;  // by address
};

std::string demangle(const std::string& mangled) {
    int status = 0;
    char* readable = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
    if (kMsan && readable) __msan_unpoison_string(readable);  // written by the library, unseen
    std::string name = status == 0 ? readable : mangled;
    free(readable);
    if (const size_t tag = name.find("[abi:cusim_shared]"); tag != std::string::npos)
        name.erase(tag, strlen("[abi:cusim_shared]"));
    return name;
}

// "_ZZ1kPfE1sB12cusim_shared": the variable s of the function 1kPf. Inside a lambda of the kernel
// there are more Zs and the text goes on after the owner.
std::string owner_of(const char* mangled) {
    const char* p = mangled + 2;
    while (*p == 'Z') p++;
    return p;
}

void read_symbol_table(const char* image, Symbols& out) {
    const auto* header = reinterpret_cast<const Elf64_Ehdr*>(image);
    const auto* sections = reinterpret_cast<const Elf64_Shdr*>(image + header->e_shoff);
    for (int i = 0; i < header->e_shnum; i++) {
        if (sections[i].sh_type != SHT_SYMTAB) continue;
        const char* names = image + sections[sections[i].sh_link].sh_offset;
        const auto* symbol = reinterpret_cast<const Elf64_Sym*>(image + sections[i].sh_offset);
        for (size_t n = sections[i].sh_size / sizeof(Elf64_Sym); n > 0; n--, symbol++) {
            const char* name = names + symbol->st_name;
            const int type = ELF64_ST_TYPE(symbol->st_info);
            if (symbol->st_shndx == SHN_UNDEF) continue;
            if (type == STT_FUNC) {
                out.functions.push_back({out.base + symbol->st_value, name});
            } else if (type == STT_OBJECT && strstr(name, kSharedTag)) {
                auto v = std::make_unique<SharedVariable>();
                v->p = reinterpret_cast<char*>(out.base + symbol->st_value);
                v->bytes = symbol->st_size;
                v->owner = owner_of(name);
                v->name = demangle(name);
                out.shared.push_back(v.get());
                out.owned.push_back(std::move(v));
            }
        }
    }
    std::sort(out.functions.begin(), out.functions.end(),
              [](auto& a, auto& b) { return a.address < b.address; });
    std::sort(out.shared.begin(), out.shared.end(), [](auto* a, auto* b) { return a->p < b->p; });
}

Symbols load_symbols() {
    Symbols out;
    // The first object that the loader lists is the program itself.
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* base) {
            *static_cast<uintptr_t*>(base) = info->dlpi_addr;
            return 1;
        },
        &out.base);
    const int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    struct stat status {};
    if (file < 0 || fstat(file, &status) != 0) fail("cannot read the program's own symbol table");
    void* image = mmap(nullptr, size_t(status.st_size), PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    if (image == MAP_FAILED) fail("cannot map the program's own symbol table");
    read_symbol_table(static_cast<const char*>(image), out);
    munmap(image, size_t(status.st_size));
    if (out.functions.empty()) fail("the program has no symbol table: link it without -s");
    return out;
}
Symbols& symbols() {
    static Symbols* const table = new Symbols(load_symbols());
    return *table;
}

// The no-operations of __launch_bounds__ end where the kernel begins; anything else in between
// means that the nearest entry belongs to another function.
unsigned launch_bounds(const void* kernel) {
    const auto* entry = static_cast<const unsigned char*>(kernel);
    for (auto** p = __start___patchable_function_entries; p < __stop___patchable_function_entries;
         p++) {
        const ptrdiff_t n = entry - *p;
        if (n > 0 && n <= 1024 && std::all_of(*p, entry, [](auto byte) { return byte == kNop; }))
            return unsigned(n);
    }
    return 0;
}

KernelInfo make_kernel_info(const void* kernel) {
    KernelInfo info;
    const auto address = reinterpret_cast<uintptr_t>(kernel);
    auto& functions = symbols().functions;
    auto f = std::lower_bound(functions.begin(), functions.end(), address,
                              [](auto& a, uintptr_t b) { return a.address < b; });
    if (f == functions.end() || f->address != address) {
        info.name = info.mangled = "?";
        return info;
    }
    info.mangled = f->mangled;
    info.name = demangle(f->mangled);
    info.max_threads = launch_bounds(kernel);
    const std::string owner = f->mangled.substr(2) + "E";
    for (SharedVariable* v : symbols().shared) {
        if (v->owner.compare(0, owner.size(), owner) != 0) continue;
        v->claimed = true;
        info.shared.push_back(v);
        info.static_smem += v->bytes;
    }
    return info;
}

}  // namespace

KernelInfo& kernel_info(const void* kernel) {
    static auto* const known = new std::unordered_map<const void*, KernelInfo>;
    auto found = known->find(kernel);
    if (found == known->end()) found = known->emplace(kernel, make_kernel_info(kernel)).first;
    return found->second;
}

const std::vector<SharedVariable*>& shared_variables() {
    return symbols().shared;
}

const SharedVariable* shared_variable_at(const void* p) {
    auto& all = symbols().shared;
    auto next = std::upper_bound(all.begin(), all.end(), p,
                                 [](const void* a, SharedVariable* b) { return a < b->p; });
    if (next == all.begin()) return nullptr;
    const SharedVariable* v = *--next;
    return p < v->p + v->bytes ? v : nullptr;
}

// One addr2line for all addresses: it reads the debug information once. With -i it prints the whole
// chain of inlined calls for each address, innermost first; an echoed address starts each chain.
std::vector<std::string> source_lines(const std::vector<uintptr_t>& code) {
    std::string command = "addr2line -a -i -e /proc/" + std::to_string(getpid()) + "/exe";
    for (uintptr_t pc : code) {
        char text[32];  // a return address lies behind its call
        snprintf(text, sizeof text, " %#lx", (unsigned long)(pc - 1 - symbols().base));
        command += text;
    }
    std::vector<std::string> lines(code.size(), "?");
    FILE* pipe = popen((command + " 2>/dev/null").c_str(), "r");
    if (!pipe) return lines;
    char text[4096];
    size_t n = 0;
    bool settled = false;
    while (fgets(text, sizeof text, pipe)) {
        text[strcspn(text, " \n")] = 0;
        if (!strncmp(text, "0x", 2)) {
            n++, settled = false;
            continue;
        }
        if (n == 0 || n > lines.size() || settled) continue;
        const char* slash = strrchr(text, '/');
        lines[n - 1] = slash ? slash + 1 : text;
        settled = !strstr(text, "dev/sim/include") && !strstr(text, "packed.cuh") &&
                  !strstr(text, "tensorop.cuh");
    }
    pclose(pipe);
    return lines;
}
std::string source_line(uintptr_t code) {
    return source_lines({code})[0];
}

}  // namespace cusim
