# dev/parallel/threads.mk: what runs in threads, under the thread sanitizer: communication behind
# backward, saves behind the training, the watchdog (scripts/test/threads_test.sh). Only what these tests
# need is built, in a folder of its own.
THREADS      := $(BUILD)/threads
THREADS_SRC  := $(wildcard $(addprefix llmc/,core/*.cpp parallel/*.cpp io/checkpoint*.cpp io/files.cpp io/h5*.cpp io/manifest.cpp) \
                  $(addprefix llmc/ops/,adamw_cpu.cpp clip_cpu.cpp cast_cpu.cpp reduce_sums_cpu.cpp wire_cpu.cpp))
THREADS_TEST := llmc/io/checkpoint_async_test.cpp $(addprefix llmc/parallel/,shards_ranks_test.cpp watchdog_test.cpp comm_queue_test.cpp)
THREADS_OBJ  := $(patsubst %.cpp,$(THREADS)/%.o,$(filter-out %_test.cpp,$(THREADS_SRC)) $(THREADS_TEST))

$(THREADS)/%.o: %.cpp $(BUILD)/flags
	@mkdir -p $(@D)
	$(call TOLD,compile)
	$(Q)$(CCACHE) $(CXX) $(CXXFLAGS) -O1 -fsanitize=thread $(CPPFLAGS) -MMD -MP -c $< -o $@
$(THREADS)/threads_test: $(THREADS_OBJ)
	$(call TOLD,link)
	$(Q)$(CXX) $(CXXFLAGS) -fsanitize=thread $(LDFLAGS) -o $@ $^ $(LDLIBS) -lgtest -lgtest_main

-include $(THREADS_OBJ:.o=.d)
