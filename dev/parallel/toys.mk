# dev/parallel/toys.mk: the toys of dev/doc/zero.md, compiled and run: `make toys`. They stand on MPI alone,
# so they are compiled as anybody would: mpicc's flags and one source each.
TOYS     := 01_serial 02_ddp 03_zero1 04_zero3
TOY_RUNS := $(addprefix $(BUILD)/toys/,$(TOYS))
$(BUILD)/toys/%: dev/parallel/%.cpp dev/parallel/toy.h $(BUILD)/flags
	@mkdir -p $(@D)
	$(call TOLD,compile)
	$(Q)$(CXX) -std=c++20 -O1 -ffp-contract=off -Wall -Wextra -DOMPI_SKIP_MPICXX $$(mpicc -showme:compile) $< -o $@ $$(mpicc -showme:link)

toys: $(TOY_RUNS)      ## four small programs, serial to ZeRO-3: the same losses on 1, 2 and 3 ranks
	@out=$(BUILD)/toys/out; \
	 printf '%-22s' '01_serial alone'; $(BUILD)/toys/01_serial > $$out || exit; tail -n 1 $$out; \
	 for toy in $(filter-out 01_serial,$(TOYS)); do for ranks in 2 3; do \
	     printf '%-22s' "$$toy on $$ranks ranks"; \
	     mpirun -np $$ranks --allow-run-as-root --oversubscribe --mca mpi_yield_when_idle 1 $(BUILD)/toys/$$toy > $$out || exit; \
	     tail -n 1 $$out; \
	 done; done
	@echo "what is new in each: diff dev/parallel/01_serial.cpp dev/parallel/02_ddp.cpp, and so on (dev/doc/zero.md)"
.PHONY: toys
