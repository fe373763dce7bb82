#!/usr/bin/env bash
# LMs for LibriSpeech: TransfoRNN and Transformers on the transcripts, lookup dictionary on books, 4-gram; perplexities.
#
# Usage: ./run.sh --device cuda [--world-size N] [--dl-dir DIR] [--stage N] [--stop-stage N]
#        ./run.sh --mini true --device cuda --dl-dir DIR [--text-dir DIR]      the LMs that ship with the package
set -eou pipefail
cd "$(dirname "$0")"

stage=0
stop_stage=3
dl_dir=
mini=false
text_dir=
lms=auto                # on the transcripts; auto: transfornn transformer_2 transformer_4 transformer_8
books_lms=auto          # on books; auto: transformer_16 lookup; empty: none
ngram=                  # data/4gram.arpa
. ../../shared/lm.sh
data=data exp=exp conf=
if "$mini"; then
  data=data/mini exp=exp/mini conf=mini/
  if [ "$lms" = auto ]; then lms="transformer lookup bayesian lstm"; fi
  if [ "$books_lms" = auto ]; then books_lms=transfornn; fi
fi
if [ "$lms" = auto ]; then lms="transfornn transformer_2 transformer_4 transformer_8"; fi
if [ "$books_lms" = auto ]; then books_lms="transformer_16 lookup"; fi
ngram=${ngram:-$data/4gram.arpa}

prepare() { ./prepare.sh --mini "$mini" ${dl_dir:+--dl-dir "$dl_dir"} ${text_dir:+--text-dir "$text_dir"}; }

train() {
  local lm
  for lm in "$@"; do train_lm "$conf$lm" "$exp/$lm"; done
}

chosen() { [[ " $lms $books_lms " == *" $1 "* ]]; }

tables() {
  local folders=() mixtures=() lm set
  for lm in $lms $books_lms; do folders+=("$exp/$lm"); done
  if "$mini"; then
    if chosen bayesian && chosen transformer; then mixtures=(ngram,bayesian,transformer bayesian,transformer); fi
    perplexities $data $data/test.txt.xz $data/valid.txt.xz "${folders[@]}" "${mixtures[@]}"
    if chosen bayesian; then rescore ppl --lm "$exp/bayesian?samples=8" --text $data/test.txt.xz --device "$device" --max-unknown "$max_unknown"; fi
    return
  fi
  for set in dev-clean test-clean dev-other test-other; do
    log "$set"
    perplexities data "data/$set.txt" "data/dev-${set#*-}.txt" "${folders[@]}"
  done
}

first_lms() {
  if "$mini" && { chosen transformer || chosen bayesian || chosen lookup; }; then train transformer0; fi  # their start
  train $lms
}

other_lms() { train $books_lms; }
print_tables() { tables | tee "$exp/ppl.txt"; }

run_stage 0 "data" prepare
run_stage 1 "$lms (mini: a quarter of an hour on a GPU, days on a CPU core)" first_lms
run_stage 2 "$books_lms (mini: five minutes on a GPU; full: days on one)" other_lms
run_stage 3 "perplexities" print_tables
