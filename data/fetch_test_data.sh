#!/usr/bin/env bash
# data/fetch_test_data.sh [DIR]: public files that tests compare with, each by its checksum.
#
# Tests look for them in $TEST_DATA, by default data/test (also the default of DIR), and skip, saying
# so, what is not there. Where the files are from and under which licence: data/README.md.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=data/fetch.sh
. "$here/fetch.sh"
dir=${1:-$here/test}
missing=0

one() { # FILE SHA256 URL
    if fetch "$dir/$1" "$2" "$3"; then echo "$dir/$1"; else missing=$((missing + 1)); fi
}
github() { # FILE SHA256 OWNER/REPOSITORY COMMIT PATH
    one "$1" "$2" "https://raw.githubusercontent.com/$3/$4/$5"
}

github tinyshakespeare.txt 86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed \
    karpathy/char-rnn d1d7aa34fdb3626174bce1d753e6cc6845ce7087 data/tinyshakespeare/input.txt
github tinystories_2MiB.txt 5352b299dcb1a32898b2d779b145b5a05f3e1265953fd21c264c9f9f9c9ae33d \
    gusjengis/toy-RNN e4c7ff8bba4ff7989e69a3a816ebe4b14813b41e data/tinystories_sample.txt
github wikitext2/valid.txt f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8 \
    pytorch/examples 37ce9402ff0cae48d764d7788810fd2ed8238b25 word_language_model/data/wikitext-2/valid.txt
github wikitext2/test.txt d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0 \
    pytorch/examples cada773327ba94a5970e0d57c17c847d69dbbb8f word_language_model/data/wikitext-2/test.txt
one gpt2_bpe/encoder.json 196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783 \
    https://openaipublic.blob.core.windows.net/gpt-2/encodings/main/encoder.json
one gpt2_bpe/vocab.bpe 1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5 \
    https://openaipublic.blob.core.windows.net/gpt-2/encodings/main/vocab.bpe
github gpt_nano_sort/gpt-nano-sort-model.json a38d5f450e0c808305973c587cdd389ca4de92bbf60fa6a4482bf9a03f0a6051 \
    bbycroft/llm-viz a3613d777084b8010211b2d53b3d46d4ee6874ea public/gpt-nano-sort-model.json
github gpt_nano_sort/gpt-nano-sort-t0-partials.json 642b29b966fc4d90e4672a54c7cfda72b5249427b2b1561c83cd536b857195e9 \
    bbycroft/llm-viz e7742cbd1e1a29edcc9ef16b7a0bf3f610d85b75 public/gpt-nano-sort-t0-partials.json
github stories260K/stories260K.bin b0a507e7ad0f626624f17112325e66691f9076d622e1d3274d103d00299f2696 \
    clebert/llama2.zig 97d2eb75ed0e2f5970677a1cb33ce513475f9f1b models/tinystories_260k/checkpoint_legacy.bin
github stories260K/tok512.bin 037cb335abb25d1fa9e8ecae30ed2a3a8ace9302862ebcdc05d51a6bbb10c312 \
    clebert/llama2.zig ed816bde3ab10f2cd01f3a2d391e46232bb14083 models/tinystories_260k/tokenizer.bin

if [ $missing -gt 0 ]; then
    say "error: $missing files could not be fetched; hint: their tests are skipped without them"
    exit 1
fi
