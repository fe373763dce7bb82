#!/usr/bin/env bash
# Synthetic speech of a text, its features and its tokens, in data/.
#
# Usage: ./prepare.sh [--text-dir DIR] [--count N] [--jobs N] [--stage N] [--stop-stage N]
set -eou pipefail
cd "$(dirname "$0")"

stage=0
stop_stage=1
text_dir=../../../../shared/data/books  # {train,valid,test}.txt.xz, an upper-case sentence a line
count=16000                             # sentences of 3 to 18 words
short_count=10000                       # of 2 to 5 words
valid_count=200
test_count=400
vocab_size=128
jobs=2
. ../../shared/recipe.sh
for part in train valid test; do
  need "$text_dir/$part.txt.xz" "give --text-dir, a folder with {train,valid,test}.txt.xz, an upper-case sentence a line"
done
text_dir=$(realpath "$text_dir")  # the recipe of LibriSpeech gives it so: marks of what is done are the same

speak() {  # speak PART COUNT SEED OPTIONS...
  local part=$1 count=$2 seed=$3 text=$1
  shift 3
  if [ "$part" = short ]; then text=train; fi
  once "data/.$part.done" asr synthesise "$text_dir/$text.txt.xz" "data/$part" --count "$count" --seed "$seed" --pico 0.6 \
    --jobs "$jobs" "$@"
}

speech() {
  speak short "$short_count" 4 --words 2 5 --snr 12 40
  speak train "$count" 1 --words 3 18 --snr 8 40
  speak valid "$valid_count" 2 --words 3 18 --snr 8 40 --held-out
  speak test "$test_count" 3 --words 3 18 --snr 8 40 --held-out
}

features() {
  once data/.fbank.done asr prepare data --cuts data/train --cuts data/valid --cuts data/test --fbank \
    --bpe-text "$text_dir/valid.txt.xz" --vocab-size "$vocab_size"
}

run_stage 0 "speech; pitches, rates and eSpeak's voices of valid and test are not in train (6 minutes on two cores, 1.5 GB)" speech data
run_stage 1 "features and tokens (5 minutes, 0.4 GB)" features data/feats
