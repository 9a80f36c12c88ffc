#!/usr/bin/env python3
"""dev/fuzz/seeds.py DIR: small valid files for each target of dev/fuzz, as DIR/TARGET/NAME."""
import json
import pathlib
import struct
import sys

out = pathlib.Path(sys.argv[1])


def seed(target, name, content):
    folder = out / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def header(*words):
    return struct.pack("<256i", *words, *[0] * (256 - len(words)))


seed("tokens", "u16", header(20240520, 1, 8) + struct.pack("<8H", *range(8)))
seed("tokens", "u32", header(20240801, 7, 5) + struct.pack("<5I", *range(5)))
seed("tokens", "mask", header(20240520, 101, 9) + struct.pack("<9H", *range(9)) + b"\x0f\x01")

part = {"bytes": 3, "documents": 1, "tokens": 4, "untrained": 1,
        "files": [{"name": "d_train_000000.bin", "tokens": 4, "xxh3_128_of_ids": "00", "masked": True}]}
seed("data_info", "note", json.dumps({
    "format": "train_gpt data 1", "tokenizer": "d_tokenizer.json", "tokenizer_name": "byte",
    "tokenizer_xxh3_128": "00", "vocab_size": 257, "end_of_text": 256, "train": part, "val": part}))


def safetensors(tensors):
    table, data = {}, b""
    for name, dtype, shape, content in tensors:
        table[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(table).encode()
    return struct.pack("<Q", len(text)) + text + data


three = safetensors([("a", "F32", [2, 3], bytes(24)), ("b", "BF16", [4], bytes(8)), ("c", "F16", [], b"\0\1")])
seed("safetensors", "three", three)
seed("safetensors", "none", safetensors([]))
seed("safetensors", "metadata", struct.pack("<Q", 39) + b'{"__metadata__": {"format": "pt"}}     ')
seed("safetensors_index", "one", json.dumps({
    "metadata": {"total_size": 34}, "weight_map": {n: "a.safetensors" for n in "abc"}}).encode() + b"----\n" + three)

gpt2 = {"model_type": "gpt2", "n_layer": 2, "n_head": 3, "n_embd": 15, "n_inner": 23, "vocab_size": 257,
        "n_positions": 37, "tie_word_embeddings": False, "activation_function": "gelu_new"}
llama = {"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 1,
         "head_dim": 6, "hidden_size": 15, "intermediate_size": 23, "vocab_size": 257, "max_position_embeddings": 37,
         "rms_norm_eps": 1e-5, "rope_theta": 500.0, "hidden_act": "silu", "rope_scaling": {
             "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
             "original_max_position_embeddings": 16}}
for name, config in {"gpt2": gpt2, "llama": llama, "qwen2": {**llama, "model_type": "qwen2", "rope_scaling": None},
                     "qwen3": {**llama, "model_type": "qwen3", "rope_scaling": None}}.items():
    seed("config", name, json.dumps(config))

# Bytes as GPT-2's tokenizer writes them.
plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
others = [b for b in range(256) if b not in plain]
letters = [chr(b) if b in plain else chr(256 + others.index(b)) for b in range(256)]
vocab = {letter: i for i, letter in enumerate(letters)}
vocab.update({"he": 256, "hel": 257, "<|endoftext|>": 258})
bpe = {"version": "1.0", "truncation": None, "padding": None, "normalizer": None,
       "added_tokens": [{"id": 258, "content": "<|endoftext|>", "single_word": False, "lstrip": False,
                         "rstrip": False, "normalized": True, "special": True}],
       "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
       "post_processor": None, "decoder": {"type": "ByteLevel"},
       "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
                 "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False, "vocab": vocab,
                 "merges": ["h e", "he l"]}}
seed("tokenizer_json", "bpe", json.dumps(bpe))
split = dict(bpe, pre_tokenizer={"type": "Sequence", "pretokenizers": [
    {"type": "Split", "pattern": {"Regex": "\\p{L}+|\\s+"}, "behavior": "Isolated", "invert": False},
    {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}]})
seed("tokenizer_json", "split", json.dumps(split))
seed("tokenizer_gpt2", "bpe", json.dumps(vocab) + "----\n#version: 0.2\nh e\nhe l\n")
tokens = [bytes([b]) for b in range(4)] + [b"ab", b"<|endoftext|>"]
seed("tokenizer_bin", "llmc", struct.pack("<256I", 20240328, 2, 6, 5, *[0] * 252) +
     b"".join(bytes([len(t)]) + t for t in tokens))
pieces = [b"<unk>", b"\n<s>\n", b"\n</s>\n"] + [b"<0x%02X>" % b for b in range(256)] + [b" a", b"b"]
seed("tokenizer_bin", "llama2c", struct.pack("<i", 8) +
     b"".join(struct.pack("<fi", -float(i), len(p)) + p for i, p in enumerate(pieces)))

seed("manifest", "small", json.dumps({
    "format": "train_gpt checkpoint", "version": 1, "run_id": "0123456789abcdef", "step": 1, "tokens": 2, "model": {}, "train": {}, "layout": {},
    "state": "0" * 32,
    "files": [{"name": n, "bytes": 1, "digest": "0" * 32} for n in ("shards/rank-00000.h5", "model.h5")],
    "tensors": [{"group": "weights", "name": "wte", "dtype": "fp32", "shape": [2, 3], "hash": "0" * 32,
                 "pieces": [{"file": 0, "offset": 0, "count": 6}]}]}))
seed("options", "run", 'model = "gpt2:d6"\ndata = ["a.bin", "b*.bin"]\nsteps = 100\nlr = 3e-4 # rate\nschedule = "wsd"\n'
     "[section]\nseed = 7\n")
seed("llmc_model", "v3", header(20240326, 3, 3, 5, 1, 1, 2, 8) + bytes(4 * (16 + 6 + 48 + 26 + 4)))
seed("llama2c_model", "one", struct.pack("<7i", 4, 6, 1, 2, 1, 5, 3) +
     bytes(4 * (5 * 4 + 4 + 16 + 8 + 8 + 16 + 4 + 24 * 3 + 4 + 6)))
question = [65535, 0, 0, 1, 4, 2, 10, 11, 1, 12, 1, 13, 1, 14, 2, 15, 16]
question[1] = 2 * len(question)
seed("llmc_eval", "one", header(20240522, 1, 1, 34) + struct.pack(f"<{len(question)}H", *question))

csv = 'question,choice0,choice1,choice2,choice3,answer\n"a ""b"",\nc?",1,2,3,4,2\r\nd,1,2,3,4,B\n'
seed("csv", "mmlu", csv)
seed("mmlu", "with examples", csv + "----\n" + csv)
seed("hellaswag", "one", json.dumps({"ctx": "a b", "label": 1, "endings": ["c", "d e"]}))
seed("hellaswag_harness", "one", json.dumps({
    "activity_label": "Go", "ctx_a": "a [title] b", "ctx_b": "c", "label": "0", "endings": ["d [x]", "e"]}))
seed("lambada", "two", '{"text": "a b c"}\n{"context": "a b", "continuation": "c"}\n')
seed("arc", "two", json.dumps({"query": "Question: a?", "choices": ["b", "c"], "gold": 0}) + "\n" + json.dumps({
    "question": {"stem": "a?", "choices": [{"text": "b", "label": "A"}, {"text": "c", "label": "B"}]}, "answerKey": "B"}))
seed("winogrande", "two", json.dumps({"context_options": ["a", "b"], "continuation": "c", "gold": 1}) + "\n" +
     json.dumps({"sentence": "a _ b", "option1": "c", "option2": "d", "answer": "2"}))
seed("documents_jsonl", "three", '{"text": "a\\nb"}\n\n{"prompt": "a", "completion": "b"}\n'
     '{"parts": [{"text": "a", "train": true}, {"text": "b", "train": false}]}\n')
seed("documents_text", "separated", "one\ntwo\n##\nthree ## four\n####\nfive")
