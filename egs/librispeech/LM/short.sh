#!/usr/bin/env bash
# Architecture, size, pieces, optimiser, rates and batch by short runs: perplexity a word after so many minutes of one core each.
#
# Usage: ./short.sh [--core-minutes 15] [--only "transformer lstm"] [--text-dir DIR] [--stage N] [--stop-stage N]
#
# Steps follow from a first measurement of each LM's speed.  Two scripts side by side, with other LMs in --only, share the data.
set -eou pipefail
cd "$(dirname "$0")"

stage=0
stop_stage=2
core_minutes=15
only=                   # names of the LMs; empty: all
exp_dir=exp/short
text_dir=../../../../shared/data/books  # {train,valid}.txt.xz, one upper-case sentence a line
. ../../shared/lm.sh
export OMP_NUM_THREADS=1
data=data/short

each() {  # each FUNCTION: of every LM: its name, its configuration, what differs
  if [ -n "$only" ] && [[ " $only " != *" $2 "* ]]; then return; fi
  "$@"
}

rows() {  # rows FUNCTION
  each "$1" transformer transformer
  each "$1" transfornn transfornn
  each "$1" lstm lstm
  each "$1" transformer_seed2 transformer --train seed=2
  each "$1" transformer_post transformer --set norm=post
  each "$1" transformer_3x384 transformer --set layers=3 --set dim=384 --set feedforward=1536
  each "$1" transformer_6x384 transformer --set dim=384 --set feedforward=1536
  each "$1" transfornn_256 transfornn --set dim=256
  each "$1" lstm_320 lstm --set dim=320
  each "$1" pieces_2000 transformer --vocab-size 2000
  each "$1" pieces_8000 transformer --vocab-size 8000
  each "$1" adamw transformer --train optimizer=adamw
  each "$1" batch_1024 transformer --train batch_tokens=1024
  each "$1" batch_4096 transformer --train batch_tokens=4096
  each "$1" rates_half transformer --train lr=0.0015 --train muon_lr=0.0075
  each "$1" rates_double transformer --train lr=0.006 --train muon_lr=0.03
}

texts() {  # runs of 256 sentences, so that contexts across sentences stay
  local part
  mkdir -p "$data"
  for part in train valid; do
    need "$text_dir/$part.txt.xz" "give --text-dir, a folder with {train,valid}.txt.xz"
    xz -dc "$text_dir/$part.txt.xz" | awk 'int(NR / 256) % 8 == 0' > "$data/$part.part"
    mv "$data/$part.part" "$data/$part.txt"
  done
}
prepare() { once "$data/.done" texts; }

train_row() {  # train_row NAME CONF OPTION...
  local speed=$exp_dir/speed/$1 steps
  train_lm "short/$2" "$speed" "${@:3}" --train steps=20 --train log_every=5
  steps=$(./short_runs.py steps "$speed/log.jsonl" --core-minutes "$core_minutes")
  train_lm "short/$2" "$exp_dir/$1" "${@:3}" --train "steps=$steps"
}

add_row() { lms+=(--lm "$1=$exp_dir/$1"); }
tables() {
  local lms=()
  rows add_row
  rescore ppl "${lms[@]}" --text "$data/valid.txt" --device "$device" --max-unknown "$max_unknown" --json "$exp_dir/ppl.json" > "$exp_dir/ppl.txt"
  ./short_runs.py table "$exp_dir/ppl.json" | tee "$exp_dir/table.md"
}
train_rows() { rows train_row; }

run_stage 0 "an eighth of the text (seconds)" prepare "$data"
run_stage 1 "trainings ($core_minutes minutes of a core each, and a minute to measure the speed)" train_rows "$exp_dir"
run_stage 2 "perplexities of valid" tables
