#!/usr/bin/env bash
# Hugging Face folders: what is exported comes back bit for bit, and is what the format's names and
# orders say; what does not fit is refused by name.
. scripts/test/tap.sh
train_gpt=${TRAIN_GPT:-build/train_gpt}
. scripts/test/mpi.sh
: "${PYTHON:=/usr/bin/python3}"

for i in $(seq 1 200); do echo "line $i of $((i * i % 997))"; done > "$work/text"
is "tokenize" "$train_gpt" tokenize "$work/text" --tokenizer byte --out "$work/d"
cat > "$work/gpt2.json" << 'JSON'
{"model_type": "gpt2", "n_layer": 2, "n_head": 3, "n_embd": 15, "n_inner": 23, "vocab_size": 257, "n_positions": 37,
 "tie_word_embeddings": false}
JSON
cat > "$work/llama.json" << 'JSON'
{"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 6,
 "hidden_size": 15, "intermediate_size": 23, "vocab_size": 257, "max_position_embeddings": 37, "rms_norm_eps": 1e-5,
 "rope_theta": 500.0, "tie_word_embeddings": true, "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
 "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}}
JSON
sed 's/"tie_word/"rope_interleaved": true, "tie_word/' "$work/llama.json" > "$work/pairs.json"
cat > "$work/qwen2.json" << 'JSON'
{"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "num_hidden_layers": 2, "num_attention_heads": 3,
 "num_key_value_heads": 1, "hidden_size": 18, "intermediate_size": 23, "vocab_size": 257, "max_position_embeddings": 37,
 "rms_norm_eps": 1e-6, "rope_theta": 500.0, "tie_word_embeddings": true, "use_sliding_window": false,
 "sliding_window": 4096, "max_window_layers": 2}
JSON
cat > "$work/qwen3.json" << 'JSON'
{"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": 2, "num_attention_heads": 3,
 "num_key_value_heads": 1, "head_dim": 8, "hidden_size": 15, "intermediate_size": 23, "vocab_size": 257,
 "max_position_embeddings": 37, "rms_norm_eps": 1e-6, "rope_theta": 500.0, "tie_word_embeddings": false,
 "attention_bias": false, "use_sliding_window": false, "sliding_window": null, "max_window_layers": 2}
JSON
sed 's/"tie_word/"rope_interleaved": true, "tie_word/' "$work/qwen3.json" > "$work/qwen3pairs.json"
loss() { "$train_gpt" eval --model "$1" --data "$work/d_train_*.bin" --seq-len 31 2> /dev/null | sed -E 's/.*"val_loss":([^,}]*).*/\1/'; }
for kind in gpt2 llama pairs qwen2 qwen3 qwen3pairs; do
    "$train_gpt" --model "$work/$kind.json" --data "$work/d_train_*.bin" --steps 5 --seq-len 31 --micro-batch 3 \
        --warmup-steps 0 --lr 1e-2 --out "$work/$kind" > "$work/log" 2>&1 || cat "$work/log"
    is "$kind: export" "$train_gpt" export "$work/$kind" --format hf --out "$work/$kind-hf"
    is "$kind: import" "$train_gpt" import "$work/$kind-hf" --out "$work/$kind-back"
    # Interleaved pairs come back as halves: other rows, the same function up to the order of sums.
    awk -v a="$(loss "$work/$kind")" -v b="$(loss "$work/$kind-back")" \
        'BEGIN { exit !(a > 1 && a - b < 2e-6 && b - a < 2e-6) }' && ok "$kind: the same loss" || not_ok "$kind: the same loss"
    is "$kind: export again" "$train_gpt" export "$work/$kind-back" --format hf --out "$work/$kind-hf2"
    cmp -s "$work/$kind-hf/model.safetensors" "$work/$kind-hf2/model.safetensors" &&
        cmp -s "$work/$kind-hf/config.json" "$work/$kind-hf2/config.json" && ok "$kind: byte for byte" || not_ok "$kind: byte for byte"
done
# What an exported folder names its tensors, and their shapes: the file's own header.
header() { head -c $((8 + $(od -An -t u8 -N 8 "$1"))) "$1" | tail -c +9; }
for wanted in 'qwen2 self_attn.k_proj.bias":{"dtype":"F32","shape":[6]' 'qwen3 self_attn.q_norm.weight":{"dtype":"F32","shape":[8]' \
    'qwen3 self_attn.q_proj.weight":{"dtype":"F32","shape":[24,15]' 'gpt2 attn.c_attn.weight":{"dtype":"F32","shape":[15,45]'; do
    header "$work/${wanted%% *}-hf/model.safetensors" | grep -qF "${wanted#* }" && ok "$wanted" || not_ok "$wanted"
done

# ---- a folder as it is: trained on, evaluated, continued
for kind in gpt2 qwen3; do
    tune=(--data "$work/d_train_*.bin" --seq-len 31 --micro-batch 3 --batch-tokens 186 --warmup-steps 1 --lr 1e-3)
    "$train_gpt" --model "$work/$kind-hf" "${tune[@]}" --steps 6 --save-every 3 --keep 9 --out "$work/$kind-t1" > "$work/log" 2>&1 || cat "$work/log"
    "$train_gpt" --model "$work/$kind-back" "${tune[@]}" --steps 6 --out "$work/$kind-t2" > "$work/log" 2>&1 || cat "$work/log"
    state=$("$train_gpt" verify "$work/$kind-t1")
    [ -n "$state" ] && [ "$state" = "$("$train_gpt" verify "$work/$kind-t2")" ] &&
        ok "$kind: trained from the folder as from the imported model, bit for bit" || not_ok "$kind: trained from the folder as from the imported model, bit for bit"
    rm -rf "$work/$kind-t1/ckpt/step-0000000006"
    "$train_gpt" --model "$work/$kind-hf" "${tune[@]}" --steps 6 --out "$work/$kind-t1" > "$work/log" 2>&1 || cat "$work/log"
    [ "$("$train_gpt" verify "$work/$kind-t1")" = "$state" ] && grep -q "resumed at step 3" "$work/log" &&
        ok "$kind: and resumed" || { cat "$work/log"; not_ok "$kind: and resumed"; }
    [ "$(loss "$work/$kind-hf")" = "$(loss "$work/$kind-back")" ] && ok "$kind: eval of the folder" || not_ok "$kind: eval of the folder"
done
expect "generate from the folder, with its tokenizer" 0 "line" -- \
    "$train_gpt" generate --model "$work/llama-hf" --prompt line --tokens 4 --seed 1
cp -r "$work/llama-hf" "$work/other"
sed -i -e 's/^      "a": 97,/      "a": 98,/' -e 's/^      "b": 98,/      "b": 97,/' "$work/other/tokenizer.json"
expect "data of another tokenizer than the model's" 2 "another tokenizer" "'a' as token 97" "'b' as token 97" -- \
    "$train_gpt" --model "$work/other" --data "$work/d_train_*.bin" --steps 1 --seq-len 31 --out "$work/no"
# The first token that differs is a NUL; the whole message arrives, and its hint helps.
cp -r "$work/llama-hf" "$work/nul"
sed -i -e 's/^      "\xc4\x80": 0,/      "\xc4\x80": 1,/;t' -e 's/^      "\xc4\x81": 1,/      "\xc4\x81": 0,/' "$work/nul/tokenizer.json"
expect "... whose tokens are no text" 2 "'\x00' as token 0" "'\x01' as token 0" "tokenize FILE --tokenizer $work/nul" -- \
    "$train_gpt" --model "$work/nul" --data "$work/d_train_*.bin" --steps 1 --seq-len 31 --out "$work/no"
is "import it" "$train_gpt" import "$work/nul" --out "$work/nul-in"
for model in nul nul-in nul-in/ckpt/step-0000000000; do
    is "data by the tokenizer of $model" "$train_gpt" tokenize "$work/text" --tokenizer "$work/$model" --out "$work/n"
    "$train_gpt" --model "$work/$model" --data "$work/n_train_*.bin" --steps 1 --seq-len 31 --out "$work/nul-run" > "$work/log" 2>&1 &&
        ok "are this model's: $model" || { cat "$work/log"; not_ok "are this model's: $model"; }
    expect "and not the other's: $model" 2 "another tokenizer" "!NUL" -- \
        "$train_gpt" --model "$work/llama-hf" --data "$work/n_train_*.bin" --steps 1 --seq-len 31 --out "$work/no"
    rm -rf "$work/nul-run"
done
# The model's tokenizer stays with the run: also in the checkpoints after a resume.
cp "$work/d_train_000000.bin" "$work/bare.bin"
for steps in 1 2; do
    "$train_gpt" --model "$work/llama-hf" --data "$work/bare.bin" --steps 2 --save-every 1 --keep 9 --seq-len 31 --out "$work/carry" > "$work/log" 2>&1 || cat "$work/log"
    [ $steps = 1 ] && rm -rf "$work/carry/ckpt/step-0000000002"
done
expect "generate by a resumed run" 0 "line" -- "$train_gpt" generate --model "$work/carry/ckpt/step-0000000002" --prompt line --tokens 2 --seed 1

# ---- a folder of links, as Hugging Face's cache has a snapshot
mkdir -p "$work/cache/blobs" "$work/cache/snapshots/1"
for file in "$work/llama-hf"/*; do
    cp "$file" "$work/cache/blobs/$(md5sum < "$file" | cut -c1-32)"
    ln -s "../../blobs/$(md5sum < "$file" | cut -c1-32)" "$work/cache/snapshots/1/$(basename "$file")"
done
is "import of links" "$train_gpt" import "$work/cache/snapshots/1" --out "$work/linked"
[ "$("$train_gpt" verify "$work/linked")" = "$("$train_gpt" verify "$work/llama-back")" ] && ok "the same state" || not_ok "the same state"
[ "$(loss "$work/cache/snapshots/1")" = "$(loss "$work/llama-hf")" ] && ok "eval of links" || not_ok "eval of links"
is "tokenizer of links" "$train_gpt" tokenize "$work/text" --tokenizer "$work/cache/snapshots/1" --out "$work/dl"
cmp -s "$work/dl_train_000000.bin" "$work/d_train_000000.bin" && ok "the same ids" || not_ok "the same ids"
# Shards and their index, too; a link that leads nowhere is named.
is "in shards" "$PYTHON" - "$work/llama-hf/model.safetensors" "$work/cache" << 'PY'
import json, os, struct, sys
with open(sys.argv[1], "rb") as f:
    n, = struct.unpack("<Q", f.read(8))
    tensors, data = json.loads(f.read(n)), f.read()
tensors.pop("__metadata__", None)
names, cache, index = sorted(tensors), sys.argv[2], {"metadata": {}, "weight_map": {}}
os.mkdir(cache + "/snapshots/2")
def put(name, content):
    with open(cache + "/blobs/" + name + "-2", "wb") as f: f.write(content)
    os.symlink("../../blobs/" + name + "-2", cache + "/snapshots/2/" + name)
for i, part in enumerate((names[:5], names[5:])):
    header, body = {}, b""
    for t in part:
        begin, end = tensors[t]["data_offsets"]
        header[t] = dict(tensors[t], data_offsets=[len(body), len(body) + end - begin])
        body += data[begin:end]
        index["weight_map"][t] = f"s{i}.safetensors"
    text = json.dumps(header).encode()
    put(f"s{i}.safetensors", struct.pack("<Q", len(text)) + text + body)
put("model.safetensors.index.json", json.dumps(index).encode())
put("config.json", open(os.path.dirname(sys.argv[1]) + "/config.json", "rb").read())
PY
is "import of linked shards" "$train_gpt" import "$work/cache/snapshots/2" --out "$work/linked2"
[ "$("$train_gpt" verify "$work/linked2")" = "$("$train_gpt" verify "$work/llama-back")" ] && ok "the same state again" || not_ok "the same state again"
rm "$work/cache/blobs/s1.safetensors-2"
expect "a link that leads nowhere" 3 "s1.safetensors" "No such file" -- "$train_gpt" import "$work/cache/snapshots/2" --out "$work/no"

# ---- imported into what is somebody else's
before=$(cd "$work/gpt2" && find . -type f -exec md5sum {} + | sort)
expect "import into a run" 2 "belongs to another run" "new directory" -- "$train_gpt" import "$work/llama-hf" --out "$work/gpt2"
[ "$(cd "$work/gpt2" && find . -type f -exec md5sum {} + | sort)" = "$before" ] && ok "which stays as it was" || not_ok "which stays as it was"
before=$(cd "$work/gpt2-back" && find . -type f -exec md5sum {} + | sort)
expect "import into an import" 2 "has checkpoints" -- "$train_gpt" import "$work/llama-hf" --out "$work/gpt2-back"
[ "$(cd "$work/gpt2-back" && find . -type f -exec md5sum {} + | sort)" = "$before" ] && ok "which stays, too" || not_ok "which stays, too"

# ---- a large vocabulary, as Qwen's: its tokenizer, some MB of text, goes where the model goes
"$PYTHON" - "$work/wide-tok.json" << 'PY'
import json, sys
file = json.load(open("dev/reference/tokenizers.json"))["qwen2"]["file"]
vocab, merges = file["model"]["vocab"], file["model"]["merges"]
for i, token in enumerate(file["added_tokens"]): token["id"] = 151000 + i
letters = [c for c in vocab if len(c) == 1]
for a in letters:
    for b in letters:
        if a + b not in vocab:
            vocab[a + b] = len(vocab)
            merges.append([a, b])
for i in range(len(vocab), 151000): vocab[f"unused{i}"] = i
json.dump(file, open(sys.argv[1], "w"))
PY
big=(--model "$work/qwen2.json" --data "$work/v_train_*.bin" --steps 1 --seq-len 31 --micro-batch 1)
is "150k tokens: tokenize" "$train_gpt" tokenize "$work/text" --tokenizer "$work/wide-tok.json" --out "$work/v"
is "150k tokens: train" "$train_gpt" "${big[@]}" --out "$work/v"
planned=$("$train_gpt" plan "${big[@]}" | sed -n 's/^total one checkpoint[^0-9]* \([0-9,]*\) .*/\1/p' | tr -d ,)
found=$(cat "$work"/v/ckpt/*/{shards/*,model.h5,manifest.json} | wc -c)
[ "$found" -le "$planned" ] && [ "$planned" -le $((found + 200000)) ] && ok "150k tokens: no larger on disk than planned" ||
    not_ok "150k tokens: no larger on disk than planned: $found, $planned"
is "150k tokens: export" "$train_gpt" export "$work/v" --format hf --out "$work/v-hf"
cmp -s "$work/wide-tok.json" "$work/v-hf/tokenizer.json" && ok "150k tokens: the tokenizer is as it was" || not_ok "150k tokens: the tokenizer is as it was"
expect "150k tokens: generate from the folder" 0 "line" -- "$train_gpt" generate --model "$work/v-hf" --prompt line --tokens 2
rm -rf "$work"/v "$work"/v-hf

# ---- imported in pieces: a model larger than the memory that the program may take (a sparse file, of zeros
# but for one element in 999983)
megabytes=$([ -n "${TEST_DEEP:-}" ] && echo 3000 || echo 600) kilobytes=280000
"$PYTHON" - "$work/large" "$megabytes" << 'PY'
import json, os, struct, sys
folder, megabytes = sys.argv[1], int(sys.argv[2])
V, C, F = megabytes * 1024 * 1024 // (2 * 4 * 1024), 1024, 2048
os.mkdir(folder)
tensors, at = {}, 0
def add(name, *shape):
    global at
    n = 4
    for d in shape: n *= d
    tensors[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + n]}
    at += n
add("model.embed_tokens.weight", V, C)
for name in "q", "k", "v", "o": add(f"model.layers.0.self_attn.{name}_proj.weight", C, C)
for name, shape in ("gate", (F, C)), ("up", (F, C)), ("down", (C, F)): add(f"model.layers.0.mlp.{name}_proj.weight", *shape)
for name in "input_layernorm", "post_attention_layernorm": add(f"model.layers.0.{name}.weight", C)
add("model.norm.weight", C)
add("lm_head.weight", V, C)
text = json.dumps(tensors).encode()
with open(folder + "/model.safetensors", "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text)
    f.truncate(8 + len(text) + at)
    for name in "model.embed_tokens.weight", "lm_head.weight":
        for i in range(0, V * C, 999983):
            f.seek(8 + len(text) + tensors[name]["data_offsets"][0] + 4 * i)
            f.write(struct.pack("<f", i // 999983 + 1))
json.dump({"model_type": "llama", "num_hidden_layers": 1, "num_attention_heads": 8, "hidden_size": C, "intermediate_size": F,
           "vocab_size": V}, open(folder + "/config.json", "w"))
PY
expect "$megabytes MB of weights are imported within $((kilobytes / 1000)) MB of memory" 0 "state" -- \
    bash -c "ulimit -v $kilobytes; exec '$train_gpt' import '$work/large' --out '$work/large-in'"
if "$PYTHON" -c 'import h5py' 2> /dev/null; then
    "$PYTHON" - "$work"/large-in/ckpt/*/model.h5 << 'PY' && ok "each element in its place" || not_ok "each element in its place"
import h5py, numpy, sys
for name in "model.embed_tokens.weight", "lm_head.weight":
    x = h5py.File(sys.argv[1])[name][...].ravel()
    at = numpy.flatnonzero(x)
    assert numpy.array_equal(at, numpy.arange(0, len(x), 999983)) and numpy.array_equal(x[at], numpy.arange(len(at)) + 1), name
PY
else
    skip "each element in its place" "no Python package h5py"
fi
expect "and exported" 0 -- \
    bash -c "ulimit -v $kilobytes; exec '$train_gpt' export '$work/large-in' --format hf --out '$work/large-out'"
is "each element in its place again" "$PYTHON" - "$work/large-out/model.safetensors" << 'PY'
import array, json, struct, sys
with open(sys.argv[1], "rb") as f:
    n, = struct.unpack("<Q", f.read(8))
    tensors = json.loads(f.read(n))
    for name in "model.embed_tokens.weight", "lm_head.weight":
        begin, end = tensors[name]["data_offsets"]
        f.seek(8 + n + begin)
        for at in range(0, (end - begin) // 4, 999983):
            x = array.array("f", f.read(4 * min(999983, (end - begin) // 4 - at)))
            assert x[0] == at // 999983 + 1 and not any(x[1:]), (name, at)
PY
# The same limit stops a program that loads the model.
expect "which do not suffice to load it" 4 -- bash -c "ulimit -v $kilobytes; exec '$train_gpt' generate --model '$work/large-in' --tokenizer byte --prompt x --tokens 1"
rm -rf "$work/large" "$work/large-in" "$work/large-out"
if has_mpi; then
    one=$("$train_gpt" verify "$work/qwen3-back")
    launch 3 "$train_gpt" import "$work/qwen3-hf" --out "$work/three" > "$work/log" 2>&1 || cat "$work/log"
    [ "$("$train_gpt" verify "$work/three")" = "$one" ] && ok "three ranks import the same state" || not_ok "three ranks import the same state"
    launch 2 "$train_gpt" --model "$work/qwen3-hf" "${tune[@]}" --zero 3 --steps 6 --out "$work/two" > "$work/log" 2>&1 || cat "$work/log"
    [ "$("$train_gpt" verify "$work/two")" = "$("$train_gpt" verify "$work/qwen3-t2")" ] &&
        ok "two ranks, each with its own pieces of the folder, train as one" || not_ok "two ranks, each with its own pieces of the folder, train as one"
    launch 2 "$train_gpt" export "$work/qwen3" --format hf --out "$work/two-hf" > "$work/log" 2>&1 || cat "$work/log"
    cmp -s "$work/two-hf/model.safetensors" "$work/qwen3-hf/model.safetensors" && [ -e "$work/two-hf/config.json" ] &&
        ok "two ranks export" || { cat "$work/log"; not_ok "two ranks export"; }

    # What a rank reads of the folder: the bytes of its process, less those of a run that begins at random.
    sed 's/"intermediate_size": 23/"intermediate_size": 2023/; s/"hidden_size": 15/"hidden_size": 255/' "$work/qwen3.json" > "$work/wide.json"
    read_by() {  # MODEL: bytes that each of two ranks reads in a run of one step
        rm -rf "$work/wide" "$work"/read.*
        # shellcheck disable=SC2016
        launch 2 bash -c '"${@:2}" > "$1.$OMPI_COMM_WORLD_RANK" 2>&1; sed -n "s/rchar: //p" /proc/$$/io > "$1.$OMPI_COMM_WORLD_RANK"' \
            _ "$work/read" "$train_gpt" --model "$1" "${tune[@]}" --zero 3 --steps 1 --out "$work/wide" 2> "$work/log"
        cat "$work"/read.[01]
    }
    read_by "$work/wide.json" > "$work/random"
    is "export the wide one" "$train_gpt" export "$work/wide" --format hf --out "$work/wide-hf"
    read_by "$work/wide-hf" > "$work/folder"
    paste "$work/folder" "$work/random" | awk -v all="$(stat -c %s "$work/wide-hf/model.safetensors")" '
        { share = ($1 - $2) / all; if (!(share > 0.48 && share < 0.53)) bad = 1; print "read", $1 - $2, "of", all }
        END { exit bad || NR != 2 }' > "$work/log" && ok "each of two ranks reads its half of the folder" || { cat "$work/log"; not_ok "each of two ranks reads its half of the folder"; }
else
    skip "ranks import, train, export and read their share of a folder" "no MPI"
fi

expect "generate with the tokenizer that came along" 0 "line" -- \
    "$train_gpt" generate --model "$work/llama-back" --prompt line --tokens 4 --seed 1
is "bf16" "$train_gpt" export "$work/llama" --format hf --dtype bf16 --out "$work/half"
is "bf16: import" "$train_gpt" import "$work/half" --out "$work/half-back"
is "bf16: export" "$train_gpt" export "$work/half-back" --format hf --dtype bf16 --out "$work/half2"
cmp -s "$work/half/model.safetensors" "$work/half2/model.safetensors" && ok "bf16: byte for byte" || not_ok "bf16: byte for byte"

# ---- the tokenizer's files: each kind of tokenizer.json (dev/reference), and sentencepiece's
for kind in llama3 qwen2 llama2; do
    "$PYTHON" -c 'import json, sys; print(json.dumps(json.load(open("dev/reference/tokenizers.json"))[sys.argv[1]]["file"]))' $kind > "$work/$kind.tok.json"
    "$train_gpt" tokenize "$work/text" --tokenizer "$work/$kind.tok.json" --out "$work/$kind-d" > "$work/log" 2>&1 &&
        "$train_gpt" --model "$work/llama.json" --data "$work/$kind-d_train_*.bin" --steps 1 --seq-len 31 --micro-batch 1 --out "$work/$kind-tok" > "$work/log" 2>&1 ||
        cat "$work/log"
    is "$kind tokenizer: export" "$train_gpt" export "$work/$kind-tok" --format hf --out "$work/$kind-tok-hf"
    cmp -s "$work/$kind.tok.json" "$work/$kind-tok-hf/tokenizer.json" && ok "$kind tokenizer: as it came in" || not_ok "$kind tokenizer: as it came in"
done
kinds="llama3 qwen2 llama2" stories=${TEST_DATA:-data/test}/stories260K
if [ -e "$stories/tok512.bin" ] && "$train_gpt" import "$stories/stories260K.bin" --tokenizer "$stories/tok512.bin" --out "$work/pieces-tok" > "$work/log" 2>&1; then
    kinds+=" pieces"
    is "sentencepiece: export" "$train_gpt" export "$work/pieces-tok" --format hf --out "$work/pieces-tok-hf"
    is "sentencepiece: import" "$train_gpt" import "$work/pieces-tok-hf" --out "$work/pieces-back"
    written() { "$train_gpt" generate --model "$1" --prompt "Once upon" --tokens 9 --temperature 0 2> /dev/null; }
    [ -n "$(written "$work/pieces-tok")" ] && [ "$(written "$work/pieces-back")" = "$(written "$work/pieces-tok")" ] &&
        ok "sentencepiece: the same text" || not_ok "sentencepiece: the same text"
else
    skip "sentencepiece: export" "no sentencepiece, or no $stories"
fi
is "what begins and ends a text, by the names of transformers" "$PYTHON" - "$work" $kinds << 'PY'
import json, sys
fast = "PreTrainedTokenizerFast"
wanted = {"llama3": (fast, "<|begin_of_text|>", 401, "<|end_of_text|>", 402, 402),
          "qwen2": (fast, "<|endoftext|>", 380, "<|endoftext|>", 380, [380, 381]),
          "llama2": (fast, "<s>", 1, "</s>", 2, 2), "pieces": ("LlamaTokenizer", "<s>", 1, "</s>", 2, 2)}
for kind in sys.argv[2:]:
    read = lambda name: json.load(open(f"{sys.argv[1]}/{kind}-tok-hf/{name}.json"))
    tokenizer, config, generation = read("tokenizer_config"), read("config"), read("generation_config")
    assert (tokenizer["tokenizer_class"], tokenizer["bos_token"], config["bos_token_id"], tokenizer["eos_token"],
            config["eos_token_id"], generation["eos_token_id"]) == wanted[kind], (kind, tokenizer, config, generation)
    assert generation["bos_token_id"] == config["bos_token_id"]
    assert read("special_tokens_map") == {key: tokenizer[key] for key in ("bos_token", "eos_token")}
    assert tokenizer["model_max_length"] == config["max_position_embeddings"]
    assert tokenizer.get("add_bos_token") == (True if kind == "pieces" else None)
PY

# ---- against the Python packages, where they are
if "$PYTHON" -c 'import transformers' 2> /dev/null; then
    is "transformers reads the tokenizers" "$PYTHON" - "$work" $kinds << 'PY'
import json, sys, transformers
reference = json.load(open("dev/reference/tokenizers.json"))
for kind in sys.argv[2:]:
    folder = f"{sys.argv[1]}/{kind}-tok-hf"
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    config = json.load(open(folder + "/config.json"))
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (config["bos_token_id"], config["eos_token_id"]), kind
    assert tokenizer.model_max_length == config["max_position_embeddings"]
    begins = [] if kind == "qwen2" else [tokenizer.bos_token_id]
    assert tokenizer("a text").input_ids == begins + tokenizer("a text", add_special_tokens=False).input_ids, kind
    for text, ids, _, _ in reference[kind]["vectors"] if kind != "pieces" else [("Once upon", [403, 407], [], "")]:
        assert tokenizer(text, add_special_tokens=False).input_ids == ids, (kind, text)
PY
else
    skip "transformers reads the tokenizers" "no Python package transformers"
fi
if "$PYTHON" -c 'import transformers, torch' 2> /dev/null; then
    for kind in gpt2 llama qwen2 qwen3; do
        if ! "$PYTHON" -c 'import sys, transformers; sys.exit(sys.argv[1] not in transformers.CONFIG_MAPPING)' $kind; then
            skip "$kind: transformers agrees" "a transformers that is older than $kind"
            continue
        fi
        "$PYTHON" - "$work/$kind-hf" "$(loss "$work/$kind")" "$work/d_train_000000.bin" "$train_gpt" "$work/$kind" "$work/row_val_000000.bin" << 'PY' && ok "$kind: transformers agrees" || not_ok "$kind: transformers agrees"
import json, subprocess, sys, numpy, torch, transformers
model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], torch_dtype=torch.float32)
tokens = numpy.fromfile(sys.argv[3], dtype=numpy.uint16, offset=1024).astype(numpy.int64)
n = (len(tokens) - 1) // 31 * 31
x, y = (torch.tensor(tokens[i:i + n]).view(-1, 31) for i in (0, 1))
with torch.no_grad():
    loss = torch.nn.functional.cross_entropy(model(x).logits.flatten(0, 1), y.flatten()).item()
print(loss, sys.argv[2])
bad = abs(loss - float(sys.argv[2])) > 1e-5
# Logits up to their sum: the log-probability of some token at each position in turn, by a row with a mask that
# leaves one target. Some dozens of roundings of numbers below 10 in fp32 are within 2e-5.
with torch.no_grad():
    logp = torch.log_softmax(model(x[:62]).logits, -1)
for k in range(62):
    i, token = k % 31, k * 97 % 257
    row = numpy.append(x[k].numpy(), 0).astype(numpy.uint16)
    row[i + 1] = token
    head = numpy.zeros(256, numpy.int32)
    head[:3] = 20240520, 101, 32
    with open(sys.argv[6], "wb") as f:
        f.write(head.tobytes() + row.tobytes() + (1 << (i + 1)).to_bytes(4, "little"))
    out = subprocess.run([sys.argv[4], "eval", "--model", sys.argv[5], "--data", sys.argv[6], "--seq-len", "31"],
                         capture_output=True, check=True).stdout
    ours, theirs = json.loads(out)["val_loss"], -logp[k, i, token].item()
    if not abs(ours - theirs) < 2e-5:
        print("row", k, "position", i, "token", token, ours, theirs)
        bad = True
sys.exit(bad)
PY
    done
else
    skip "transformers loads what is exported" "no Python packages torch and transformers"
fi

# ---- refused
# Its files may not grow beyond 8 KiB: as on a full disk.
expect "a folder that cannot be written" 4 "model.safetensors" -- \
    bash -c "trap '' XFSZ; ulimit -f 8; exec '$train_gpt' export '$work/llama' --format hf --out '$work/full'"
[ -z "$(ls -A "$work/full")" ] && ok "nothing is left of it" || not_ok "nothing is left of it"
expect "a folder that is not empty" 2 "not empty" -- "$train_gpt" export "$work/llama" --format hf --out "$work/llama-hf"
expect "a folder without config.json" 2 "config.json" -- "$train_gpt" import "$work" --out "$work/no"
swap() { rm -rf "$work/bad"; cp -r "$work/llama-hf" "$work/bad"; sed -i "$1" "$work/bad/config.json"; }
swap 's/"num_hidden_layers": 2/"num_hidden_layers": 3/'
expect "missing tensors are listed" 3 "lacks" "model.layers.2.input_layernorm.weight" "1 more" -- "$train_gpt" import "$work/bad" --out "$work/no"
swap 's/"num_hidden_layers": 2/"num_hidden_layers": 1/'
expect "extra tensors are listed" 3 "does not explain" "model.layers.1.mlp.down_proj.weight" -- "$train_gpt" import "$work/bad" --out "$work/no"
swap 's/"intermediate_size": 23/"intermediate_size": 24/'
expect "a wrong shape, found and expected" 3 "[23,15]" "[24,15]" -- "$train_gpt" import "$work/bad" --out "$work/no"
swap 's/"model_type": "llama"/"model_type": "mamba"/'
expect "an unknown architecture" 2 "mamba" -- "$train_gpt" import "$work/bad" --out "$work/no"
swap 's/"hidden_act": "silu"/"hidden_act": "relu"/'
expect "another activation" 2 "relu" "silu" -- "$train_gpt" import "$work/bad" --out "$work/no"
rm -rf "$work/bad"; cp -r "$work/llama-hf" "$work/bad"
sed -i 's/"F32"/"I32"/' "$work/bad/model.safetensors"
expect "another dtype" 3 "unsupported dtype" "I32" -- "$train_gpt" import "$work/bad" --out "$work/no"
rm -rf "$work/bad"; cp -r "$work/llama-hf" "$work/bad"; head -c 5000 "$work/llama-hf/model.safetensors" > "$work/bad/model.safetensors"
expect "cut weights" 3 "model.safetensors" -- "$train_gpt" import "$work/bad" --out "$work/no"
[ ! -e "$work/no" ] && ok "nothing was written by what was refused" || not_ok "nothing was written by what was refused"
