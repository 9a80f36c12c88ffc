# dev/fuzz: every own parser under libFuzzer with address and undefined-behaviour sanitizers, by clang.
# Only what parses is built; sentencepiece's and CLI11's code is the libraries' own.
FUZZ      := $(BUILD)/fuzz
FUZZ_CXX  ?= $(or $(shell command -v clang++),$(lastword $(sort $(wildcard /usr/bin/clang++-*))))
FUZZ_SRC  := dev/fuzz/fuzz.cpp $(addprefix llmc/core/,check.cpp hash.cpp nearest.cpp rng.cpp) \
             $(filter-out %_test.cpp,$(wildcard llmc/io/tokenizer*.cpp)) \
             $(addprefix llmc/io/,files.cpp csv.cpp data_info.cpp file_runs.cpp llama2c_model.cpp llmc_eval.cpp \
               llmc_model.cpp manifest.cpp safetensors.cpp text_file.cpp tokens.cpp checkpoint_agree.cpp) \
             $(addprefix llmc/train/,documents.cpp eval_questions.cpp options.cpp options_parse.cpp) \
             $(addprefix llmc/parallel/,comm.cpp comm_record.cpp comm_self.cpp liveness.cpp timeline.cpp) llmc/model/config.cpp
FUZZ_OBJ  := $(FUZZ_SRC:%.cpp=$(FUZZ)/%.o)
FUZZ_FLAGS := -std=c++20 -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined \
              -fno-sanitize-recover=undefined

$(FUZZ)/%.o: %.cpp $(BUILD)/flags
	@mkdir -p $(@D)
	$(call TOLD,compile)
	$(Q)$(CCACHE) $(FUZZ_CXX) $(FUZZ_FLAGS) -fsanitize=fuzzer-no-link $(CPPFLAGS) -MMD -MP -c $< -o $@
$(FUZZ)/fuzz: $(FUZZ_OBJ)
	$(call TOLD,link)
	$(Q)$(FUZZ_CXX) $(FUZZ_FLAGS) -fsanitize=fuzzer -o $@ $^ $(LDLIBS)

fuzz:                  ## build the fuzzers of dev/fuzz (needs clang)
	$(if $(FUZZ_CXX),,$(error no clang++ here: apt-get install clang))
	@$(MAKE) --no-print-directory $(FUZZ)/fuzz
.PHONY: fuzz
-include $(FUZZ_OBJ:.o=.d)
