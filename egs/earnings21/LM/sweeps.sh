#!/usr/bin/env bash
# Figures 2 and 3 of the papers in small, on all words of the calls, from nothing: width of the feed-forward layers against dropout and
# posterior (Bayesian Transformer), and slots, order and entries of the lookup dictionary.  conf/scratch_*.yaml, equal steps.
#
# Usage: ./sweeps.sh [--widths "128 512 2048 8192"] [--dictionaries "slots=250 ..."] [--seeds 1] [--stage N] [--stop-stage N]
set -eou pipefail
cd "$(dirname "$0")"

stage=0
stop_stage=2
exp_dir=exp/sweeps
dl_dir=
widths="128 512 2048 8192"
rows="none dropout bayesian"  # of conf/scratch_*.yaml, with each width
dictionaries="slots=2000 slots=250 slots=8000 order=1 order=3 slots=8000,order=1 slots=8000,order=3 entries=4 entries=64"
seeds=1
passes=8
. ../../shared/lm.sh

prepare() { ./prepare.sh --sizes all ${dl_dir:+--dl-dir "$dl_dir"}; }

each() {  # each FUNCTION: of every LM, with its configuration, its folder and the options that are its own
  local seed width row dictionary changes name
  for seed in $seeds; do
    for width in $widths; do
      for row in $rows; do "$1" "scratch_$row" "$exp_dir/${row}_$width.$seed" --set "feedforward=$width" --train "seed=$seed"; done
    done
    for dictionary in $dictionaries; do
      read -ra changes <<< "--set ${dictionary//,/ --set }"
      name=lookup_${dictionary//=/}  # a comma would be a mixture
      "$1" scratch_lookup "$exp_dir/${name//,/_}.$seed" "${changes[@]}" --train "seed=$seed"
    done
  done
}

train_row() { train_lm "$@" --train "passes=$passes"; }
add_row() {
  lms+=("$(basename "$2")=$2")
  if [ "$1" = scratch_lookup ]; then with_dictionary+=("$2"); fi
}

tables() {
  local lms=() with_dictionary=()
  each add_row
  ngram=data/all/4gram.arpa results=$exp_dir/ppl.json perplexities data/all data/test.txt data/valid.txt "${lms[@]}" > "$exp_dir/ppl.txt"
  ../../shared/over_seeds.py "$exp_dir/ppl.json" --out "$exp_dir/ppl.md"
  if [ ${#with_dictionary[@]} -gt 0 ]; then
    ../../shared/information_gain.py --text data/test.txt "${with_dictionary[@]}" | tee "$exp_dir/information_gain.txt"
  fi
}

train_rows() { each train_row; }

run_stage 0 "data" prepare
run_stage 1 "trainings (three to eight minutes each on a CPU core)" train_rows "$exp_dir"
run_stage 2 "perplexities of test, information gain" tables
