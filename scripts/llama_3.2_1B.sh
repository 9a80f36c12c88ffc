#!/usr/bin/env bash
# LLaMA-3.2-1B, pretraining continued on a billion tokens of one's own: from a Hugging Face folder, with a
# fresh optimizer and a short warm-up to a low rate.
#   MODEL          the folder: config.json, *.safetensors, tokenizer.json   [Llama-3.2-1B]
#   machine        any number of ranks (a step is 256 sequences of 2048 tokens), each with a GPU or a share
#                  of the cores; numbers and micro-batch follow the GPU (known_runs.sh)
#   tokens         1 B: 1,907 steps of 524,288
#   expected time  8.2e18 FLOP (8.2e9 a token: 6 N and attention) / (GPUs x the FLOP/s that each sustains);
#                  not measured by us
#   expected loss  below what `train_gpt eval --data` says of the imported model on the same data; not
#                  measured by us
#   data           token shards by the model's own tokenizer:
#                    train_gpt tokenize TEXT.jsonl --tokenizer Llama-3.2-1B/tokenizer.json --out data/own
#                  With prompts and completions in TEXT.jsonl only the completions are trained on
#                  (data/README.md): that is fine-tuning, with a lower rate and fewer steps:
#                    scripts/llama_3.2_1B.sh --lr 1e-5 --steps 500
# Check it first: scripts/llama_3.2_1B.sh --dry-run prints the plan of memory and disk and starts nothing.
: "${DATA:=data/own_train_*.bin}" "${VAL_DATA:=data/own_val_*.bin}" "${MODEL:=Llama-3.2-1B}"
. "$(dirname "$0")/known_runs.sh"
case " $* " in
    *" --dry-run "*) [ -e "$MODEL" ] || MODEL=llama:3.2-1B ;;
esac
known_run "$MODEL" --seq-len 2048 --batch-tokens 524288 --steps 1907 --lr 5e-5 \
    --warmup-steps 100 --zero 3 --recompute block --out "${OUT:-out/llama_3.2_1B}" "$@"
