#!/usr/bin/env bash
# Bayesian and lookup LMs from nothing on all words of the calls, beside Transformers with and without dropout: equal steps.
#
# Usage: ./scratch.sh [--rows "none dropout bayesian bayesian_dropout lookup lookup_none"] [--seeds "1 2 3"] [--stage N] [--stop-stage N]
set -eou pipefail
cd "$(dirname "$0")"

stage=0
stop_stage=2
exp_dir=exp/scratch
dl_dir=
rows="none dropout bayesian bayesian_dropout lookup lookup_none"  # of conf/scratch_*.yaml
seeds="1 2 3"
passes=8
. ../../shared/lm.sh

prepare() { ./prepare.sh --sizes all ${dl_dir:+--dl-dir "$dl_dir"}; }

train_rows() {
  local row seed
  for seed in $seeds; do
    for row in $rows; do
      train_lm "scratch_$row" "$exp_dir/$row.$seed" --train "seed=$seed" --train "passes=$passes"
    done
  done
}

tables() {
  local lms=() dictionaries=() against=() row seed
  for row in $rows; do
    for seed in $seeds; do
      lms+=("$row.$seed=$exp_dir/$row.$seed")
      if [[ $row == lookup* ]]; then dictionaries+=("$exp_dir/$row.$seed"); fi
    done
    if [ "$row" = none ] || [ "$row" = dropout ]; then against+=(--against "$row"); fi
  done
  ngram=data/all/4gram.arpa results=$exp_dir/ppl.json perplexities data/all data/test.txt data/valid.txt "${lms[@]}" > "$exp_dir/ppl.txt"
  ../../shared/over_seeds.py "$exp_dir/ppl.json" "${against[@]}" --out "$exp_dir/ppl.md"
  if [ ${#dictionaries[@]} -gt 0 ]; then
    ../../shared/information_gain.py --text data/test.txt "${dictionaries[@]}" | tee "$exp_dir/information_gain.txt"
  fi
}

run_stage 0 "data" prepare
run_stage 1 "$rows from nothing, seeds $seeds (ten minutes a row and seed on a CPU core)" train_rows "$exp_dir"
run_stage 2 "perplexities of test, means over seeds, information gain" tables
