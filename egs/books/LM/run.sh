#!/usr/bin/env bash
# The LMs that ship with the package, trained on books and LibriSpeech's transcripts, and their perplexities.
#
# Usage: run.sh [--stage N] [--stop-stage M]
set -eou pipefail

cd "$(dirname "$0")"
root=$(cd ../../.. && pwd)
PATH=${venv:-$root/.venv311}/bin:$PATH  # Muon needs torch 2.9 or newer

stage=0
stop_stage=4
data=${data:-$root/../shared/data}      # books/{train,valid,test}.txt.xz, librispeech/text/train-clean-100.txt
exp=${exp:-exp}
device=${device:-cpu}

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

mkdir -p "$exp"
text=(--text "$data/books/train.txt.xz" --text "kaldi:$data/librispeech/text/train-clean-100.txt")

lm() {  # lm NAME KIND OPTIONS...: trains one LM
  local name=$1 kind=$2
  shift 2
  log "$name"
  rescore train-lm "$kind" "${text[@]}" --valid "$data/books/valid.txt.xz" --device "$device" \
    --train optimizer=muon --train dtype=bfloat16 "$@" --out "$exp/$name"
}

new=(--vocab transfornn --set dropout=0.0 --train batch_tokens=4096 --train lr=0.003 --train muon_lr=0.02)
further=(--init "$exp/transformer0" --train batch_tokens=4096 --train lr=0.0015 --train muon_lr=0.01 --train warmup=50
  --train steps=800 --train valid_every=400 --train seed=2)

if in_stage 0; then
  log "Stage 0: 4-gram LM, counts of words and bigrams"
  rescore train-ngram "${text[@]}" --order 4 --prune 0,0,0,1 --out "$exp/4gram.arpa"
  rescore count "${text[@]}" --out "$exp/counts.txt.gz"
fi

if in_stage 1; then
  log "Stage 1: Transformer; 8.2 M tokens"
  lm transformer0 transformer "${new[@]}" --set dim=192 --set heads=4 --set feedforward=768 --set layers=4 \
    --set activation=gelu --train warmup=100 --train steps=2000 --train valid_every=1000
fi

if in_stage 2; then
  log "Stage 2: from there 3.3 M tokens more, each: plain, Bayesian, with a lookup dictionary"
  lm lookup lookup "${further[@]}" --set slots=800 --set entries=8 --set update_after=0
  lm bayesian bayesian "${further[@]}" --set uncertain=feedforward --set blocks=1
  lm transformer transformer "${further[@]}"
  log "LSTM; as many tokens in all"
  lm lstm lstm "${new[@]}" --set dim=256 --train warmup=50 --train steps=2800 --train valid_every=1400
fi

if in_stage 3; then
  log "Stage 3: TransfoRNN, continued from the first one"
  lm transfornn transfornn --init transfornn --train batch_tokens=6144 --train lr=0.001 --train muon_lr=0.01 \
    --train warmup=100 --train steps=2500 --train valid_every=1250 --train seed=2
fi

if in_stage 4; then
  log "Stage 4: perplexities of books/test: alone, with the 4-gram (weights by EM on books/valid), on the tail"
  for name in transformer bayesian lookup lstm transfornn; do
    rescore ppl --lm "$exp/$name" --ngram "$exp/4gram.arpa" --text "$data/books/test.txt.xz" \
      --tune-mix "$data/books/valid.txt.xz" --tail "$exp/counts.txt.gz"
  done
  log "Bayesian with the plain Transformer and the 4-gram (Table 1, line 13), and averaged over 8 draws"
  rescore ppl --lm "$exp/bayesian" --lm "$exp/transformer" --ngram "$exp/4gram.arpa" --text "$data/books/test.txt.xz" \
    --tune-mix "$data/books/valid.txt.xz"
  rescore ppl --lm "$exp/bayesian?samples=8" --text "$data/books/test.txt.xz"
fi
