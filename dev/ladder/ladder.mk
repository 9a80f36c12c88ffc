# What can be known of the kernels without a GPU, and the ladders. (The simulator's variables come
# from dev/sim/sim.mk, which make reads after this file: hence the second expansion.)
.SECONDEXPANSION:
LADDER_SRC := $(wildcard dev/ladder/*.cu)

ptxas:                 ## registers, shared memory and spills of every kernel (needs nvcc, no GPU)
	NVCC='$(NVCC)' scripts/ptxas_table.sh
sim-report:            ## bytes moved, sectors and bank conflicts of the kernels, from the simulator
	$(Q)$(MAKE) --no-print-directory SIM_MODE=trace build/sim-trace/kernel_tests
	build/sim-trace/kernel_tests --gtest_brief=1 --gtest_filter='counters_cuda.*'
sim-schedules:         ## do results depend on the order of threads, blocks, streams?
	$(Q)$(MAKE) --no-print-directory build/sim/kernel_tests
	scripts/sim_schedules.sh build/sim/kernel_tests
ladder:                ## runs the ladders in the simulator, writes the tables of dev/ladder/README.md
	$(Q)$(MAKE) --no-print-directory SIM_MODE=trace build/sim-trace/ladder
	scripts/ladder_table.sh build/sim-trace/ladder
ladder-gpu: $(BUILD)/ladder  ## the same on a GPU, with times
	$(BUILD)/ladder

build/sim-trace/ladder: $$(call SIM_OBJ_OF,$$(LADDER_SRC)) $$(SIM_RT_OBJ) build/sim-trace/libllmc.a
	$(SIM_LINK)
$(BUILD)/ladder: $(LADDER_SRC:%.cu=$(OBJ)/%.cu.o) $(BUILD)/libllmc.a
	$(call TOLD,link)
	$(Q)$(CXX) $(CXXFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)

.PHONY: ptxas sim-report sim-schedules ladder ladder-gpu
