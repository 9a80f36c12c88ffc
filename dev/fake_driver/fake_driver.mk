# A stand-in for the CUDA driver, for the tests of what cuDNN makes without a GPU.
FAKE_DRIVER := $(BUILD)/fake_driver/libcuda.so.1
$(FAKE_DRIVER): dev/fake_driver/driver.cpp $(BUILD)/flags
	@mkdir -p $(@D)
	$(call TOLD,link)
	$(Q)$(CXX) -std=c++20 -O1 $(WARN) -fPIC -shared -Wl,-soname,libcuda.so.1 -o $@ $<
$(BUILD)/unit_tests: | $(FAKE_DRIVER)
