#!/usr/bin/env bash
# Hugging Face folders: what is exported comes back bit for bit, and is what the format's names and
# orders say; what does not fit is refused by name.
. scripts/test/tap.sh
train_gpt=${TRAIN_GPT:-build/train_gpt}
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
loss() { "$train_gpt" eval --model "$1" --data "$work/d_train_*.bin" --seq-len 31 2> /dev/null | sed -E 's/.*"val_loss":([^,}]*).*/\1/'; }
for kind in gpt2 llama pairs; do
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
expect "generate with the tokenizer that came along" 0 "line" -- \
    "$train_gpt" generate --model "$work/llama-back" --prompt line --tokens 4 --seed 1
is "bf16" "$train_gpt" export "$work/llama" --format hf --dtype bf16 --out "$work/half"
is "bf16: import" "$train_gpt" import "$work/half" --out "$work/half-back"
is "bf16: export" "$train_gpt" export "$work/half-back" --format hf --dtype bf16 --out "$work/half2"
cmp -s "$work/half/model.safetensors" "$work/half2/model.safetensors" && ok "bf16: byte for byte" || not_ok "bf16: byte for byte"

# ---- against the Python packages, where they are
if "$PYTHON" -c 'import transformers, torch' 2> /dev/null; then
    for kind in gpt2 llama; do
        "$PYTHON" - "$work/$kind-hf" "$(loss "$work/$kind")" "$work/d_train_000000.bin" << 'PY' && ok "$kind: transformers agrees" || not_ok "$kind: transformers agrees"
import sys, numpy, torch, transformers
model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], torch_dtype=torch.float32)
tokens = numpy.fromfile(sys.argv[3], dtype=numpy.uint16, offset=1024).astype(numpy.int64)
n = (len(tokens) - 1) // 31 * 31
x, y = (torch.tensor(tokens[i:i + n]).view(-1, 31) for i in (0, 1))
with torch.no_grad():
    loss = torch.nn.functional.cross_entropy(model(x).logits.flatten(0, 1), y.flatten()).item()
print(loss, sys.argv[2])
sys.exit(abs(loss - float(sys.argv[2])) > 1e-5)
PY
    done
else
    skip "transformers loads what is exported" "no Python packages torch and transformers"
fi

# ---- refused
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
rm -rf "$work/bad"; cp -r "$work/llama-hf" "$work/bad"; head -c 5000 "$work/llama-hf/model.safetensors" > "$work/bad/model.safetensors"
expect "cut weights" 3 "model.safetensors" -- "$train_gpt" import "$work/bad" --out "$work/no"
[ ! -e "$work/no/ckpt" ] && ok "nothing was written by what was refused" || not_ok "nothing was written by what was refused"
