#!/usr/bin/env bash
# Mini LibriSpeech (5 hours to train on, 2 to tune and test on): manifests, features and tokens, in data/.
# Stages have the numbers of icefall's.
#
# Usage: ./prepare.sh [--dl-dir DIR] [--vocab-size N] [--stage N] [--stop-stage N]
set -eou pipefail
cd "$(dirname "$0")"

stage=0
stop_stage=5
dl_dir=download  # LibriSpeech/{train-clean-5,dev-clean-2}/SPEAKER/CHAPTER/*.{flac,trans.txt}
vocab_size=256
. ../../shared/recipe.sh

download() { fetch "$dl_dir/LibriSpeech" lhotse download librispeech --mini "$dl_dir"; }

quoted() { sed 's/.*/"&"/' | paste -sd , -; }

features() {  # every second speaker of dev-clean-2 is for tuning, the others are the test set
  local corpus=$dl_dir/LibriSpeech
  for part in train-clean-5 dev-clean-2; do
    need "$corpus/$part" "stage 0 downloads it; or give --dl-dir"
  done
  mkdir -p data
  echo "{\"dev\": [$(ls "$corpus/dev-clean-2" | sed -n 'p;n' | quoted)]," \
    "\"test\": [$(ls "$corpus/dev-clean-2" | sed -n 'n;p' | quoted)]}" > data/speakers.json
  once data/.librispeech.done \
    asr prepare data --librispeech "$corpus" -p train-clean-5 -p dev-clean-2 --split data/speakers.json --fbank --perturb-speed
}

tokens() {
  sentences data/librispeech_text_train-clean-5 > data/transcript_words.txt
  once "data/.lang_bpe_$vocab_size.done" \
    asr prepare data --bpe-text data/transcript_words.txt --vocab-size "$vocab_size"
}

run_stage 0 "download (0.5 GB; minutes)" download "$dl_dir/LibriSpeech"
run_stage 1 "manifests and features, the training part at three speeds (estimated: 10 minutes, 0.5 GB)" features data
run_stage 5 "tokens (seconds, 1 MB)" tokens "data/lang_bpe_$vocab_size"
