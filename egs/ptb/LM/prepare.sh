#!/usr/bin/env bash
# Penn Treebank: the usual 10,000-word version of Mikolov et al., a 5-gram and counts, in data/.
#
# Usage: ./prepare.sh [--dl-dir DIR] [--stage N] [--stop-stage N]
set -eou pipefail
cd "$(dirname "$0")"

stage=0
stop_stage=1
dl_dir=../../../../shared/data/ptb  # ptb.{train,valid,test}.txt
. ../../shared/recipe.sh
. ../../shared/ngram.sh

texts() {
  local part
  for part in train valid test; do
    need "$dl_dir/ptb.$part.txt" "give --dl-dir, the folder of ptb.{train,valid,test}.txt (data of the RNNLM toolkit's \
simple-examples; from LDC99T42, whose licence you need)"
  done
  mkdir -p data
  for part in train valid test; do cp -f "$dl_dir/ptb.$part.txt" "data/$part.txt"; done
}

ngrams() { ngram_and_counts data 5 data/train.txt; }

run_stage 0 "text (seconds, 6 MB)" texts data
run_stage 1 "5-gram (<unk> as an ordinary word), counts (4 seconds on an idle core, 90 MB)" ngrams data
