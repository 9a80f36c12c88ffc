# The simulator: every .cu compiled as C++ against dev/sim/include, which comes before any real CUDA
# header. The whole program is built once more, in build/sim (or build/sim-MODE):
#   make sim                    train_gpt, test_gpt, kernel_tests, unit_tests
#   make sim-test               runs kernel_tests: *_cuda_test.cu beside the ops, and dev/sim/tests
#   make sim-faults             runs the planted faults; TEST_DEEP=1 for all modes
#   make sim-report [OP=name]   the cost table
#   make sim-schedules          equal bits under other orders of threads, blocks and streams?
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

SIM_CPPFLAGS := -DLLMC_CUDA -DCUSIM -Idev/sim/include
SIM_RTFLAGS  := -std=c++20 -O2 -g $(WARN) -fno-tree-loop-distribute-patterns -fopenmp
# -O1 compiles the kernels in a third of the time of -O3. SIM_OPT='-O0 -g3' is for the debugger.
SIM_OPT ?= -O1
# A frame pointer makes every report's stack whole; identical kernels must keep their own names.
SIM_CXXFLAGS  = $(CXXFLAGS) $(SIM_OPT) -fno-omit-frame-pointer
SIM_PLAIN_CU  = $(SIM_CXXFLAGS) -fno-ipa-icf -Wno-unknown-pragmas
SIM_CUFLAGS   = $(SIM_PLAIN_CU)
SIM_CLANG     = $(filter-out -fopenmp,$(SIM_CXXFLAGS)) -Wno-unknown-pragmas -Wno-pass-failed
SIM_CU_CXX   := $(CXX)
SIM_RT_CXX   := $(CXX)
SIM_LDLIBS    = $(LDLIBS)
ifeq ($(SIM_MODE),asan)
SIM_SAN      := -fsanitize=address
else ifeq ($(SIM_MODE),aubsan)
SIM_SAN      := -fsanitize=address,undefined -fno-sanitize-recover=undefined
else ifeq ($(SIM_MODE),trace)
SIM_CUFLAGS  += -fno-tree-sra -fsanitize=thread -DCUSIM_TRACE
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

# What make test builds in each mode: the planted faults, kernel_tests, and the trainer for
# scripts/test/cuda_test.sh. The thread sanitizer is slow: sim_test.sh runs some of its kernel_tests,
# all with TEST_DEEP=1; the memory sanitizer cannot run GoogleTest. Each mode is a make of its own,
# because all its variables differ.
SIM_HAVE_CLANG  := $(shell command -v clang++)
SIM_TEST_MODES  := plain aubsan trace $(if $(SIM_HAVE_CLANG),tsan)
SIM_FAULT_MODES := $(SIM_TEST_MODES) $(if $(and $(SIM_HAVE_CLANG),$(TEST_DEEP)),msan)
sim_dir       = $(BUILD)/sim$(if $(filter-out plain,$(1)),-$(1))
sim_programs  = $(addprefix $(call sim_dir,$(1))/,kernel_tests train_gpt)
SIM_FAULTS   := $(foreach m,$(SIM_FAULT_MODES),$(call sim_dir,$(m))/faults)
TEST_BINS    += $(foreach m,plain aubsan trace,$(call sim_dir,$(m))/kernel_tests)
test-programs: $(SIM_FAULTS) $(foreach m,$(SIM_TEST_MODES),$(call sim_programs,$(m)))
# A program waits for its plain twin, which leaves the objects that all modes share, and for the one
# before it in its own mode, so that no two makes work in one folder.
define SIM_OTHER_MODE
$(1)/faults: FORCE | $(BUILD)/sim/faults
$(1)/kernel_tests: FORCE | $(BUILD)/sim/kernel_tests $(1)/faults
$(1)/train_gpt: FORCE | $(BUILD)/sim/train_gpt $(1)/kernel_tests
$(1)/faults $(1)/kernel_tests $(1)/train_gpt:
	@$$(MAKE) --no-print-directory SIM_MODE=$(2) $$@
endef
ifeq ($(SIM_MODE),plain)
$(foreach m,$(filter-out plain,$(SIM_FAULT_MODES)),$(eval $(call SIM_OTHER_MODE,$(call sim_dir,$(m)),$(m))))
endif

sim: $(SIM)/kernel_tests $(SIM)/unit_tests $(patsubst %.cu,$(SIM)/%,$(wildcard train_gpt.cu test_gpt.cu))
sim-test: $(SIM)/kernel_tests
	$(SIM)/kernel_tests
sim-faults: $(SIM_FAULTS)  ## planted faults against what each mode of the simulator must say
	$(PYTHON) dev/sim/faults/run.py $(foreach m,$(SIM_FAULT_MODES),$(m)=$(call sim_dir,$(m))/faults)
sim-schedules:         ## do results depend on the order of threads, blocks, streams?
	@$(MAKE) --no-print-directory $(SIM)/kernel_tests
	scripts/sim_schedules.sh $(SIM)/kernel_tests
ptxas:                 ## registers, shared memory and spills of every kernel (needs nvcc, no GPU)
	@NVCC='$(NVCC)' scripts/save_table.sh dev/results/ptxas.md ptxas \
	    "Registers and spills, $$($(NVCC) --version | sed -n 's/.*release \([0-9.]*\).*/nvcc \1/p')" \
	    scripts/ptxas_table.sh
ladder-program: $(SIM)/ladder
sim-report:            ## bytes moved, sectors and bank conflicts of each kernel, counted in the simulator
	@$(MAKE) --no-print-directory SIM_MODE=trace $(call sim_dir,trace)/report
	@$(if $(OP),,scripts/save_table.sh dev/results/sim_report.md sim-report \
	    "Bytes, sectors and bank conflicts of the kernels") $(call sim_dir,trace)/report $(OP)

# Modes share what they compile alike: the runtime, host code without a sanitizer, the ops' tests,
# which hold no kernels, and, but for TEST_DEEP=1, what lies far from the device: files and options.
SIM_PLAIN_OBJ := $(BUILD)/sim/obj
SIM_RT_OBJ    := $(if $(filter msan,$(SIM_MODE)),$(SIM_OBJ),$(SIM_PLAIN_OBJ))
SIM_HOST_OBJ  := $(if $(SIM_SAN),$(SIM_OBJ),$(SIM_PLAIN_OBJ))
SIM_FAR_OBJ   := $(if $(TEST_DEEP),$(SIM_HOST_OBJ),$(SIM_PLAIN_OBJ))

SIM_CU_NOW   := $(strip $(SIM_CU_CXX) $(SIM_CUFLAGS) $(SIM_SAN) $(SIM_CPPFLAGS) $(CPPFLAGS))
SIM_RT_NOW   := $(SIM_RT_CXX) $(SIM_RTFLAGS) -Idev/sim/include -I.
SIM_HOST_NOW := $(strip $(CXX) $(SIM_CXXFLAGS) $(SIM_SAN) $(SIM_CPPFLAGS) $(CPPFLAGS))
SIM_PLAIN_CU_NOW   := $(strip $(CXX) $(SIM_PLAIN_CU) $(SIM_CPPFLAGS) $(CPPFLAGS))
SIM_PLAIN_HOST_NOW := $(strip $(CXX) $(SIM_CXXFLAGS) $(SIM_CPPFLAGS) $(CPPFLAGS))
define SIM_FLAGS_FILE
$(1): FORCE
	@mkdir -p $$(@D); echo '$(2)' | cmp -s - $$@ || echo '$(2)' > $$@
endef
$(eval $(call SIM_FLAGS_FILE,$(SIM_OBJ)/kernel-flags,$(SIM_CU_NOW)))
$(eval $(call SIM_FLAGS_FILE,$(SIM_RT_OBJ)/runtime-flags,$(SIM_RT_NOW)))
$(eval $(call SIM_FLAGS_FILE,$(SIM_HOST_OBJ)/host-flags,$(SIM_HOST_NOW)))

$(SIM_RT_OBJ)/dev/sim/src/%.o: dev/sim/src/%.cpp $(SIM_RT_OBJ)/runtime-flags
	@mkdir -p $(@D)
	$(call TOLD,compile)
	$(Q)$(CCACHE) $(SIM_RT_NOW) -MMD -MP -c $< -o $@
# sim_compile_cpp FOLDER,COMMAND and sim_compile_cu FOLDER,COMMAND: the rules for a folder of objects.
define sim_compile_cpp
$(1)/llmc/%.o: llmc/%.cpp $(1)/host-flags
	@mkdir -p $$(@D)
	$$(call TOLD,compile)
	$$(Q)$$(CCACHE) $(2) -MMD -MP -c $$< -o $$@
endef
define sim_compile_cu
$(1)/%.cu.o: %.cu $(1)/kernel-flags
	@mkdir -p $$(@D)
	$$(call TOLD,compile)
	$$(Q)$$(CCACHE) $(2) -MMD -MP -x c++ -c $$< -o $$@
endef
$(eval $(call sim_compile_cpp,$(SIM_HOST_OBJ),$(SIM_HOST_NOW)))
$(eval $(call sim_compile_cu,$(SIM_OBJ),$(SIM_CU_NOW)))
ifneq ($(SIM_HOST_OBJ),$(SIM_PLAIN_OBJ))
$(eval $(call SIM_FLAGS_FILE,$(SIM_PLAIN_OBJ)/host-flags,$(SIM_PLAIN_HOST_NOW)))
$(eval $(call sim_compile_cpp,$(SIM_PLAIN_OBJ),$(SIM_PLAIN_HOST_NOW)))
endif
ifneq ($(SIM_MODE),plain)
$(eval $(call SIM_FLAGS_FILE,$(SIM_PLAIN_OBJ)/kernel-flags,$(SIM_PLAIN_CU_NOW)))
$(eval $(call sim_compile_cu,$(SIM_PLAIN_OBJ),$(SIM_PLAIN_CU_NOW)))
endif

# It says which build it is.
$(SIM_FAR_OBJ)/llmc/train/version.o: CPPFLAGS += $(SIM_CPPFLAGS)

sim_objects   = $(patsubst llmc/ops/%.cu,$(SIM_PLAIN_OBJ)/llmc/ops/%.cu.o,$(filter llmc/ops/%_test.cu,$(1))) \
                $(patsubst %.cu,$(SIM_OBJ)/%.cu.o,$(filter-out llmc/ops/%_test.cu,$(filter %.cu,$(1)))) \
                $(patsubst %.cpp,$(SIM_FAR_OBJ)/%.o,$(filter llmc/train/%.cpp llmc/io/%.cpp,$(1))) \
                $(patsubst %.cpp,$(SIM_HOST_OBJ)/%.o,$(filter-out llmc/train/% llmc/io/%,$(filter %.cpp,$(1))))
SIM_LIB_OBJ  := $(call sim_objects,$(SIM_CPP) $(SIM_CU))
SIM_RUNTIME  := $(SIM_RT:%.cpp=$(SIM_RT_OBJ)/%.o)
SIM_KERNEL_TEST_OBJ := $(call sim_objects,$(SIM_KERNEL_TEST))
SIM_HOST_TEST_OBJ   := $(call sim_objects,$(SIM_HOST_TEST))
SIM_REPORT_OBJ      := $(call sim_objects,$(wildcard dev/sim/report/*.cu))
SIM_LADDER_OBJ      := $(call sim_objects,$(wildcard dev/ladder/*.cu))
SIM_FAULT_OBJ       := $(call sim_objects,$(wildcard dev/sim/faults/*.cu))
SIM_LINK = $(SIM_CU_CXX) $(if $(SIM_LDFLAGS),$(SIM_LDFLAGS),$(CXXFLAGS) $(SIM_SAN)) $(LDFLAGS) -o $@ $^ \
           $(SIM_LDLIBS)

# The kernels and what they stand on: all that the sanitizer modes usually need.
SIM_OPS_OBJ  := $(call sim_objects,$(filter llmc/core/% llmc/ops/%,$(SIM_CPP) $(SIM_CU)))
SIM_CORE_OBJ := $(call sim_objects,$(filter llmc/core/% %/gemm.cpp %/blas.cpp,$(SIM_CPP) $(SIM_CU)))
$(SIM)/libops.a: $(SIM_OPS_OBJ)
$(SIM)/libllmc.a: $(SIM_LIB_OBJ)
$(SIM)/libops.a $(SIM)/libllmc.a:
	@rm -f $@
	$(call TOLD,archive)
	$(Q)ar rcs $@ $^

$(SIM)/kernel_tests: $(SIM_KERNEL_TEST_OBJ) $(SIM_RUNTIME) $(SIM)/libops.a
$(SIM)/unit_tests: $(SIM_HOST_TEST_OBJ) $(SIM_KERNEL_TEST_OBJ) $(SIM_RUNTIME) $(SIM)/libllmc.a
$(SIM)/train_gpt $(SIM)/test_gpt: $(SIM)/%: $(SIM_OBJ)/%.cu.o $(SIM_RUNTIME) $(SIM)/libllmc.a
$(SIM)/faults: $(SIM_FAULT_OBJ) $(SIM_RUNTIME) $(SIM_CORE_OBJ)
$(SIM)/report: $(SIM_REPORT_OBJ) $(SIM_RUNTIME) $(SIM)/libops.a
$(SIM)/ladder: $(SIM_LADDER_OBJ) $(SIM_RUNTIME) $(SIM)/libops.a
$(SIM)/kernel_tests $(SIM)/unit_tests $(SIM)/train_gpt $(SIM)/test_gpt $(SIM)/faults \
$(SIM)/report $(SIM)/ladder:
	$(call TOLD,link)
	$(Q)$(SIM_LINK) $(if $(filter %_tests %/test_gpt,$@),-lgtest -lgtest_main)

.PHONY: sim sim-test sim-faults sim-report sim-schedules ptxas ladder-program
-include $(SIM_LIB_OBJ:.o=.d) $(SIM_RUNTIME:.o=.d) $(SIM_KERNEL_TEST_OBJ:.o=.d)
-include $(SIM_HOST_TEST_OBJ:.o=.d) $(SIM_FAULT_OBJ:.o=.d) $(SIM_REPORT_OBJ:.o=.d) \
         $(SIM_LADDER_OBJ:.o=.d)
