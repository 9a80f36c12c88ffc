# train_gpt: `make help` says what can be made.
#
# What can be set on the command line (a change rebuilds what it touches):
#   CUDA=auto|0|1   auto: nvcc and a GPU are there         GPU_ARCH="80 90"     for nvcc
#   MPI=auto|0|1    auto: an MPI that compiles             ARCH=native|x86-64-v3|...  for g++
#   CUDNN=auto|0    auto: headers of cuDNN 9 that compile (the library is loaded when asked for)
#   CUDNN_PATH=DIR  looks for them in DIR/include first
#   SAN=address,undefined|thread   a build with sanitizers, in its own folder
#   BUILD=DIR       build folder                           V=1  show whole commands
comma  := ,
CUDA   ?= auto
MPI    ?= auto
CUDNN  ?= auto
ARCH   ?= native
SAN    ?=
BUILD  ?= build$(if $(SAN),-$(subst $(comma),-,$(SAN)))
NVCC   ?= nvcc
PYTHON ?= /usr/bin/python3
ifeq ($(origin CXX),default)
CXX := g++
endif
CCACHE := $(shell command -v ccache 2>/dev/null)
Q      := $(if $(V),,@)
TOLD    = $(if $(V),,@echo "  $(1) $@")

# ---- what this machine has: found by compiling small programs, remembered in $(BUILD)/probe.mk.
# These goals need no compiler, or call make again when they have installed one.
NO_PROBE := help clean format test test-deep quickstart
ifneq ($(filter-out $(NO_PROBE),$(or $(MAKECMDGOALS),all)),)
PROBED := $(shell CXX='$(CXX)' NVCC='$(NVCC)' CUDA='$(CUDA)' MPI='$(MPI)' CUDNN='$(CUDNN)' CUDNN_PATH='$(CUDNN_PATH)' \
                  GPU_ARCH='$(GPU_ARCH)' scripts/probe.sh $(BUILD) 1>&2 && echo yes)
ifeq ($(PROBED),)
$(error stopped: something is missing, see above)
endif
include $(BUILD)/probe.mk
endif

# OpenBLAS and oneDNN, where someone asks for them, are loaded at run time (llmc/ops/blas.cpp). All
# flavours of OpenBLAS share one soname, and the system's alternative is not always the OpenMP one:
# its folder is named here.
BLAS_DIR := $(firstword $(wildcard /usr/lib/*-linux-gnu/openblas-openmp))

# No contraction: a*b+c rounds twice everywhere unless the code says fma, so an element's bits do
# not depend on which loop it fell into.
WARN     := -Wall -Wextra
CXXFLAGS += -std=c++20 -O3 -g -march=$(ARCH) -ffp-contract=off -fno-math-errno -fopenmp $(WARN)
CPPFLAGS += -I. $(PROBE_CPPFLAGS)
LDLIBS   += $(PROBE_LDLIBS) -ldl
LDFLAGS  += $(BLAS_DIR:%=-Wl,-rpath,%) -Wl,--as-needed
ifneq ($(SAN),)
CXXFLAGS += -fsanitize=$(SAN) -fno-omit-frame-pointer -O1
LDFLAGS  += -fsanitize=$(SAN)
endif

# ---- sources: everything under llmc/ by wildcard; .cu files only in a CUDA build
LIB_SRC  := $(filter-out %_test.cpp,$(wildcard llmc/*/*.cpp))
TEST_SRC := $(wildcard llmc/*/*_test.cpp)
OBJ      := $(BUILD)/obj
LIB_OBJ  := $(LIB_SRC:%.cpp=$(OBJ)/%.o)
TEST_OBJ := $(TEST_SRC:%.cpp=$(OBJ)/%.o)
MAIN_OBJ := $(patsubst %.cu,$(OBJ)/%.cu.o,$(wildcard *.cu))
BENCH_OBJ := $(patsubst %.cpp,$(OBJ)/%.o,$(wildcard dev/bench/*.cpp))

ifeq ($(HAVE_CUDA),1)
CPPFLAGS  += -DLLMC_CUDA
LIB_OBJ   += $(patsubst %.cu,$(OBJ)/%.cu.o,$(filter-out %_test.cu,$(wildcard llmc/*/*.cu)))
TEST_OBJ  += $(patsubst %.cu,$(OBJ)/%.cu.o,$(wildcard llmc/*/*_test.cu))
# -x cu: train_gpt.cu and test_gpt.cu hold no kernels and compile either way.
COMPILE_CU = $(NVCC) -x cu -ccbin $(CXX) -std=c++20 -O3 -g -lineinfo $(NVCC_GENCODE) $(CPPFLAGS) \
             $(addprefix -Xcompiler ,$(filter -f% -m% -Wall -Wextra,$(CXXFLAGS)))
else
COMPILE_CU = $(CXX) -x c++ $(CXXFLAGS) $(CPPFLAGS)
endif

TEST_BINS := $(BUILD)/unit_tests $(BUILD)/test_gpt

all: train_gpt
train_gpt test_gpt: %: $(BUILD)/%
	@ln -sf $< $@

# The flags are a prerequisite of every object: changing one rebuilds, repeating one does not.
FLAGS_NOW := $(CXX) $(CXXFLAGS) $(CPPFLAGS) $(CUDNN_CPPFLAGS) $(LDFLAGS) $(LDLIBS) $(NVCC_GENCODE)
$(BUILD)/flags: FORCE
	@mkdir -p $(@D); echo '$(FLAGS_NOW)' | cmp -s - $@ || echo '$(FLAGS_NOW)' > $@

# What --version says. Only version.o depends on it, so a commit rebuilds one file.
FACT_FLAGS := $(CXXFLAGS)
GIT := $(shell git describe --always --dirty --tags 2>/dev/null || echo unknown)
$(BUILD)/build_facts.h: FORCE
	@mkdir -p $(@D)
	@{ echo '#define LLMC_GIT "$(GIT)"'; echo '#define LLMC_FLAGS "$(FACT_FLAGS)"'; \
	   echo '#define LLMC_MPI_FOUND "$(MPI_FOUND)"'; } > $@.new
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi
%/llmc/train/version.o: CPPFLAGS += -I$(BUILD)
%/llmc/train/version.o: llmc/train/version.cpp $(BUILD)/build_facts.h $(BUILD)/flags
	@mkdir -p $(@D)
	$(call TOLD,compile)
	$(Q)$(CCACHE) $(CXX) $(CXXFLAGS) $(CPPFLAGS) -MMD -MP -c $< -o $@

$(OBJ)/%.o: %.cpp $(BUILD)/flags
	@mkdir -p $(@D)
	$(call TOLD,compile)
	$(Q)$(CCACHE) $(CXX) $(CXXFLAGS) $(CPPFLAGS) -MMD -MP -c $< -o $@
$(OBJ)/%.cu.o: %.cu $(BUILD)/flags
	@mkdir -p $(@D)
	$(call TOLD,compile)
	$(Q)$(CCACHE) $(COMPILE_CU) -MMD -MP -c $< -o $@

# Only this file sees cuDNN's headers, and not in the simulator's build.
$(OBJ)/llmc/ops/cudnn_plan.o: CPPFLAGS += $(CUDNN_CPPFLAGS)

# Tests, and code that is rarely run and full of templates (options, JSON), should compile fast.
$(TEST_OBJ) $(filter %/manifest.o %/run_lock.o %/data_info.o $(OBJ)/llmc/io/checkpoint_% $(OBJ)/llmc/train/%,$(LIB_OBJ)): \
    CXXFLAGS += -O1

$(BUILD)/libllmc.a: $(LIB_OBJ)
	@rm -f $@
	$(call TOLD,archive)
	$(Q)ar rcs $@ $^
$(BUILD)/train_gpt $(BUILD)/test_gpt: $(BUILD)/%: $(OBJ)/%.cu.o $(BUILD)/libllmc.a
	$(call TOLD,link)
	$(Q)$(CXX) $(CXXFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)
$(BUILD)/test_gpt: LDLIBS += -lgtest -lgtest_main
$(BUILD)/unit_tests: $(TEST_OBJ) $(BUILD)/libllmc.a
	$(call TOLD,link)
	$(Q)$(CXX) $(CXXFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS) -lgtest -lgtest_main
$(BUILD)/bench: $(BENCH_OBJ) $(BUILD)/libllmc.a
	$(call TOLD,link)
	$(Q)$(CXX) $(CXXFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)

# The folders of dev/ bring their own rules, and add what they test to TEST_BINS.
-include $(wildcard dev/*/*.mk)

# ---- what people type
test:                  ## install what is missing, build, run all tests; closes with N passed, N failed, N skipped
	@BUILD=$(BUILD) scripts/run_tests.sh
test-deep:             ## the same with the larger matrices (TEST_DEEP=1)
	@BUILD=$(BUILD) TEST_DEEP=1 scripts/run_tests.sh
quickstart:            ## from nothing to a trained GPT, samples and a loss curve, in minutes
	@BUILD=$(BUILD) scripts/quickstart.sh
bench: $(BUILD)/bench  ## tokens/s and where the time goes, beside the machine's own SGEMM peak
	$(BUILD)/bench
FORMAT ?= clang-format -i
format:                ## clang-format over our sources
	$(FORMAT) $(wildcard $(foreach dir,. llmc/* dev/* dev/*/* dev/*/*/*,$(addprefix $(dir)/*.,h cpp cu cuh)))
clean:                 ## remove what was built
	rm -rf $(BUILD) train_gpt test_gpt
help:                  ## this list
	@echo 'make                   build ./train_gpt (settings: the top of the Makefile)'
	@sed -nE 's/^([a-z-]+):.*## (.*)/make \1\t\2/p' $(MAKEFILE_LIST) | sort -u | expand -t 23

# For scripts/run_tests.sh: build everything that tests, and say where it lies.
test-programs: all $(TEST_BINS)
test-list:
	@echo $(TEST_BINS)

FORCE:
.DEFAULT_GOAL := all
# The links are cheap to make again, and must follow BUILD=.
.PHONY: train_gpt test_gpt
.PHONY: all bench clean format help quickstart test test-deep test-list test-programs FORCE
-include $(patsubst %.o,%.d,$(LIB_OBJ) $(TEST_OBJ) $(MAIN_OBJ) $(BENCH_OBJ))
