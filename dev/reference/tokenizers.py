#!/usr/bin/env python3
"""Reference ids of every kind of tokenizer.json, from Hugging Face's library, for
llmc/io/tokenizer_json_test.cpp.

  python3 dev/reference/tokenizers.py [dev/reference/tokenizers.json]     (pip install tokenizers)

Four small tokenizers, trained on the sentences below, each in the form in which LLaMA 3, Qwen and
LLaMA 2 (before and after transformers 4.40) publish theirs, with texts and the ids that the library
gives: [text, ids with special tokens as such, ids with special tokens as text, decoded].
"""
import json
import random
import sys

import tokenizers
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

SENTENCES = """The quick brown fox jumps over the lazy dog, and then it doesn't jump again.
I'll say it once: they've said we're late; SHE'S RIGHT, I'M NOT, IT'LL do. He'd know.
In 1984 there were 1234567 zebras, 12 horses and 3.14159 pies at 10:45.
def main(argc, argv):\n    return argc + 1\n\n\nif x == y:\n\tprint("z")\n
Été à la plage: où est la forêt? Größe, Straße, naïve café, señor, Ångström.
Жила-была одна бабушка. Καλημέρα κόσμε. 今日は良い天気です。 你好世界 안녕하세요
the the the a a to to of of in in that that is is was was for for on on with with as as""".split("\n")
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
SIGN = "\u2581"
PARTS = ["a", "Z", "the", "word", "zebra", " zebra", "it's", "I'LL", "'\u017f", "'S", "'ve", "1", "2024", "1234567",
         " ", " ", " ", "  ", "   ", "\n", "\n\n", " \n", "\t", "\r\n", ".", ",", "?!", "--", "\"", "\u00e9", "e\u0301",
         "\u212b", "\u1100\u1161\u11a8", "\uac00\u11a8", "\u00a0", "\u0085", "\u3000", "\u2028", "\u180e", "\ufeff",
         "\u4eca\u65e5", "\u0663\u0664", "\u00bd", "\u20ac", "\U0001f600", "\U0001f468\u200d\U0001f469", "\U0001d7d8",
         "\u0301", "<|endoftext|>", "<think>", "<s>", "</s>", "<|begin_of_text|>", SIGN, "\0", "_", "forêt", "Größe"]


def trained(pre_tokenizer, vocab_size, alphabet):
    model = Tokenizer(models.BPE())
    model.pre_tokenizer = pre_tokenizer
    model.train_from_iterator(SENTENCES, trainers.BpeTrainer(
        vocab_size=vocab_size, show_progress=False, initial_alphabet=alphabet))
    return json.loads(model.to_str())


def added(first, *tokens):
    return [{"id": first + i, "content": t.lstrip("-"), "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": not t.startswith("-")} for i, t in enumerate(tokens)]


def begins_with(token, number, *before):
    template = {"type": "TemplateProcessing", "special_tokens": {token: {"id": token, "ids": [number], "tokens": [token]}},
                "single": [{"SpecialToken": {"id": token, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}]}
    return {"type": "Sequence", "processors": [*before, template]} if before else template


def byte_level(regex, size):
    split = pre_tokenizers.Split(Regex(regex), "isolated")
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    t = trained(pre_tokenizers.Sequence([split, level]), size, sorted(pre_tokenizers.ByteLevel.alphabet()))
    t["decoder"] = t["post_processor"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True,
                                          "use_regex": True}
    return t


def llama3():
    t = byte_level(LLAMA3, 400)
    vocab = t["model"]["vocab"]
    # A token that no merges make: found as a whole piece, and only as one.
    vocab["\u0120zebra"] = len(vocab)
    t["model"]["ignore_merges"] = True
    t["added_tokens"] = added(len(vocab), "<|begin_of_text|>", "<|end_of_text|>")
    t["post_processor"] = begins_with("<|begin_of_text|>", len(vocab), t["post_processor"])
    return t


def qwen2():
    t = byte_level(QWEN2, 380)
    t["normalizer"] = {"type": "NFC"}
    t["added_tokens"] = added(len(t["model"]["vocab"]), "<|endoftext|>", "<|im_end|>", "-<think>")
    return t


def llama2(legacy):
    t = trained(pre_tokenizers.Metaspace(), 260, [SIGN])
    model = t["model"]
    first = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    words = [w for w in sorted(model["vocab"], key=model["vocab"].get)]
    model["vocab"] = {token: i for i, token in enumerate(first + words)}
    model |= {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": SIGN}
    t["pre_tokenizer"] = None
    if legacy:
        t["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": SIGN}, replace]}
    else:
        t["pre_tokenizer"] = {"type": "Metaspace", "replacement": SIGN, "prepend_scheme": "first", "split": False}
    t["decoder"] = {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": SIGN}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    t["added_tokens"] = added(0, "<unk>", "<s>", "</s>")
    t["post_processor"] = begins_with("<s>", 1)
    return t


def texts(seed):
    source = random.Random(seed)
    yield from ["", " ", "  two", "Hello world", "<s>after", "a<s> b</s>", " zebra zebra", *SENTENCES]
    for _ in range(120):
        yield "".join(source.choice(PARTS) for _ in range(source.randint(1, 14)))


def vectors(file, seed):
    t = Tokenizer.from_str(json.dumps(file))
    for text in texts(seed):
        t.encode_special_tokens = False
        ids = t.encode(text, add_special_tokens=False).ids
        t.encode_special_tokens = True
        plain = t.encode(text, add_special_tokens=False).ids
        yield [text, ids, plain, t.decode(plain, skip_special_tokens=False)]


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else "dev/reference/tokenizers.json"
    kinds = {"llama3": llama3(), "qwen2": qwen2(), "llama2": llama2(True), "llama2 legacy false": llama2(False)}
    with open(path, "w", encoding="utf-8") as out:
        out.write('{"library": "tokenizers %s"' % tokenizers.__version__)
        for seed, (name, file) in enumerate(kinds.items()):
            out.write(',\n"%s": {"file": %s, "vectors": [\n' % (name, json.dumps(file)))
            out.write(",\n".join(json.dumps(v) for v in vectors(file, seed)) + "]}")
        out.write("}\n")


main()
