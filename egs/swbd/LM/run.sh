#!/usr/bin/env bash
# Bayesian Transformers on Switchboard and Fisher: the rows of Table 1 of the paper, their perplexities on eval2000.
#
# Usage: ./run.sh --swbd-dir DIR --fisher-dirs "DIR DIR" --eval2000-dir DIR --device cuda [--stage N] [--stop-stage N]
set -eou pipefail
cd "$(dirname "$0")"

stage=0
stop_stage=3
swbd_dir=               # these three: see prepare.sh
fisher_dirs=
eval2000_dir=
rows="bayes_emb bayes_mha_1 bayes_ff_1 bayes_ff_1-2 bayes_ff_1-3 bayes_ff_1-4 bayes_ff_1-5 bayes_ff_1-6"
mixed="bayes_emb bayes_mha_1 bayes_ff_1"  # rows that are interpolated with the Transformer too
ngram=data/4gram.arpa
. ../../shared/lm.sh

prepare() { ./prepare.sh --swbd-dir "$swbd_dir" --fisher-dirs "$fisher_dirs" --eval2000-dir "$eval2000_dir"; }

transformer() { train_lm transformer exp/transformer; }

bayesian() {
  local row
  for row in $rows; do train_lm "$row" "exp/$row"; done
}

table() {
  local lms=(exp/transformer) row
  for row in $rows; do lms+=("exp/$row"); done
  for row in $mixed; do if [[ " $rows " == *" $row "* ]]; then lms+=("ngram,$row,transformer"); fi; done
  perplexities data data/test.txt data/valid.txt "${lms[@]}" | tee exp/ppl.txt
}

run_stage 0 "data" prepare
run_stage 1 "Transformer (24,000 steps of 16,384 tokens)" transformer
run_stage 2 "from it on, 12,000 steps each: $rows" bayesian
run_stage 3 "perplexities: alone, with the 4-gram (lines 2 to 10), with 4-gram and Transformer (lines 11 to 13)" table
