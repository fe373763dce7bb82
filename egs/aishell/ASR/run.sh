#!/usr/bin/env bash
# AISHELL-1 from the download to a table of character error rates: no LM, n-gram, Transformer and lookup-dictionary LM over
# characters, lists against whole lattices; shallow fusion with subtraction of the internal LM.
#
# Usage: ./run.sh [--dl-dir DIR] [--world-size N] [--device cpu|cuda] [--stage N] [--stop-stage N]
set -eou pipefail
cd "$(dirname "$0")"

stage=0
stop_stage=4
dl_dir=download
musan=true
world_size=4
device=cuda
kinds="lookup transformer"  # LMs that are trained, by conf/KIND.yaml
fusion="--lm exp/lm/lookup --lm-scale 0.4 --ilme-scale 0.2"  # the scales of the paper on the lookup dictionary; empty: none
. ../../shared/asr.sh
. ../../shared/ngram.sh
corpus=aishell dev=dev test=test decoded=exp/decoded decoding=(--device "$device")
lms=${kinds:+$(printf 'exp/lm/%s ' $kinds)} ngram=data/lm/4gram.arpa

if [[ $fusion == *exp/lm/lookup* && " $kinds " != *" lookup "* && ! -e exp/lm/lookup ]]; then  # told before days of training
  fail "--fusion takes exp/lm/lookup, which --kinds '$kinds' does not train; give --fusion other options of decode.py, or '' for none"
fi

prepare() { ./prepare.sh --dl-dir "$dl_dir" --musan "$musan"; }

train() {
  local noise=()
  if "$musan"; then noise=(--musan-cuts data/musan_cuts.jsonl.gz); fi
  ./train.py --world-size "$world_size" --device "$device" "${noise[@]}"
}

lms() {
  local kind
  ngram_and_counts data/lm 4 data/lm/train.txt  # again where there is other text now
  for kind in $kinds; do ./train_lm.py --conf "conf/$kind.yaml" --device "$device"; done
}

decode() {
  decode_sets "$dev $test" greedy_search modified_beam_search ${fusion:+"modified_beam_search $fusion"} "fast_beam_search --lattices slf"
}

tables() { rescore_lattices exp/rescored --tail data/lm/counts.txt.gz --cer true; }

run_stage 0 "data" prepare
run_stage 1 "training (estimated: a day on four GPUs)" train exp
run_stage 2 "language models of characters (estimated: two hours on a GPU)" lms exp/lm
run_stage 3 "decoding: greedy, beams, shallow fusion, lattices" decode
run_stage 4 "language models, over lists and lattices" tables
