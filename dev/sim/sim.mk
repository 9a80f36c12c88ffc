# The simulator: every .cu compiled as C++ against dev/sim/include, which is found before any real
# CUDA header. Targets: make sim, make sim-test; SIM_MODE=plain|asan|aubsan|tsan|trace|msan.
SIM_MODE ?= plain
SIM      := build/sim$(if $(filter-out plain,$(SIM_MODE)),-$(SIM_MODE))

SIM_CPP := $(filter-out %_test.cpp,$(wildcard llmc/*/*.cpp))
SIM_CU  := $(filter-out %_test.cu,$(wildcard llmc/*/*.cu))
SIM_TEST_SRC := $(wildcard llmc/*/*_test.cpp) $(wildcard llmc/*/*_test.cu)

SIM_CPPFLAGS := -DLLMC_CUDA -DCUSIM -Idev/sim/include
SIM_WARN     := -Wno-unknown-pragmas
SIM_OBJ      := $(SIM)/obj
SIM_LIB_OBJ  := $(SIM_CPP:%.cpp=$(SIM_OBJ)/%.o) $(SIM_CU:%.cu=$(SIM_OBJ)/%.cu.o)
SIM_TEST_OBJ := $(patsubst %.cpp,$(SIM_OBJ)/%.o,$(patsubst %.cu,$(SIM_OBJ)/%.cu.o,$(SIM_TEST_SRC)))
SIM_RT_OBJ   := $(SIM_OBJ)/dev/sim/src/cusim.o

sim: $(SIM)/unit_tests
sim-test: $(SIM)/unit_tests
	$(SIM)/unit_tests

$(SIM_OBJ)/%.o: %.cpp
	@mkdir -p $(@D)
	$(CCACHE) $(CXX) $(CXXFLAGS) $(SIM_CPPFLAGS) $(CPPFLAGS) -MMD -MP -c $< -o $@
$(SIM_OBJ)/%.cu.o: %.cu
	@mkdir -p $(@D)
	$(CCACHE) $(CXX) $(CXXFLAGS) $(SIM_WARN) $(SIM_CPPFLAGS) $(CPPFLAGS) -MMD -MP -x c++ -c $< -o $@

$(SIM)/libllmc.a: $(SIM_LIB_OBJ) $(SIM_RT_OBJ)
	@rm -f $@
	ar rcs $@ $^
$(SIM)/unit_tests: $(SIM_TEST_OBJ) $(SIM)/libllmc.a
	$(CXX) $(CXXFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS) -lgtest -lgtest_main

.PHONY: sim sim-test
-include $(SIM_LIB_OBJ:.o=.d) $(SIM_TEST_OBJ:.o=.d) $(SIM_RT_OBJ:.o=.d)
