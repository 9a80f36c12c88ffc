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

# What make test runs of the whole trainer in the simulator besides train_gpt (sim.mk).
TEST_BINS += $(BUILD)/sim/test_gpt
test-programs: $(BUILD)/sim/kernels
