# dev/bench_ops: what each CPU op costs at GPT-2's shapes.
#   make bench-ops                ARGS="B T" for other sizes than 4 256
BENCH_OPS := $(OBJ)/dev/bench_ops/bench_ops.o
$(BUILD)/bench_ops: $(BENCH_OPS) $(BUILD)/libllmc.a
	$(call TOLD,link)
	$(Q)$(CXX) $(CXXFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)
bench-ops: $(BUILD)/bench_ops  ## what each CPU op costs, beside copy bandwidth and the BLAS
	$(BUILD)/bench_ops $(ARGS)
.PHONY: bench-ops
-include $(BENCH_OPS:.o=.d)
