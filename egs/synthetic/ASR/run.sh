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
short_minutes=${short_minutes:-11}
minutes=${minutes:-45}
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
  log "Stage 0: speech (6 minutes on two cores, 1.5 GB); voices, pitches and rates of valid and test are not in train"
  how=(--pico 0.6 --jobs "$jobs")
  asr synthesise "$books/train.txt.xz" "$exp/short" --count 10000 --words 2 5 --snr 12 40 --seed 4 "${how[@]}"
  asr synthesise "$books/train.txt.xz" "$exp/train" --count "$count" --words 3 18 --snr 8 40 --seed 1 "${how[@]}"
  asr synthesise "$books/valid.txt.xz" "$exp/valid" --count 200 --words 3 18 --snr 8 40 --seed 2 --held-out "${how[@]}"
  asr synthesise "$books/test.txt.xz" "$exp/test" --count 400 --words 3 18 --snr 8 40 --seed 3 --held-out "${how[@]}"
fi

if in_stage 1; then
  log "Stage 1: features and tokens (5 minutes)"
  asr prepare "$exp/data" --cuts "$exp/train" --cuts "$exp/valid" --cuts "$exp/test" --fbank \
    --bpe-text "$books/valid.txt.xz" --vocab-size "$vocab_size"
fi

how=(--valid-cuts "$exp/data/speech_cuts_valid.jsonl.gz" --enable-spec-aug false --use-bf16 true --ctc-scale 0.5)
how+=(--optimizer muon --muon-lr 0.01 --base-lr 0.003 --warm-step 60 --save-every-n 500)

if in_stage 2; then
  log "Stage 2: training on short sentences, where the alignments are learnt quickly ($short_minutes minutes, two cores)"
  asr train --config small --bpe-model "$exp/data/lang_bpe_$vocab_size/bpe.model" --exp-dir "$exp/train-short" \
    --train-cuts "$exp/short" "${how[@]}" --max-duration 20 --world-size 2 --max-minutes "$short_minutes"
fi

if in_stage 3; then
  log "Stage 3: training on longer ones ($minutes minutes, one core)"
  asr train --init "$exp/train-short/model" --exp-dir "$exp/train-long" --on-the-fly-feats false \
    --train-cuts "$exp/data/speech_cuts_train.jsonl.gz" "${how[@]}" --max-duration 40 --max-minutes "$minutes"
  last=$(sed 's/[^0-9]//g' "$exp/train-long/last-checkpoint")
  asr average --exp-dir "$exp/train-long" --iter "$last" --avg 1 --half --out "$exp/small"
fi

if in_stage 4; then
  log "Stage 4: word error rates of the test set"
  for method in greedy_search modified_beam_search fast_beam_search; do
    asr decode --model "$exp/small" --decoding-method "$method" --out "$exp/decoded" \
      "$exp/data/speech_cuts_test.jsonl.gz"
  done
fi
