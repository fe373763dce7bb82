#!/usr/bin/env bash
# The rows of the TransfoRNN paper's Tables 1 to 4, the Bayesian Transformer, the lookup dictionary and its rivals.
#
# Usage: ./run.sh --device cuda [--dim 1024] [--stage N] [--stop-stage N]      d = 512, 12 to 36 passes
#        ./run.sh --mini true                                                 d = 256, few rows, two passes, on a CPU
#
# egs/wikitext2/LM/run.sh is this file.
set -eou pipefail
cd "$(dirname "$0")"

stage=0
stop_stage=3
exp_dir=exp
dl_dir=
mini=false
dim=512
passes=                 # of the first rows; else those of their configurations
rows="transfornn_2 transfornn_4 transfornn_8 transformer_2 transformer_4 transformer_8 transformer_16 lstm lstm_untied \
  transfornn_2_nopos transfornn_2_untied transfornn_2_untied_nopos transfornn_2_rnn1 transfornn_2_rnn3"
start=transformer_8     # where the further rows start
further="transformer bayesian_embedding bayesian_attention bayesian_feedforward bayesian_feedforward_1-2 \
  bayesian_feedforward_1-4 lookup lookup_5000x64 lookup_entries4 lookup_order3 lookup_positional lookup_letter notes ngram-embedding"
further_passes=4
seed=1
. ../../shared/lm.sh
ngram=data/5gram.arpa
short=()                # options of the first rows for two passes: higher rates, less dropout
if "$mini"; then
  exp_dir=exp/mini dim=256 passes=2 start=transformer_4 further_passes=1
  rows="transfornn_2 transformer_4 lstm" further="transformer bayesian_feedforward lookup lookup_positional notes ngram-embedding"
  short=(--set dropout=0.2 --set word_dropout=0 --train lr=0.003 --train muon_lr=0.02 --train weight_decay=0.01 --train muon_decay=0 \
    --train warmup=50 --train batch_windows=32)
fi

prepare() { ./prepare.sh ${dl_dir:+--dl-dir "$dl_dir"}; }

first_rows() {
  local name
  for name in $rows; do
    train_lm "$name" "$exp_dir/$name" --set "dim=$dim" ${passes:+--train "passes=$passes"} --train "seed=$seed" "${short[@]}"
  done
}

further_rows() {
  local name
  for name in $further; do
    train_lm "further_$name" "$exp_dir/further_$name" --init "$exp_dir/$start" --train "passes=$further_passes" --train "seed=$seed"
  done
}

windows() {  # windows TITLE OPTION...: perplexities over windows of 64 words
  log "windows of 64, $1"
  rescore ppl --text data/test.txt --window 64 --device "$device" --max-unknown "$max_unknown" "${@:2}"
}

tables() {
  local lms=() deep=() dictionaries=() name
  for name in $rows ${further:+$(printf 'further_%s ' $further)}; do lms+=("$exp_dir/$name"); done
  for name in $rows; do if [[ $name == transformer_* ]]; then deep+=(--lm "$exp_dir/$name"); fi; done
  for name in $further; do if [[ $name == lookup* ]]; then dictionaries+=("$exp_dir/further_$name"); fi; done
  windows "every position" $(printf -- '--lm %s ' "${lms[@]}")
  windows "each in the state of the one before" $(printf -- '--lm %s ' "${lms[@]}") --position carried
  if [ ${#deep[@]} -gt 0 ]; then windows "last position (Table 4)" "${deep[@]}" --position final; fi
  log "sentence by sentence, with the 5-gram (weights by EM on valid), on the tail of the training text"
  perplexities data data/test.txt data/valid.txt "${lms[@]}"
  if [ ${#dictionaries[@]} -gt 0 ]; then
    log "information gain of the dictionaries"
    ../../shared/information_gain.py --text data/test.txt "${dictionaries[@]}"
  fi
}

print_tables() { tables | tee "$exp_dir/ppl.txt"; }

run_stage 0 "data" prepare
run_stage 1 "$rows (mini: 15 minutes a row on a CPU core)" first_rows
run_stage 2 "from $start, $further_passes passes more: $further (mini: 2 minutes a row)" further_rows
run_stage 3 "perplexities of test" print_tables
