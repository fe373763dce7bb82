#!/usr/bin/env bash
# A small streaming recogniser from synthetic speech of a text: the one that ships as asr/pretrained/small.
#
# Usage: ./run.sh [--text-dir DIR] [--stage N] [--stop-stage N]
set -eou pipefail
cd "$(dirname "$0")"

stage=0
stop_stage=3
text_dir=../../../../shared/data/books
. ../../shared/asr.sh
corpus=speech decoding=(--conf conf/decode.yaml)

prepare() { ./prepare.sh --text-dir "$text_dir"; }

train() {
  ./train.py --conf conf/short.yaml
  ./train.py
}

model() { average exp/long exp/small; }

decode() { decode_sets test greedy_search modified_beam_search fast_beam_search; }

run_stage 0 "speech, features, tokens" prepare
run_stage 1 "training: 11 minutes on short sentences, 45 on longer ones" train exp
run_stage 2 "the model, in float16" model exp/small
run_stage 3 "word error rates of the test set" decode
