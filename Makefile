# train_gpt: make | make quickstart | make test | make bench | make format | make clean
#
# What can be set (a change rebuilds what it touches):
#   CUDA=auto|0|1   auto: nvcc and a GPU are there        ARCH=native|x86-64-v3|...  host code
#   SAN=address,undefined|thread                          BUILD=DIR                  build folder
BUILD  ?= build
CUDA   ?= auto
ARCH   ?= native
SAN    ?=
CXX    ?= g++
PYTHON ?= /usr/bin/python3
NVCC   ?= nvcc

ifeq ($(origin CXX),default)
CXX := g++
endif
CCACHE := $(shell command -v ccache 2>/dev/null)

# ---- what this machine has
PKGS      := hdf5-serial libxxhash libpcre2-8
# OpenBLAS and oneDNN are loaded at run time (llmc/ops/gemm.cpp). All flavours of OpenBLAS share one
# soname, and the system's alternative is not always the OpenMP one: its folder is named here.
BLAS_DIR  := $(firstword $(wildcard /usr/lib/*-linux-gnu/openblas-openmp))

WARN     := -Wall -Wextra
# No contraction: a*b+c rounds twice everywhere unless the code says fma, so an element's bits do
# not depend on which loop it fell into.
CXXFLAGS += -std=c++20 -O3 -g -march=$(ARCH) -ffp-contract=off -fno-math-errno -fopenmp $(WARN)
CPPFLAGS += -I. $(shell pkg-config --cflags $(PKGS))
LDLIBS   += $(shell pkg-config --libs $(PKGS)) -ldl
LDFLAGS  += $(BLAS_DIR:%=-Wl,-rpath,%)
ifneq ($(SAN),)
CXXFLAGS += -fsanitize=$(SAN) -fno-omit-frame-pointer -O1
LDFLAGS  += -fsanitize=$(SAN)
endif

# ---- sources
LIB_SRC  := $(filter-out %_test.cpp,$(wildcard llmc/*/*.cpp))
TEST_SRC := $(wildcard llmc/*/*_test.cpp)
OBJ      := $(BUILD)/obj
LIB_OBJ  := $(LIB_SRC:%.cpp=$(OBJ)/%.o)
TEST_OBJ := $(TEST_SRC:%.cpp=$(OBJ)/%.o)

all: $(BUILD)/train_gpt
	@ln -sf $(BUILD)/train_gpt train_gpt

# The flags are a prerequisite of every object: changing one rebuilds, repeating one does not.
FLAGS_NOW := $(CXX) $(CXXFLAGS) $(CPPFLAGS) $(LDFLAGS) $(LDLIBS)
$(BUILD)/flags: FORCE
	@mkdir -p $(@D); echo '$(FLAGS_NOW)' | cmp -s - $@ || echo '$(FLAGS_NOW)' > $@

# What --version says. Only version.o depends on it, so a commit rebuilds one file.
FACTS := $(BUILD)/build_facts.h
$(FACTS): FORCE
	@mkdir -p $(@D)
	@{ echo '#define LLMC_GIT "$(shell git describe --always --dirty --tags 2>/dev/null || echo unknown)"'; \
	   echo '#define LLMC_FLAGS "$(CXXFLAGS)"'; echo '#define LLMC_MPI_FOUND "no"'; } > $@.new
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi
$(OBJ)/llmc/train/version.o: CPPFLAGS += -I$(BUILD)
$(OBJ)/llmc/train/version.o: $(FACTS)

$(OBJ)/%.o: %.cpp $(BUILD)/flags
	@mkdir -p $(@D)
	$(CCACHE) $(CXX) $(CXXFLAGS) $(CPPFLAGS) -MMD -MP -c $< -o $@
$(OBJ)/%.cu.o: %.cu $(BUILD)/flags
	@mkdir -p $(@D)
	$(CCACHE) $(CXX) $(CXXFLAGS) $(CPPFLAGS) -MMD -MP -x c++ -c $< -o $@

$(BUILD)/libllmc.a: $(LIB_OBJ)
	@rm -f $@
	ar rcs $@ $^
$(BUILD)/train_gpt: $(OBJ)/train_gpt.cu.o $(BUILD)/libllmc.a
	$(CXX) $(CXXFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)
$(BUILD)/unit_tests: $(TEST_OBJ) $(BUILD)/libllmc.a
	$(CXX) $(CXXFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS) -lgtest -lgtest_main

test: $(BUILD)/unit_tests
	$(BUILD)/unit_tests

clean:
	rm -rf $(BUILD) train_gpt

-include dev/sim/sim.mk

FORCE:
.PHONY: all test clean FORCE
-include $(LIB_OBJ:.o=.d) $(TEST_OBJ:.o=.d) $(wildcard $(OBJ)/*.d)
