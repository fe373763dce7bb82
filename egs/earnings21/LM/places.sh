#!/usr/bin/env bash
# Which weights are uncertain (Bayesian Transformer paper, Table 1), and a lookup dictionary, in adapting: from the source LM on, equal steps.
#
# Usage: ./places.sh [--dl-dir DIR] [--source NAME|DIR] [--words 10000] [--rate 0.0005] [--places "blocks=1 ..."] [--seeds "1 2 3"] [--stage N] [--stop-stage N]
set -eou pipefail
cd "$(dirname "$0")"

stage=0
stop_stage=2
exp_dir=exp/places
dl_dir=
source=transformer  # an LM of the zoo, or a folder
words=10000         # of target text
rate=0.0005         # learning rate: of 0.0005 and 0.002 the better on valid with fine-tuning
steps=48
valid_every=8
places="uncertain=embedding uncertain=attention blocks=1 blocks=1-2 blocks=1-3 blocks=1-4 blocks=1-5 blocks=1-6"
dictionaries="slots=5000,entries=64"
seeds="1 2 3"
. ../../shared/lm.sh

prepare() { ./prepare.sh --sizes "$words" ${dl_dir:+--dl-dir "$dl_dir"}; }

each() {  # each FUNCTION: of every LM, with its configuration, its folder and the options that are its own
  local seed row changes
  for seed in $seeds; do
    "$1" tuned "$exp_dir/$words/tuned.$seed" --train "seed=$seed"
    for row in $places; do "$1" bayes "$exp_dir/$words/${row//=/_}.$seed" --set "$row" --train "seed=$seed"; done
    for row in $dictionaries; do
      read -ra changes <<< "--set ${row//,/ --set }"
      row=lookup_${row//=/}  # a comma would be a mixture
      "$1" lookup "$exp_dir/$words/${row//,/_}.$seed" "${changes[@]}" --train "seed=$seed"
    done
  done
}

train_row() {
  train_lm "$@" --init "$source" --text "data/$words/train.txt" --train "lr=$rate" --train "steps=$steps" --train "valid_every=$valid_every" --train patience=0
}

add_row() { lms+=("$(basename "$2")=$2"); }

train_rows() { each train_row; }

tables() {
  local lms=("source=$source") folder=$exp_dir/$words
  each add_row
  ngram=data/$words/4gram.arpa results=$folder/ppl.json perplexities "data/$words" data/test.txt data/valid.txt "${lms[@]}" > "$folder/ppl.txt"
  ../../shared/over_seeds.py "$folder/ppl.json" --against tuned --out "$folder/ppl.md"
}

run_stage 0 "data" prepare
run_stage 1 "fine-tuning, a posterior in each place, a dictionary (two to three minutes each on a CPU core)" train_rows "$exp_dir"
run_stage 2 "perplexities of test, means over seeds" tables
