// dev/fault/kill.cpp: kills the trainer in a given place, as if the machine had run out of memory.
//
//   FAULT_KILL="2 forward 5" mpirun -np 3 build/fault/train_gpt_killed ...  rank 2, forward, step 5
//
// The linker puts the functions below between the trainer and its library (--wrap, fault.mk); the
// trainer itself is the object that train_gpt is made of. A name that has gone stale does not link.
#include <signal.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "llmc/io/checkpoint.h"
#include "llmc/parallel/shards.h"

namespace {
std::atomic<int64_t> now{0};  // the step begun last; a save of step S comes after S

// Whether this process is to die here.
void strike(const char* place) {
    static const char* const text = std::getenv("FAULT_KILL");
    static const char* const mine = std::getenv("OMPI_COMM_WORLD_RANK");
    char where[32] = "";
    int rank = 0;
    long long step = 0;
    if (!text || std::sscanf(text, "%d %31s %lld", &rank, where, &step) != 3) return;
    if (rank == (mine ? std::atoi(mine) : 0) && now >= step && std::strcmp(where, place) == 0)
        ::raise(SIGKILL);
}

// Gradients on their way, not the small sums that go round at other times.
void strike_gradients(const char* what) {
    if (std::strncmp(what, "gradients", 9) == 0) strike("reduce");
}
}  // namespace

// A function of the library by its linker name: WRAP(name, result, arguments declared, passed).
#define WRAP(name, Result, declared, passed, ...) \
    extern "C" Result __real_##name declared;     \
    extern "C" Result __wrap_##name declared {    \
        __VA_ARGS__;                              \
        return __real_##name passed;              \
    }
using Floats = Shards<float, CpuStream>;

// clang-format off
// (fault.mk reads the names behind `WRAP(`)
WRAP(_Z14cuda_note_stepl, void, (int64_t step), (step), now = step)
WRAP(_ZN6ShardsIf9CpuStreamE14params_acquireEi, float*, (Floats * s, int block), (s, block),
     if (block == 1) strike("forward"))
WRAP(_ZN6ShardsIf9CpuStreamE13grads_acquireEi, float*, (Floats * s, int block), (s, block),
     if (block == 1) strike("backward"))
WRAP(_ZN4Comm10all_reduceEPvm5Dtype8ReduceOpPKc, void,
     (Comm * c, void* data, size_t n, Dtype t, ReduceOp op, const char* what),
     (c, data, n, t, op, what), strike_gradients(what))
WRAP(_ZN4Comm14reduce_scatterEPvPKv6Slices5Dtype8ReduceOpPKc, void,
     (Comm * c, void* mine, const void* all, Slices s, Dtype t, ReduceOp op, const char* what),
     (c, mine, all, s, t, op, what), strike_gradients(what))
WRAP(_ZN4Comm10all_to_allEPv6Slices5DtypeRKSt8functionIFvS0_mmEEPKcS0_, void,
     (Comm * c, void* all, Slices s, Dtype t, const Comm::Take& take, const char* what, void* room),
     (c, all, s, t, take, what, room), strike_gradients(what))
WRAP(_ZN6ShardsIf9CpuStreamE6gatherEv, void, (Floats * s), (s), strike("update"))
WRAP(_Z11shard_writeRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKSt6vectorI11TensorPieceSaIS8_EE,
    void, (const std::string& path, const std::vector<TensorPiece>& pieces), (path, pieces),
    strike("save"))
WRAP(_Z11rename_pathRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEES6_, void,
     (const std::string& from, const std::string& to), (from, to), strike("publish"))
// clang-format on
