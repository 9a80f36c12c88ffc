#!/usr/bin/env bash
# Faults in what reads and writes other people's files, in evaluation and in the loss mask, that tests
# must see; scripts/test/mutate.sh says how to call this. A faulty file is linked before the library,
# with unit tests or as the program that a script tests: some ten seconds each.
. scripts/test/mutate.sh
obj=$build/obj/llmc
tests=("$obj"/io/{safetensors,llmc_eval,llmc_model,tokens,checkpoint}_test.o
    "$obj"/train/{hf,eval_task,eval_questions,documents,tokenize,batch}_test.o "$obj"/ops/classifier_test.o)
read -r -a flags <<< "-std=c++20 -O1 -march=native -ffp-contract=off -fno-math-errno -fopenmp -I. $(sed -n 's/^PROBE_CPPFLAGS :=//p' "$build/probe.mk")"
read -r -a libs <<< "$(sed -n 's/^PROBE_LDLIBS :=//p' "$build/probe.mk") -ldl"
finding="^not ok [0-9]+ - .*|$finding"

# HOW: a filter for the unit tests, or the script that tests the program; for a header, the source that
# is compiled with it.
mutant_build() {
    g++ "-I$tree" "${flags[@]}" -c "${3:-$tree/$1}" -o "$work/mutant.o" || return
    if [[ $2 == *.sh ]]; then
        g++ -fopenmp "$work/mutant.o" "$build/obj/train_gpt.cu.o" "$build/libllmc.a" "${libs[@]}" -o "$work/mutant"
    else
        g++ -fopenmp "$work/mutant.o" "${tests[@]}" "$build/libllmc.a" "${libs[@]}" -lgtest -lgtest_main -o "$work/mutant"
    fi
}
mutant_run() {
    if [[ $1 == *.sh ]]; then
        ! env -u TEST_DEEP TRAIN_GPT="$work/mutant" CUDA_TRAIN_GPT=none timeout $((240 / share)) bash "scripts/test/$1" | grep "^not ok"
    else
        timeout $((120 / share)) "$work/mutant" --gtest_brief=1 --gtest_fail_fast --gtest_filter="$1"
    fi
}

# ---- evaluation: which answer counts, over which tokens
task=llmc/train/eval_task.cpp score=llmc/train/eval_score.cpp rows=llmc/train/eval_rows.cpp questions=llmc/train/eval_questions.cpp
mutate "acc: normalised by tokens"             $task 's/(by_sum \+= .* return loss\[c\])/\1 \/ double(rows.tokens[c])/' '*Eval*'
mutate "acc_norm: not normalised"              $task 's/loss\[c\] \/ double\(rows.bytes\[c\]\)/loss[c]/' '*Eval*'
mutate "acc_llmc: normalised by bytes"         $task 's/loss\[c\] \/ double\(rows.tokens\[c\]\)/loss[c] \/ double(rows.bytes[c])/' '*Eval*'
mutate "of equal losses the last one wins"     $task 's/score\(c\) < score\(best\)/score(c) <= score(best)/' '*Eval*'
mutate "standard error: n, not n - 1"          $task 's/p \* \(1 - p\) \/ double\(n - 1\)/p * (1 - p) \/ double(n)/' '*Eval*'
mutate "standard error: no root"               $task 's/std::sqrt\(p \* \(1 - p\)/(p * (1 - p)/' '*Eval*'
mutate "perplexity's error: not times itself"  $task 's/^ +perplexity \*\r?$//' '*Eval*'
mutate "lambada: by loss, not by what is said" $task 's/"acc", r\.greedy, n/"acc", r.by_sum, n/' eval_test.sh
mutate "two files: squares are not added"      $task 's/, sum\.loss_squares \+= more\.loss_squares//' '*Eval*'
mutate "greedy: the last token alone"          $score 's/greedy = greedy && /greedy = /' '*Eval*'
mutate "greedy: a token too early"             $score 's/distribution\(at \+ i\)/distribution(at + i - 1)/' '*Eval*'
mutate "letters: all have the first's loss"    $score 's/next\.loss\(row\.alternatives\[c\]\)/next.loss(row.alternatives[0])/' '*Eval*'
mutate "scored: from one token on"             $score 's/(row\.tokens\.size\(\)\)) - 1 - row\.scored/\1 - row.scored/' '*Eval*'
mutate "scored: a token less"                  $score 's/int i = 0; i < row\.scored/int i = 1; i < row.scored/' '*Eval*'
mutate "batches: rows lie max_T apart"         $score 's/return b \* gpt_\.acts\.T/return b * max_T_/' '*Eval*'
mutate "batches: the last one's rest is lost"  $score 's/first < order\.size\(\); first \+= stride/first + B <= order.size(); first += stride/' '*Eval*'
mutate "ranks: all do all"                     $score 's/stride = B \* size_t\(comm\.size\(\)\)/stride = B/' '*Eval*'
mutate "ranks: losses are not summed"          $score 's/comm\.all_reduce\(scores\.loss.*//' '*Eval*'
mutate "ranks: greedy answers are not summed"  $score 's/comm\.all_reduce\(scores\.greedy.*//' '*Eval*'
mutate "a long context loses its end"          $rows 's/erase\(row\.tokens\.begin\(\), row\.tokens\.begin\(\) \+ over\)/erase(row.tokens.end() - over, row.tokens.end())/' '*Eval*'
mutate "a long context loses a token more"     $rows 's/row\.tokens\.size\(\)\) - 1 - max_T/row.tokens.size()) - max_T/' '*Eval*'
mutate "spaces stay with the context"          $rows 's/find_last_not_of\(" .t.n.r"\) \+ 1/size()/' '*Eval*'
mutate "an empty context stays empty"          $rows 's/\|\| cut == 0/\&\& cut == 0/' '*Eval*'
mutate "one row for different contexts"        $rows 's/ && p\.context == pairs\[0\]\.context//' '*Eval*'
mutate "bytes: with the space before"          $rows 's/continuation\.size\(\)\) - 1/continuation.size())/' '*Eval*'
mutate "llm.c's bytes: with the space before"  $rows 's/decode\(choice\)\.size\(\)\) - space/decode(choice).size())/' '*Eval*'
mutate "mmlu: another letter"                  $questions "s/str\(\" \", char\('A' \+ i\)\)/str(\" \", char('B' + i))/" '*Eval*'
mutate "mmlu: letters without a space"         $questions "s/str\(\" \", char\('A' \+ i\)\)/str(char('A' + i))/" '*Eval*'
mutate "mmlu: examples without answers"        $questions 's/ \+ letter\(shown\[size_t\(i\)\]\.gold\)//' '*Eval*'
mutate "mmlu: answers are counted from 1"      $questions "s/c - 'A' : c - '0'/c - 'A' : c - '1'/" '*Eval*'
mutate "hellaswag: endings without a space"    $questions '/^static EvalQuestion hellaswag\(/,/^}/s/" " \+ ending/ending/' '*Eval*'
mutate "hellaswag, harness: marks stay"        $questions 's/text\.erase\(at, end \+ 1 - at\)/at++/' '*Eval*'
mutate "lambada: the first word"               $questions "s/rfind\(' '\)/find(' ')/" '*Eval*'
mutate "arc: by place, not by label"           $questions 's/choice\.at\("label"\) == line\.at\("answerKey"\)/q.choices.empty()/' '*Eval*'
mutate "winogrande: answers are counted from 0" $questions 's/number\(line\.at\("answer"\)\) - 1/number(line.at("answer"))/' '*Eval*'
mutate "llm.c's file: a question's label"      llmc/io/llmc_eval.cpp '0,/q\.label = /s/q\.label = /q.label = 1 - /' '*llmc_eval*:*LlmcEval*'

# ---- the loss mask, from the text to the gradient
classifier=llmc/ops/classifier_cpu.cpp
mutate "mask: prompts are trained on"          llmc/train/documents.cpp 's/(at\("prompt"\).*), false\)/\1, true)/' '*Tokenize*'
mutate "mask: a token across the border is"    llmc/train/tokenize.cpp 's/end <= int64_t\(range->begin\)/at < int64_t(range->begin)/' '*Tokenize*'
mutate "mask: the token after a prompt is not" llmc/train/tokenize.cpp 's/int64_t\(range->end\) <= at\)/int64_t(range->end) < at)/' '*Tokenize*'
mutate "mask: a token early"                   llmc/io/tokens.cpp 's/(read_mask\(trained\.data\(\), first) \+ 1,/\1,/' '*Tokens*'
mutate "mask: read the wrong way round"        llmc/io/tokens.cpp 's/if \(!trained\[/if (trained[/' '*Tokens*'
mutate "mask: forward does without"            $classifier '0,/if \(targets\[n\] == kIgnoreTarget\) continue;/s//if (targets[n] == kIgnoreTarget) { losses[n] = 1; continue; }/' '*classifier*'
mutate "mask: gradients of what is ignored"    $classifier 's/std::fill\(x, x \+ V, 0\.f\);//' '*classifier*'
mutate "mask: the mean is over all tokens"     llmc/train/batch.cpp 's/std::count\(batch.targets.begin.*/0;/' finetune_test.sh
mutate "mask: eval's mean is over all tokens"  llmc/train/evaluate.cpp 's/ - std::count\(targets.*;/;/' finetune_test.sh
mutate "eval: all ranks read the same"         llmc/train/evaluate.cpp 's/int64_t\(B\) \* comm\.rank\(\);/0;/' eval_test.sh
mutate "eval: targets stay on their rank"      llmc/train/evaluate.cpp 's/comm\.all_reduce\(&valid.*//' eval_test.sh

# ---- model files
hf=llmc/train/hf.cpp safetensors=llmc/io/safetensors.cpp floats=llmc/io/file_runs.cpp llmc=llmc/io/llmc_model.cpp
mutate "export: a column of a piece too many"  $hf 's/ceil_div\(first - r, p\.rows\)/(first - r) \/ p.rows/' '*Hf*'
mutate "export: a transposed piece moves"      $hf 's/\(begin \+ c\) \* p\.rows \+ r - first/(begin + c) * p.rows + r/' '*Hf*'
mutate "export: pairs in their old order"      $hf 's/in_head < half \? 2 \* in_head : 2 \* \(in_head - half\) \+ 1/in_head/' '*Hf*'
mutate "import: pairs in their old order"      $hf 's/in_head \/ 2 \+ \(in_head % 2 \? pair_head \/ 2 : 0\)/in_head/' '*Hf*'
mutate "both: pairs in their old order"        $hf 's/RopePairs::Interleaved \? c\.HS\(\) : 0/RopePairs::Interleaved ? 0 : 0/' hf_test.sh
mutate "both: norms of heads in the old order" $hf 's/pairs \? c\.HS\(\) : 0\)/pairs ? 0 : 0)/' hf_test.sh
mutate "both: k and v change places"           $hf 's/part\(with_part\(t\.name, "qkv_proj", "k_proj"\), a, kv, pairs\)/part(with_part(t.name, "qkv_proj", "k_proj"), a + kv, kv, pairs)/; s/"v_proj"\), a \+ kv, kv/"v_proj"), a, kv/' llama_test.sh
mutate "both: nothing is transposed"           $hf 's/whole\.transposed = true;//' '*Hf*'
mutate "import: extra tensors are fine"        $hf 's/extra\.push_back\(name\)/(void)name/' hf_test.sh
mutate "import: any shape"                     $hf 's/found\.shape == p\.shape/found.shape.size() == p.shape.size()/' hf_test.sh
mutate "export: rubbish stays in the folder"   $hf 's/fs::remove\(file->path\(\), none\);/;/' '*Hf*'
mutate "export: <\|im_end\|> ends documents"   $hf 's/std::rotate\(ends\.begin\(\), eot, eot \+ 1\)/std::rotate(ends.begin(), ends.end() - 1, ends.end())/' hf_test.sh
mutate "export: a text's beginning ends one"   $hf 's/ && !\(id == tokenizer\.eot\(\) && tokenizer\.begins_texts\(\)\)//' hf_test.sh
mutate "export: bf16 is cut"                   $floats 's/to_bf16\(wide\[k\]\)/bf16{uint16_t(float_bits(wide[k]) >> 16)}/' '*safetensors*'
mutate "safetensors: holes are fine"           $safetensors 's/begin == at, Exit/begin >= at, Exit/' '*safetensors*'
mutate "safetensors: overlaps are fine"        $safetensors 's/begin == at, Exit/begin <= at, Exit/' '*safetensors*'
mutate "safetensors: any file name"            $safetensors "s/ && name\[0\] != '\.' && name\.find\('\/'\) == std::string::npos &&/ \&\&/" '*safetensors*'
mutate "safetensors: small halves are zero"    llmc/core/dtype.h 's/float\(m\) \* 0x1p-24f/0 * float(m)/' '*safetensors*' $floats
mutate "safetensors: a full file goes on"      $safetensors 's/files\.emplace_back\(\), filled = 0/filled = 0/' '*safetensors*'
mutate "llm.c: one layer after the other"      $llmc 's/for \(int l = 0; l < layers; l\+\+\) order/for (int l = layers - 1; l >= 0; l--) order/' '*llmc_model*'
mutate "llm.c: padding is not written"         $llmc 's/t == order\[0\] \? int64_t\(h\.Vp - h\.V\) \* h\.C : 0/0/' '*llmc_model*'
mutate "llm.c: padding may hold anything"      $llmc 's/return x == 0;/return x == x;/' '*llmc_model*'
mutate "llm.c: a run begins with zeros"        llmc/train/saves.cpp 's/if \(n > 0\) source\(.*//' llmc_test.sh
mutate "fine-tuning begins at random"          llmc/train/run.cpp 's/else if \(run\.start\) \{/else if (run.start \&\& run.file) {/' finetune_test.sh
mutate "a tensor's hash is not looked at"      llmc/io/checkpoint_load.cpp 's/a\.count != t\.count\(\) \|\|/true ||/' '*checkpoint*'
