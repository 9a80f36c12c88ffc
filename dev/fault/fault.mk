# dev/fault: the fault library, and the tests that save and load under faults (part of make test).
FAULT     := $(BUILD)/fault
FAULT_OBJ := $(patsubst dev/fault/%.cpp,$(FAULT)/%.o,$(filter-out %/fault.cpp %/kill.cpp,$(wildcard dev/fault/*.cpp)))
TEST_BINS += $(FAULT)/fault_test

$(FAULT)/fault.o: CXXFLAGS += -fPIC
$(FAULT_OBJ) $(FAULT)/kill.o: CXXFLAGS += -O1
$(FAULT)/%.o: dev/fault/%.cpp $(BUILD)/flags
	@mkdir -p $(@D)
	$(call TOLD,compile)
	$(Q)$(CCACHE) $(CXX) $(CXXFLAGS) $(CPPFLAGS) -MMD -MP -c $< -o $@
$(FAULT)/libfault.so: $(FAULT)/fault.o
	$(call TOLD,link)
	$(Q)$(CXX) $(CXXFLAGS) $(LDFLAGS) -shared -o $@ $^ -ldl

# libfault comes before all other libraries, so that its file calls are found first, by libhdf5 too.
$(FAULT)/fault_test: $(FAULT_OBJ) $(FAULT)/libfault.so $(BUILD)/libllmc.a
	$(call TOLD,link)
	$(Q)$(CXX) $(CXXFLAGS) $(LDFLAGS) -o $@ $(FAULT_OBJ) -L$(FAULT) -Wl,-rpath,'$$ORIGIN' \
	    -lfault $(BUILD)/libllmc.a $(LDLIBS) -lgtest

# The trainer, to be killed at a place of one's choice: what kill.cpp wraps is what the linker wraps.
KILL_WRAPS = $(addprefix -Wl$(comma)--wrap=,$(shell sed -n 's/^WRAP.\(_Z[A-Za-z0-9_]*\).*/\1/p' dev/fault/kill.cpp))
$(FAULT)/train_gpt_killed: $(OBJ)/train_gpt.cu.o $(FAULT)/kill.o $(BUILD)/libllmc.a
	$(call TOLD,link)
	$(Q)$(CXX) $(CXXFLAGS) $(LDFLAGS) $(KILL_WRAPS) -o $@ $^ $(LDLIBS)
test-programs: $(FAULT)/train_gpt_killed

-include $(FAULT_OBJ:.o=.d) $(FAULT)/fault.d $(FAULT)/kill.d
