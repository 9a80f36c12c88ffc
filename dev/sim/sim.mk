# The simulator: every .cu compiled as C++ against dev/sim/include, which comes before any real CUDA
# header. The whole program is built once more, in build/sim (or build/sim-MODE):
#   make sim                    train_gpt, test_gpt, kernel_tests, unit_tests
#   make sim-test               runs kernel_tests: *_cuda_test.cu beside the ops, and dev/sim/tests
#   make sim-faults             runs the planted faults; TEST_DEEP=1 for all modes
#   make sim-report [OP=name]   the cost table
#   SIM_MODE=plain|asan|aubsan|trace|tsan|msan
# plain   the runtime's own checks
# asan, aubsan   address sanitizer, with undefined behaviour: host and device code
# trace   counters, races, uninitialised reads: the .cu files' accesses are instrumented for the
#         thread sanitizer, but its hooks are ours
# tsan, msan     clang's thread and memory sanitizers over the .cu files; host code as in plain
SIM_MODE ?= plain
SIM      := $(BUILD)/sim$(if $(filter-out plain,$(SIM_MODE)),-$(SIM_MODE))
SIM_OBJ  := $(SIM)/obj

SIM_CPP  := $(filter-out %_test.cpp,$(wildcard llmc/*/*.cpp))
SIM_CU   := $(filter-out %_test.cu,$(wildcard llmc/*/*.cu))
SIM_KERNEL_TEST := $(wildcard llmc/*/*_test.cu dev/sim/tests/*_test.cu) dev/sim/report/cost_model.cu
SIM_HOST_TEST   := $(wildcard llmc/*/*_test.cpp)
SIM_RT   := $(filter-out %/trace.cpp %/race.cpp %/count.cpp %/hooks.cpp,$(wildcard dev/sim/src/*.cpp))
SIM_OBJ_OF = $(patsubst %.cpp,$(SIM_OBJ)/%.o,$(patsubst %.cu,$(SIM_OBJ)/%.cu.o,$(1)))

SIM_CPPFLAGS := -DLLMC_CUDA -DCUSIM -Idev/sim/include
SIM_RTFLAGS  := -std=c++20 -O2 -g $(WARN) -fno-tree-loop-distribute-patterns -fopenmp
# A frame pointer makes every report's stack whole; identical kernels must keep their own names.
SIM_CXXFLAGS  = $(CXXFLAGS) -fno-omit-frame-pointer
SIM_CUFLAGS   = $(SIM_CXXFLAGS) -fno-ipa-icf -Wno-unknown-pragmas
SIM_CLANG     = $(filter-out -fopenmp,$(SIM_CXXFLAGS)) -O1 -Wno-unknown-pragmas
SIM_CU_CXX   := $(CXX)
SIM_RT_CXX   := $(CXX)
SIM_LDLIBS    = $(LDLIBS)
ifeq ($(SIM_MODE),asan)
SIM_SAN      := -O1 -fsanitize=address
else ifeq ($(SIM_MODE),aubsan)
SIM_SAN      := -O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined
else ifeq ($(SIM_MODE),trace)
SIM_CUFLAGS  += -O1 -fno-tree-sra -fsanitize=thread -DCUSIM_TRACE
SIM_RT       := $(wildcard dev/sim/src/*.cpp)
else ifeq ($(SIM_MODE),tsan)
SIM_CU_CXX   := clang++
SIM_CUFLAGS   = $(SIM_CLANG) -fsanitize=thread
SIM_LDFLAGS  := -fsanitize=thread
SIM_LDLIBS    = $(LDLIBS) -lgomp
else ifeq ($(SIM_MODE),msan)
# The runtime too, so that values keep their history through shuffles and mma; but not its parts that
# run on the host and use the standard library, which is not instrumented.
SIM_CU_CXX   := clang++
SIM_RT_CXX   := clang++
SIM_CUFLAGS   = $(SIM_CLANG) -fsanitize=memory -fsanitize-memory-track-origins
SIM_RTFLAGS  := -std=c++20 -O1 -g $(WARN) -Wno-unknown-pragmas -fno-omit-frame-pointer -fsanitize=memory \
                -fsanitize-ignorelist=dev/sim/msan_ignore.txt
SIM_LDFLAGS  := -fsanitize=memory
SIM_LDLIBS    = $(LDLIBS) -lgomp
else ifneq ($(SIM_MODE),plain)
$(error SIM_MODE=$(SIM_MODE): expected plain, asan, aubsan, trace, tsan or msan)
endif

sim: $(SIM)/kernel_tests $(SIM)/unit_tests $(patsubst %.cu,$(SIM)/%,$(wildcard train_gpt.cu test_gpt.cu))
sim-test: $(SIM)/kernel_tests
	$(SIM)/kernel_tests
SIM_MODES := plain aubsan trace $(if $(TEST_DEEP),asan tsan msan)
sim_dir    = $(BUILD)/sim$(if $(filter-out plain,$(1)),-$(1))
sim-faults:            ## planted faults against what each mode of the simulator must say
	@set -e; for m in $(SIM_MODES); do $(MAKE) --no-print-directory SIM_MODE=$$m sim-faults-program; done
	$(PYTHON) dev/sim/faults/run.py $(foreach m,$(SIM_MODES),$(m)=$(call sim_dir,$(m))/faults)
sim-faults-program: $(SIM)/faults
sim-report:            ## bytes moved, sectors and bank conflicts of each kernel, counted in the simulator
	@$(MAKE) --no-print-directory SIM_MODE=trace $(call sim_dir,trace)/report
	$(call sim_dir,trace)/report $(OP)

SIM_FLAGS_NOW := $(SIM_CU_CXX) $(SIM_CUFLAGS) $(SIM_SAN) $(SIM_CPPFLAGS) $(CPPFLAGS) $(SIM_RTFLAGS)
$(SIM)/flags: FORCE
	@mkdir -p $(@D); echo '$(SIM_FLAGS_NOW)' | cmp -s - $@ || echo '$(SIM_FLAGS_NOW)' > $@

$(SIM_OBJ)/dev/sim/src/%.o: dev/sim/src/%.cpp $(SIM)/flags
	@mkdir -p $(@D)
	$(call TOLD,compile)
	$(Q)$(CCACHE) $(SIM_RT_CXX) $(SIM_RTFLAGS) -Idev/sim/include -I. -MMD -MP -c $< -o $@
$(SIM_OBJ)/%.o: %.cpp $(SIM)/flags
	@mkdir -p $(@D)
	$(call TOLD,compile)
	$(Q)$(CCACHE) $(CXX) $(SIM_CXXFLAGS) $(SIM_SAN) $(SIM_CPPFLAGS) $(CPPFLAGS) -MMD -MP -c $< -o $@
$(SIM_OBJ)/%.cu.o: %.cu $(SIM)/flags
	@mkdir -p $(@D)
	$(call TOLD,compile)
	$(Q)$(CCACHE) $(SIM_CU_CXX) $(SIM_CUFLAGS) $(SIM_SAN) $(SIM_CPPFLAGS) $(CPPFLAGS) -MMD -MP -x c++ -c $< -o $@

# It says which build it is.
$(SIM_OBJ)/llmc/train/version.o: CPPFLAGS += $(SIM_CPPFLAGS)

SIM_LIB_OBJ  := $(call SIM_OBJ_OF,$(SIM_CPP) $(SIM_CU))
SIM_RT_OBJ   := $(call SIM_OBJ_OF,$(SIM_RT))
SIM_KERNEL_TEST_OBJ := $(call SIM_OBJ_OF,$(SIM_KERNEL_TEST))
SIM_HOST_TEST_OBJ   := $(call SIM_OBJ_OF,$(SIM_HOST_TEST))
SIM_REPORT_OBJ      := $(call SIM_OBJ_OF,$(wildcard dev/sim/report/*.cu))
SIM_FAULT_OBJ       := $(call SIM_OBJ_OF,$(wildcard dev/sim/faults/*.cu))
SIM_LINK = $(SIM_CU_CXX) $(if $(SIM_LDFLAGS),$(SIM_LDFLAGS),$(CXXFLAGS) $(SIM_SAN)) $(LDFLAGS) -o $@ $^ \
           $(SIM_LDLIBS)

# The kernels and what they stand on: all that the sanitizer modes usually need.
SIM_OPS_OBJ  := $(filter $(SIM_OBJ)/llmc/core/% $(SIM_OBJ)/llmc/ops/%,$(SIM_LIB_OBJ))
SIM_CORE_OBJ := $(filter $(SIM_OBJ)/llmc/core/% %/gemm.o,$(SIM_LIB_OBJ))
$(SIM)/libops.a: $(SIM_OPS_OBJ)
$(SIM)/libllmc.a: $(SIM_LIB_OBJ)
$(SIM)/libops.a $(SIM)/libllmc.a:
	@rm -f $@
	$(call TOLD,archive)
	$(Q)ar rcs $@ $^

$(SIM)/kernel_tests: $(SIM_KERNEL_TEST_OBJ) $(SIM_RT_OBJ) $(SIM)/libops.a
$(SIM)/unit_tests: $(SIM_HOST_TEST_OBJ) $(SIM_KERNEL_TEST_OBJ) $(SIM_RT_OBJ) $(SIM)/libllmc.a
$(SIM)/train_gpt $(SIM)/test_gpt: $(SIM)/%: $(SIM_OBJ)/%.cu.o $(SIM_RT_OBJ) $(SIM)/libllmc.a
$(SIM)/faults: $(SIM_FAULT_OBJ) $(SIM_RT_OBJ) $(SIM_CORE_OBJ)
$(SIM)/report: $(SIM_REPORT_OBJ) $(SIM_RT_OBJ) $(SIM)/libops.a
$(SIM)/kernel_tests $(SIM)/unit_tests $(SIM)/train_gpt $(SIM)/test_gpt $(SIM)/faults $(SIM)/report:
	$(call TOLD,link)
	$(Q)$(SIM_LINK) $(if $(filter %_tests %/test_gpt,$@),-lgtest -lgtest_main)

.PHONY: sim sim-test sim-faults sim-faults-program sim-report
-include $(SIM_LIB_OBJ:.o=.d) $(SIM_RT_OBJ:.o=.d) $(SIM_KERNEL_TEST_OBJ:.o=.d)
-include $(SIM_HOST_TEST_OBJ:.o=.d) $(SIM_FAULT_OBJ:.o=.d) $(SIM_REPORT_OBJ:.o=.d)
