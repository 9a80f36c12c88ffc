#!/usr/bin/env bash
# Faults in kernels and in the layer that calls them, which their tests must see in the simulator;
# scripts/test/mutate.sh says how to call this. A faulty file is linked before its library; faults
# in headers reach the sources that a row names. Some ten seconds each.
. scripts/test/mutate.sh

mode=''                     # of the simulator, for the rows that follow; empty: plain
sources=(llmc/ops/*_cuda_test.cu)
tests=("${sources[@]/%/.o}") library=libops.a

# How a row ends: the tests to run, and the sources if they are not the file itself.
mutant_build() {
    local file=$1 sim=$build/sim${mode:+-$mode} source objects=() runtime compile link=(g++ -fopenmp); shift 2
    [ "$mode" != aubsan ] || link+=(-fsanitize=address,undefined)
    [ $# -gt 0 ] || set -- "$file"
    for source in "$@"; do
        # The flags of the objects that the rest is made of; the copy hides the file from #include.
        compile=$sim/obj/kernel-flags
        [[ $source == *.cu ]] || compile=$build/sim/obj/host-flags
        read -r -a compile <<< "$(< "$compile")"
        objects+=("$work/$(basename "$source").o")
        [ -e "$tree/$source" ] && source=$tree/$source
        "${compile[0]}" -I"$tree" "${compile[@]:1}" -x c++ -c "$source" -o "${objects[-1]}" || return
    done
    mapfile -t runtime < <(printf '%s\n' dev/sim/src/*.cpp | sed "s|^|$build/sim/obj/|; s|cpp$|o|" |
        grep -vE "${mode:+none}/(trace|race|count|hooks)\.o")
    read -r -a libs <<< "$(sed -n 's/^PROBE_LDLIBS :=//p' "$build/probe.mk") -ldl -lgtest -lgtest_main"
    "${link[@]}" "${objects[@]}" "${tests[@]/#/$build/sim/obj/}" "${runtime[@]}" "$sim/$library" "${libs[@]}" -o "$work/mutant"
}
# The simulator reports deadlocks, so a run out of time has found nothing.
mutant_run() {
    env -u TEST_DEEP timeout 600 "$work/mutant" --gtest_brief=1 --gtest_fail_fast --gtest_filter="$1"
    local code=$?
    [ $code != 124 ] || { echo "out of time"; return 0; }
    return $code
}

ops=llmc/ops norms=(llmc/ops/layernorm.cu llmc/ops/rmsnorm.cu)

# ---- order-free sums, the decision over a step
sums=$ops/reduce_sums.cu limbs=$ops/fixed_sum_format.h
mutate "sums: a limb carries one bit too early"    $limbs 's/kLimbBits = 50/kLimbBits = 49/' '*sum*' $sums
mutate "sums: the carry of lo is lost"             $limbs 's/sum\.mid \+= sum\.lo >> kLimbBits/sum.mid += 0/' '*sum*' $sums
mutate "sums: a negative term adds to hi"          $limbs 's/sum\.hi \+= sign \* int64_t/sum.hi += int64_t/' '*sum*' $sums
mutate "sums: the last warp is left out"           $sums 's/i < kThreads \/ 32; i\+\+/i < kThreads \/ 32 - 1; i++/' '*sum*'
mutate "sums: the last element of a ragged chunk"  $sums 's/if \(from \+ i < n\)/if (from + i + 1 < n)/' '*sum*'
mutate "sums: lanes in another order"              $sums 's/__shfl_sync\(0xffffffffu, lane, i, kLanes\)/__shfl_sync(0xffffffffu, lane, kLanes - 1 - i, kLanes)/' '*sum*'
mutate "sums: bad values of other warps"           $sums 's/mine\.bad \+= part.*//' '*sum*'
mutate "sums: truncated, not rounded"              $sums 's/__double2ll_rn\(double\(x\) \* kGradScale\)/(long long)(double(x) * kGradScale)/' '*sum*'
mutate "sums: the range is twice as wide"          $sums 's/fabsf\(x\) < limit/fabsf(x) < 2 * limit/' '*sum*'
mutate "sums: the second of a pair has no say"     $sums 's/good = fixed_accumulate\(sum\.b, v\.y, limit\) && good/fixed_accumulate(sum.b, v.y, limit)/' '*sum*'
mutate "sums: gradients stay"                      $sums 's/__stcs\(reinterpret_cast<int2.*//' '*sum*'
mutate "sums: out of range on all ranks alone"     $limbs 's/ \|\| s\.hi >= kLimb \|\| s\.hi < -kLimb//' '*clip*' $ops/clip.cu
mutate "clip: a carry is lost"                     $limbs 's/s\.mid \+= s\.lo >> kLimbBits;//' '*clip*' $ops/clip.cu
mutate "clip: bad sums are numbers"                $limbs 's/if \(s\.bad > 0 \|\| /if (/' '*clip*' $ops/clip.cu
mutate "clip: a loss of NaN is fine"               $ops/clip.cu 's/ && fabs\(limbs_value\(\*loss\)\) < INFINITY//' '*clip*'
mutate "clip: the range flag stays"                $ops/clip.cu 's/\*out_of_range = 0;//' '*clip*'
mutate "clip: the range flag is not looked at"     $ops/clip.cu 's/\*out_of_range \? .*$/float(sqrt(limbs_value(*squares)));/; s/^ +: float\(sqrt.*//' '*clip*'
mutate "clip: divided in single precision"         $ops/clip.cu 's/float\(most \/ double\(n\)\)/float(most) \/ n/' '*clip*'

# ---- what all kernels stand on
packed=llmc/core/packed.cuh
mutate "packed: bf16 is cut, not rounded"          $packed 's/__bfloat16_as_ushort\(__float2bfloat16_rn\(x\)\)/uint16_t(__float_as_uint(x) >> 16)/' '*packed*' llmc/core/packed_cuda_test.cu
mutate "packed: a block's sum leaves out a warp"   $packed 's/v = warp_sum\(lane < kThreads \/ 32 \?/v = warp_sum(lane < kThreads \/ 32 - 1 ?/' '*classifier*' $ops/classifier.cu
mutate "packed: the largest of no warp is 0"       $packed 's/partial\[lane\] : -INFINITY/partial[lane] : 0.f/' '*packed*' llmc/core/packed_cuda_test.cu
mutate "packed: a block's slots are read too soon" $packed '0,/__syncthreads\(CALLER_ONLY_ARG\);/s///' '*classifier*' $ops/classifier.cu
mutate "quads: a row's last element stays"         $ops/kernel.cuh 's/if \(c \+ k < C\) row\[c \+ k\] = x\[k\]/if (c + k + 1 < C) row[c + k] = x[k]/' '*swiglu*' $ops/swiglu.cu
mutate "partial sums: one thread a column is idle" $ops/partial_sums.cuh 's/i < kPartialThreads; i/i < kPartialThreads - 1; i/' '*norm_cuda/0*' "${norms[@]}"
mutate "partial sums: written, not added"          $ops/partial_sums.cuh 's/out\[c\] \+= total/out[c] = total/' '*norm_cuda/0*' "${norms[@]}"
mutate "philox: nine rounds"                       llmc/core/rng.h 's/round < 10/round < 9/' '*adamw*' $ops/adamw.cu

# ---- one op after the other
mutate "embedding: later occurrences are left out" $ops/embedding.cu 's/int j = start \+ 1; j < end/int j = start + 2; j < end/' '*embedding*'
CUSIM_SCHED=rev mutate "embedding: the order of arrival"           $ops/embedding.cu 's/b\.sorted\[start \+ rank\] = n/b.sorted[i] = n/' '*embedding*:digests*'
mutate "embedding: positions do not start again"   $ops/embedding.cu 's/n % T \* C/n * C/' '*embedding*'
mutate "embedding: dwpe is written, not added"     $ops/embedding.cu 's/if \(dwpe\) at_t = .*//' '*embedding*'
rope=$ops/rope.cu
mutate "rope: turned the other way"                $rope 's/before \* c - b \* s/before * c + b * s/' '*rope*'
mutate "rope: values are turned too"               $rope 's/heads = H \+ KV;/heads = H + 2 * KV;/; s/\(H \+ KV\) \* groups/(H + 2 * KV) * groups/' '*rope*'
mutate "rope: positions go on"                     $rope 's/row % T \* HS/row * HS/' '*rope*'
mutate "rope: the second pair by the first angle"  $rope 's/turn\(a1, b1, c\.y/turn(a1, b1, c.x/' '*rope*'
mutate "rope: backward by the first sine forward"  $rope 's/c\[k\], direction \* s\[k\]/c[k], s[k]/' '*rope*'
swiglu=$ops/swiglu.cu
mutate "swiglu: the slope of the gate is cut"      $swiglu 's/ \* \(1 \+ g \* g_of\.one_minus_s\)//' '*swiglu*'
mutate "swiglu: e^x overflows"                     $swiglu 's/expf\(-fabsf\(x\)\)/expf(-x)/; s/return x < 0 \? .*/return Sigmoid{d, e * d};/' '*swiglu*'
mutate "swiglu: gate and up change places"         $swiglu 's/dpre \+ n \* 2 \* F, f, F, dgate/dpre + n * 2 * F, f, F, dup/' '*swiglu*'
mutate "gelu: the slope lacks a term"              $ops/gelu.cuh 's/ \* \(1 \+ 3 \* 0\.044715f \* x \* x\)//' '*gelu*' $ops/gelu.cu
mutate "gelu: large values overflow"               $ops/gelu.cuh 's/x = fminf\(fmaxf.*//' '*gelu*' $ops/gelu.cu
norm=$ops/norm.cuh
mutate "norm: variance about 0"                    $norm 's/as_float\(v\[k\]\) - m : 0/as_float(v[k]) : 0/' '*norm_cuda/0*' "${norms[@]}"
mutate "norm: eps outside the root"                $norm 's/1 \/ sqrtf\(warp_sum\(squares\) \/ C \+ eps\)/1 \/ (sqrtf(warp_sum(squares) \/ C) + eps)/' '*norm_cuda/0*' "${norms[@]}"
mutate "norm: the residual is not what is seen"    $norm 's/v\[k\] = as_elem<Elem>\(as_float\(v\[k\]\) \+ as_float\(add\[k\]\)\)/v[k] = add[k]/' '*norm_cuda/0*' "${norms[@]}"
mutate "norm: dx lacks its mean"                   $norm 's/\(g - mean_g - xhat \* mean_gx\)/(g - xhat * mean_gx)/' '*norm_cuda/0*' "${norms[@]}"
mutate "norm: dx lacks its part along x"           $norm 's/\(g - mean_g - xhat \* mean_gx\)/(g - mean_g)/' '*norm_cuda/0*' "${norms[@]}"
mutate "norm: dresidual is written, not added"     $norm 's/if constexpr \(kResidual\) value \+= .*//' '*norm_cuda/0*' "${norms[@]}"
mutate "norm: the last rows of a block are lost"   $norm 's/rows = min\(warps, N - first\)/rows = min(warps, N - first) - (first > 0)/' '*norm_cuda/0*' "${norms[@]}"
mutate "norm: db of the pair's second column"      $norm 's/, b_sum\.y \+= as_float\(d\.b\)//' '*norm_cuda/0*' "${norms[@]}"
mutate "rmsnorm: the residual is left out"         $ops/rmsnorm.cu 's/norm_forward_launch<true, true, Elem>/norm_forward_launch<true, false, Elem>/' '*rmsnorm_cuda/0*'
mutate "rmsnorm: a mean is subtracted"             $ops/rmsnorm.cu 's/norm_backward_launch<true, false>\(dx, dw, nullptr, dy, x, w, nullptr/norm_backward_launch<false, false>(dx, dw, nullptr, dy, x, w, rstd/' '*rmsnorm_cuda/0*'
mutate "qknorm: keys by the queries' weight"       $ops/qknorm.cu 's/head\.query \? qw : kw/qw/' '*qknorm*'
mutate "qknorm: a warp's share of the weights"     $ops/qknorm.cu 's/k < kWarps; k\+\+/k < kWarps - 1; k++/' '*qknorm*'
class=$ops/classifier.cu
mutate "classifier: the padding takes part"        $class 's/if \(i \* Packet::size \+ k < V\) sum/sum/' '*classifier*'
mutate "classifier: the padding gets a gradient"   $class 's/v < V \? d : 0\.f/d/' '*classifier*'
mutate "classifier: no target in the gradient"     $class 's/if \(v == target\) d -= scale;//' '*classifier*'
mutate "classifier: ignored rows keep their logits" $class 's/row\.store\(i, zeros\)/(void)zeros/' '*classifier*'
mutate "classifier: the largest logit is not taken" $class 's/most = block_max<kThreads>\(most\);/most = 0;/' '*classifier*'
mutate "classifier: long rows lose a packet"       $class 's/if \(i < kept\) return load128/if (i <= kept) return load128/' '*classifier*'
adamw=$ops/adamw.cu
mutate "adamw: decay of the step before"           $adamw 's/__fmul_rn\(k\.weight_decay, p\)/__fmul_rn(k.weight_decay, m)/' '*adamw*'
mutate "adamw: eps inside the root"                $adamw 's/__fadd_rn\(__fsqrt_rn\(__fmul_rn\(v, k\.fix_v\)\), k\.eps\)/__fsqrt_rn(__fadd_rn(__fmul_rn(v, k.fix_v), k.eps))/' '*adamw*'
mutate "adamw: one rounding less"                  $adamw 's/__fadd_rn\(__fmul_rn\(k\.beta1, m\), __fmul_rn\(k\.rest1, g\)\)/fmaf(k.beta1, m, __fmul_rn(k.rest1, g))/' '*adamw*'
mutate "adamw: the gradient stays"                 $adamw 's/^    grad = 0;//' '*adamw*'
mutate "adamw: a skipped step moves"               $adamw 's/if \(scale == 0\) \{/if (false) {/' '*adamw*'
mutate "adamw: every step rounds alike"            $adamw 's/key\.name \+ uint64_t\(t\) \* 0x9E3779B97F4A7C15u/key.name/' '*adamw*'
mutate "adamw: a slice rounds from its start"      $adamw 's/index = key\.index \+ i;/index = i;/' '*adamw*'
mutate "adamw: chances beyond a half only"         $adamw 's/random & 0xffffu/random \& 0x7fffu/' '*adamw*'

# ---- attention on tensor cores
attention() { mutate "attention: $1" "$ops/attention_flash_$2.cuh" "$3" 'attention_cuda.tensor*' $ops/attention.cu; }
attention "a growing maximum shrinks nothing"      forward 's/acc\[m\]\[n\]\[2 \* j\] \*= shrink;//'
attention "queries see one key more"               forward 's/if \(key > query\)/if (key > query + 1)/'
attention "a tile on the diagonal has no mask"     forward 's/if \(u0 \+ kN - 1 > mine\)/if (u0 > mine)/'
attention "keys without delta"                     backward 's/w\[0\]\[n\]\[i\] \*= dw\[0\]\[n\]\[i\] - tile_delta.*/w[0][n][i] *= dw[0][n][i];/'
attention "queries do not see their own key"       backward 's/key <= mine/key < mine/'
attention "the first head of a group alone"        backward 's/rounds = group \* tiles/rounds = tiles/'

# ---- missing barriers, which only a look at races finds for sure
mode=trace
mutate "packed: a block's slots are used again too soon" $packed 'H;$!d;x;s/\n//;s/(partial\[lane\] : 0\.0f CALLER_ARG\);\n +)__syncthreads\(CALLER_ONLY_ARG\);/\1/' '*packed*' llmc/core/packed_cuda_test.cu
mutate "partial sums: added before they are there" $ops/partial_sums.cuh 's/__syncthreads\(\);//' 'layernorm_cuda/0*' $ops/layernorm.cu
mutate "sums: warps' sums before they are there"   $sums 's/__syncthreads\(\);//' '*sum*'
mutate "norm: rows are overwritten"                $norm 's/__syncthreads\(\);  \/\/ the next.*//' 'layernorm_cuda/0*' $ops/layernorm.cu
mutate "norm: rows are read before they are there" $norm '0,/^        __syncthreads\(\);$/s///' 'layernorm_cuda/0*' $ops/layernorm.cu
mutate "classifier: copies are not waited for"     $class 's/cp_async_wait_group<0>\(\);//' '*classifier*'

# ---- reads past the end, which change no result
mode=aubsan
mutate "quads: an element beyond the row is read"  $ops/kernel.cuh 's/out\[k\] = c \+ k < C \? row\[c \+ k\] : as_elem<T>\(0\.f\)/out[k] = row[c + k]/' '*swiglu*' $ops/swiglu.cu
mutate "packets: an element beyond the row is read" $ops/kernel.cuh 's/out\[k\] = c \+ k < C \? row\[c \+ k\] : as_elem<Elem>\(0\.f\)/out[k] = row[c + k]/' 'layernorm_cuda/0*' $ops/layernorm.cu

# ---- the layer: against central differences on the CPU, and CUDA against the CPU
mode='' tests=(test_gpt.cu.o) library=libllmc.a
layer() { mutate "layer: $1" llmc/model/block.h "$2" "${3:-*gpt_kind*}" llmc/model/gpt.cpp llmc/model/gpt_test.cpp; }
layer "the MLP reads the first norm"        's/matmul_gelu_forward\(a\.act, a\.pre, a\.ln2/matmul_gelu_forward(a.act, a.pre, a.ln1/'
layer "the second norm sees no attention"   's/a\.rstd2, a\.res1, all\.branch, p\.ln2w/a.rstd2, a.res1, a.res1, p.ln2w/'
layer "queries are not turned back"         's/c\.rope_pairs, -1, s/c.rope_pairs, 1, s/'
layer "the norm of heads sees them turned"  's/d\.qnormw, d\.knormw, a\.qk,/d.qnormw, d.knormw, a.qkv,/'
layer "no gradient through the MLP's input" 's/matmul_backward_input\(dnarrow, dwide, p\.fcw.*//'
layer "the gradient of fc by the wrong norm" 's/matmul_backward_params\(d\.fcw, d\.fcb, dwide, a\.ln2/matmul_backward_params(d.fcw, d.fcb, dwide, a.ln1/'
layer "norms change places in backward"     's/a\.res1, p\.ln1w, a\.mean1, a\.rstd1, N,$/a.res1, p.ln2w, a.mean1, a.rstd1, N,/'
layer "recompute forgets the first norm"    's/^        norm_forward\(c, a\.ln1, a\.mean1, a\.rstd1, a\.res1.*//' '*gpt_kind*:gpt_cuda*recompute*:gpt_cuda*recomputing*'
layer "recompute rounds GELU's input first" 's/^    matmul_gelu_forward\(a\.act, a\.pre, a\.ln2, p\.fcw, p\.fcb, all\.B.*/    gelu_forward(a.act, a.pre, size_t(all.B) * all.T * c.F, s);/' 'gpt_cuda*recomputing*'
