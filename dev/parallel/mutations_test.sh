#!/usr/bin/env bash
# Faults in the code of many ranks that its tests must see; scripts/test/mutate.sh says how to call
# this. A faulty file is linked before the library, half a minute each.
. scripts/test/mutate.sh
obj=$build/obj/llmc
tests=("$obj"/model/layouts_test.o "$obj"/parallel/{comm,slicing,comm_queue}_test.o)
read -r -a flags <<< "-std=c++20 -O2 -march=native -ffp-contract=off -fno-math-errno -fopenmp -I. $(sed -n 's/^PROBE_CPPFLAGS :=//p' "$build/probe.mk")"
read -r -a libs <<< "$(sed -n 's/^PROBE_LDLIBS :=//p' "$build/probe.mk") -ldl -lgtest -lgtest_main"

# FILE, or for a header the source that is compiled with it.
mutant_build() {
    g++ "-I$tree" "${flags[@]}" -c "${2:-$tree/$1}" -o "$work/mutant.o" &&
        g++ -fopenmp "$work/mutant.o" "${tests[@]}" "$build/libllmc.a" "${libs[@]}" -o "$work/mutant"
}
mutant_run() { timeout $((240 / share)) "$work/mutant" --gtest_brief=1 --gtest_fail_fast; }

shards=llmc/parallel/shards.cpp slicing=llmc/parallel/slicing.cpp shared=llmc/parallel/comm_shared.cpp
mutate "a bucket is skipped"                 $shards 's/if \(bucket.first < first\) return;/if (bucket.first < first) return; if (next_bucket_ == 1) continue;/'
mutate "a bucket is sent too early"          $shards 's/send_complete_buckets\(b\.offset\)/send_complete_buckets(b.offset - 64)/'
mutate "sent on every micro-batch"           $shards 's/const bool last = .*/const bool last = true;/'
mutate "sent one micro-batch early"          $shards 's/micro_batch_ \+ 1 == /micro_batch_ + 2 == /'
mutate "reduce does not wait"                $shards 's/^    queue_\.drain\(\);\r?$//'
mutate "stage 2 forgets to zero a block"     $shards 's/memory_zero\(grads, .*//'
mutate "stage 2 does not wait for a block"   $shards 's/queue_\.wait\(grad_tickets_.*//'
mutate "stage 1 sums stay"                   $shards 's/memory_zero\(sums_, .*/;/'
mutate "norm of held, not of owned"          $shards 's/for \(const Range& r : owned_\)/for (const Range\& r : held_)/'
mutate "norm is not summed over ranks"       $shards 's/fixed_sum_all_reduce\(square_sum_, dp_\);//'
mutate "sums may wrap"                       $shards 's/limit_\(grad_limit\(config\.micro_batches\)\)/limit_(grad_limit(1))/'
mutate "the range depends on the ranks"      $shards 's/grad_limit\(config\.micro_batches\)/grad_limit(config.micro_batches * dp.size())/'
mutate "the range flag stays on its rank"    $shards 's/dp_\.all_reduce\(static_cast<void\*>\(bad_\).*//'
mutate "loss is not summed over ranks"       $shards 's/fixed_sum_all_reduce\(loss, dp_\);//'
mutate "parameters are not gathered"         $shards 's/if \(!state_sliced\(\) \|\| params_sliced\(\)\) return;/return;/'
mutate "gathered blocks stay after a step"   $shards 's/for \(Gathered& g : gathered_\) g\.block = -1;//; s/if \(--g\.users == 0\) g\.block = -1;/--g.users;/'
mutate "wrong slice is updated"              $shards 's/at\(grads_sliced\(\), p\) \+ i, n\)/at(!grads_sliced(), p) + i, n)/'
mutate "moments at the place of the whole"   $shards 's/state = at\(state_sliced\(\), p\) \+ i/state = at(false, p) + i/'
mutate "a layer's neighbour is gathered"     $shards 's/params_ \+ b->local,/params_ + slicing_.buckets[0].local,/'
mutate "the wrong owner"                     $slicing 's/b->slices\(\)\.begin\(rank\)/b->slices().begin(rank ? rank - 1 : rank)/'
mutate "the last slice is never owned"       $slicing 's/if \(const int64_t n = int64_t\(b->slices\(\)\.count\(rank\)\)\)/if (const int64_t n = int64_t(b->slices().count(rank)); n == b->each)/'
mutate "slices that cut a chunk of the norm" $slicing 's/each = round_up\(\(n \+ ranks - 1\) \/ ranks, kTensorAlign\)/each = (n + ranks - 1) \/ ranks/'
mutate "ranks do not meet"                   $shared 's/^        wait_for\(come, all\);/        (void)all;/'
mutate "one place instead of two"            llmc/parallel/comm_shared.h 's/\(met_ \+ uint32_t\(ago\)\) % 2/0u * uint32_t(ago)/' $shared
mutate "registered: a sum stays with its owner" $shared 's/combine\(shifted<void\*>\(at, shift\)/combine(std::vector<void*>{at[size_t(rank_)] + shift}/'
mutate "registered: nobody waits to be read" $shared 's/return meet\(\);/return;/'
mutate "registered: nobody waits to be ready" $shared 's/^        meet\(\);$//'
mutate "registered: one rank's slice for all" $shared 's/\(in_place \? s\.begin\(r\) \* p\.width : 0\)/0/'
mutate "registered: alone if need be"        $shared 's/do_all_reduce\(&ok, 1, .*/meet();/'
mutate "a rank adds itself twice"            $shared 's/from\.push_back\(outbox\(r, 1\)\)/from.push_back(outbox(r ? r : rank_, 1))/'
