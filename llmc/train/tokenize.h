// llmc/train/tokenize.h: `train_gpt tokenize` and `train_gpt train-bpe`.
//
// Both stream: memory does not grow with the text (train-bpe keeps its distinct words). What they
// write is a function of the text and the options alone, byte for byte, for any number of threads.
// data/README.md describes the files. Documents and the validation split: documents.h.
#pragma once
#include "llmc/train/options.h"

// Of the options: files (.jsonl, or text), tokenizer (as tokenizer_named() takes it), out (PREFIX),
// val_fraction (of the bytes of text; 0: no validation files), separator, shard_tokens, threads.
//
// Writes PREFIX_train_*.bin, PREFIX_val_*.bin, PREFIX_tokenizer.json and PREFIX.json; the summary
// goes to stdout. Files of an earlier run with this PREFIX are replaced, all at the end, and those
// that the new run has no use for are removed. Files of the same names that no PREFIX.json claims
// are somebody else's: Usage, and nothing is touched.
void tokenize_run(const Options& opt);

// Of the options: files, vocab_size (256 bytes, merges, and end-of-text as the last), out (a file,
// or a folder for tokenizer.json), separator.
//
// Learns merges from the text and writes a tokenizer.json that Hugging Face's library can load too.
void train_bpe_run(const Options& opt);
