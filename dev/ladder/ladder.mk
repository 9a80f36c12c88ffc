# The ladders: in the simulator's trace mode, which counts, and on a GPU, which takes time.
LADDER_SRC := $(wildcard dev/ladder/*.cu)
LADDER_OBJ := $(LADDER_SRC:%.cu=$(OBJ)/%.cu.o)

ladder:                ## checks every rung in the simulator, writes the tables of dev/ladder/README.md
	@$(MAKE) --no-print-directory SIM_MODE=trace ladder-program
	scripts/ladder_table.sh $(BUILD)/sim-trace/ladder
ladder-gpu: $(BUILD)/ladder  ## the same on a GPU, with times
	$(BUILD)/ladder
$(BUILD)/ladder: $(LADDER_OBJ) $(BUILD)/libllmc.a
	$(call TOLD,link)
	$(Q)$(CXX) $(CXXFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)

.PHONY: ladder ladder-gpu
-include $(LADDER_OBJ:.o=.d)
