#!/usr/bin/env bash
# A small streaming recogniser from synthetic speech of a text: the one that ships as asr/pretrained/small.
#
# Usage: run.sh [--stage N] [--stop-stage M]
set -eou pipefail

cd "$(dirname "$0")"
root=$(cd ../../.. && pwd)
PATH=${venv:-$root/.venv311}/bin:$PATH  # a new torch trains about twice as fast on a CPU

stage=0
stop_stage=4
books=${books:-$root/../shared/data/books}  # {train,valid,test}.txt.xz, a sentence a line
exp=${exp:-exp}
count=${count:-16000}                       # sentences to speak
vocab_size=${vocab_size:-128}
minutes=${minutes:-75}
jobs=${jobs:-2}

log() { echo "$(date '+%Y-%m-%d %H:%M:%S') $*" >&2; }

while [ $# -gt 0 ]; do
  case $1 in
    --stage) stage=$2 ;;
    --stop-stage) stop_stage=$2 ;;
    *) log "unknown option $1; there are --stage N and --stop-stage M"; exit 2 ;;
  esac
  shift 2
done

in_stage() { [ "$stage" -le "$1" ] && [ "$stop_stage" -ge "$1" ]; }

if in_stage 0; then
  log "Stage 0: speech (4 minutes, 1 GB); voices, pitches and rates of valid and test are not those of train"
  how=(--words 3 18 --pico 0.6 --jobs "$jobs")
  asr synthesise "$books/train.txt.xz" "$exp/train" --count "$count" --snr 8 40 --seed 1 "${how[@]}"
  asr synthesise "$books/valid.txt.xz" "$exp/valid" --count 200 --snr 8 40 --seed 2 --held-out "${how[@]}"
  asr synthesise "$books/test.txt.xz" "$exp/test" --count 400 --snr 8 40 --seed 3 --held-out "${how[@]}"
fi

if in_stage 1; then
  log "Stage 1: features and tokens (4 minutes)"
  asr prepare "$exp/data" --cuts "$exp/train" --cuts "$exp/valid" --cuts "$exp/test" --fbank \
    --bpe-text "$books/train.txt.xz" --vocab-size "$vocab_size"
fi

if in_stage 2; then
  log "Stage 2: training ($minutes minutes)"
  asr train --config small --bpe-model "$exp/data/lang_bpe_$vocab_size/bpe.model" --exp-dir "$exp/train-run" \
    --train-cuts "$exp/data/speech_cuts_train.jsonl.gz" --valid-cuts "$exp/data/speech_cuts_valid.jsonl.gz" \
    --on-the-fly-feats false --enable-spec-aug false --optimizer muon --muon-lr 0.01 --base-lr 0.003 --ctc-scale 0.3 \
    --warm-step 60 --use-bf16 true --max-duration 40 --max-minutes "$minutes" --save-every-n 500 --valid-every 500
fi

if in_stage 3; then
  log "Stage 3: the model folder, in float16"
  asr average --exp-dir "$exp/train-run" --iter "$(sed 's/[^0-9]//g' "$exp/train-run/last-checkpoint")" --avg 1 --half \
    --out "$exp/small"
fi

if in_stage 4; then
  log "Stage 4: word error rates of the test set"
  for method in greedy_search modified_beam_search fast_beam_search; do
    asr decode --model "$exp/small" --decoding-method "$method" --out "$exp/decoded" \
      "$exp/data/speech_cuts_test.jsonl.gz"
  done
fi
