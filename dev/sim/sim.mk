# The simulator: every .cu compiled as C++ against dev/sim/include, which comes before any real CUDA
# header. The whole program is built once more, in build/sim (or build/sim-MODE):
#   make sim                    train_gpt, test_gpt, unit_tests
#   make sim-test               runs the unit tests
#   SIM_MODE=plain|asan|aubsan|trace|tsan|msan
# plain   the runtime's own checks
# asan, aubsan   address sanitizer, with undefined behaviour: host and device code
# trace   counters, races, uninitialised reads: the .cu files' accesses are instrumented for the
#         thread sanitizer, but its hooks are ours
# tsan, msan     clang's thread and memory sanitizers over the .cu files; host code as in plain
SIM_MODE ?= plain
SIM      := build/sim$(if $(filter-out plain,$(SIM_MODE)),-$(SIM_MODE))
SIM_OBJ  := $(SIM)/obj

SIM_CPP  := $(filter-out %_test.cpp,$(wildcard llmc/*/*.cpp))
SIM_CU   := $(filter-out %_test.cu,$(wildcard llmc/*/*.cu))
SIM_TEST := $(wildcard llmc/*/*_test.cpp) $(wildcard llmc/*/*_test.cu) $(wildcard dev/sim/tests/*_test.cu)
SIM_RT   := $(filter-out %/trace.cpp %/race.cpp %/hooks.cpp,$(wildcard dev/sim/src/*.cpp))
SIM_OBJ_OF = $(patsubst %.cpp,$(SIM_OBJ)/%.o,$(patsubst %.cu,$(SIM_OBJ)/%.cu.o,$(1)))

# Identical kernels must keep their own names, and a frame pointer makes every report's stack whole.
SIM_CPPFLAGS := -DLLMC_CUDA -DCUSIM -Idev/sim/include
SIM_COMMON   := -fno-omit-frame-pointer
SIM_CUFLAGS  := -fno-ipa-icf -Wno-unknown-pragmas
SIM_RTFLAGS  := -std=c++20 -O2 -g $(WARN) -fno-tree-loop-distribute-patterns
SIM_CU_CXX   := $(CXX)

# $(filter ...) drops the optimisation level that the sanitizers want lower.
SIM_CXXFLAGS = $(CXXFLAGS) $(SIM_COMMON)
ifeq ($(SIM_MODE),asan)
SIM_SAN      := -O1 -fsanitize=address
else ifeq ($(SIM_MODE),aubsan)
SIM_SAN      := -O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined
else ifeq ($(SIM_MODE),trace)
SIM_CUFLAGS  += -O1 -fno-tree-sra -fsanitize=thread -DCUSIM_TRACE
SIM_RT       := $(wildcard dev/sim/src/*.cpp)
else ifeq ($(SIM_MODE),tsan)
SIM_CU_CXX   := clang++
else ifeq ($(SIM_MODE),msan)
SIM_CU_CXX   := clang++
else ifneq ($(SIM_MODE),plain)
$(error SIM_MODE=$(SIM_MODE): expected plain, asan, aubsan, trace, tsan or msan)
endif

sim: $(SIM)/unit_tests
sim-test: $(SIM)/unit_tests
	$(SIM)/unit_tests

SIM_FLAGS_NOW := $(SIM_CU_CXX) $(SIM_CXXFLAGS) $(SIM_SAN) $(SIM_CUFLAGS) $(SIM_CPPFLAGS) $(CPPFLAGS)
$(SIM)/flags: FORCE
	@mkdir -p $(@D); echo '$(SIM_FLAGS_NOW)' | cmp -s - $@ || echo '$(SIM_FLAGS_NOW)' > $@

$(SIM_OBJ)/dev/sim/src/%.o: dev/sim/src/%.cpp $(SIM)/flags
	@mkdir -p $(@D)
	$(CCACHE) $(CXX) $(SIM_RTFLAGS) -Idev/sim/include -I. -MMD -MP -c $< -o $@
$(SIM_OBJ)/%.o: %.cpp $(SIM)/flags
	@mkdir -p $(@D)
	$(CCACHE) $(CXX) $(SIM_CXXFLAGS) $(SIM_SAN) $(SIM_CPPFLAGS) $(CPPFLAGS) -MMD -MP -c $< -o $@
$(SIM_OBJ)/%.cu.o: %.cu $(SIM)/flags
	@mkdir -p $(@D)
	$(CCACHE) $(SIM_CU_CXX) $(SIM_CXXFLAGS) $(SIM_SAN) $(SIM_CUFLAGS) $(SIM_CPPFLAGS) $(CPPFLAGS) -MMD -MP -x c++ -c $< -o $@

# What --version says, as in the main build.
$(SIM_OBJ)/llmc/train/version.o: CPPFLAGS += -I$(BUILD)
$(SIM_OBJ)/llmc/train/version.o: $(FACTS)

SIM_LIB_OBJ  := $(call SIM_OBJ_OF,$(SIM_CPP) $(SIM_CU) $(SIM_RT))
SIM_TEST_OBJ := $(call SIM_OBJ_OF,$(SIM_TEST))
$(SIM)/unit_tests: $(SIM_TEST_OBJ) $(SIM_LIB_OBJ)
	$(SIM_CU_CXX) $(SIM_CXXFLAGS) $(SIM_SAN) $(LDFLAGS) -o $@ $^ $(LDLIBS) -lgtest -lgtest_main

.PHONY: sim sim-test
-include $(SIM_LIB_OBJ:.o=.d) $(SIM_TEST_OBJ:.o=.d)
