# dev/fault: the fault library, and the tests that save and load under faults (part of make test).
FAULT     := $(BUILD)/fault
FAULT_OBJ := $(patsubst dev/fault/%.cpp,$(FAULT)/%.o,$(filter-out %/fault.cpp,$(wildcard dev/fault/*.cpp)))
TEST_BINS += $(FAULT)/fault_test

$(FAULT)/fault.o: CXXFLAGS += -fPIC
$(FAULT_OBJ): CXXFLAGS += -O1
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

-include $(FAULT_OBJ:.o=.d) $(FAULT)/fault.d
