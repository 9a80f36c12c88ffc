# The kernels' times, for scripts/gpu_check.sh: on a GPU, and in the simulator to test the program.
# (The simulator's variables come from dev/sim/sim.mk, which make reads later: hence the second
# expansion.)
.SECONDEXPANSION:
KERNELS_OBJ := $(OBJ)/dev/gpu_check/kernels.cu.o
$(BUILD)/kernels: $(KERNELS_OBJ) $(BUILD)/libllmc.a
	$(call TOLD,link)
	$(Q)$(CXX) $(CXXFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)
$(BUILD)/sim/kernels: $$(call sim_objects,dev/gpu_check/kernels.cu) $$(SIM_RUNTIME) $(BUILD)/sim/libllmc.a
	$(call TOLD,link)
	$(Q)$(SIM_LINK)
-include $(KERNELS_OBJ:.o=.d)

# What make test runs of the whole trainer in the simulator: test_gpt, and by
# scripts/test/cuda_test.sh train_gpt, plain and in mode trace; make test-deep also with sanitizers.
TEST_BINS += $(BUILD)/sim/test_gpt
test-programs: $(BUILD)/sim/train_gpt $(BUILD)/sim/kernels $(BUILD)/sim-trace/train_gpt \
               $(if $(TEST_DEEP),$(BUILD)/sim-aubsan/train_gpt)
$(BUILD)/sim-%/train_gpt: FORCE | $(BUILD)/sim-%/faults $(BUILD)/sim/train_gpt
	@$(MAKE) --no-print-directory SIM_MODE=$* $@
