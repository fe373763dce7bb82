#!/usr/bin/env bash
# The encoders of the S4former in turn, from nothing, by one budget (mini configuration): exp/COMPONENT, and what they decode.
#
# Usage: local/encoders.sh [--components "conv dir com rep"], after ./prepare.sh --mini true
set -eou pipefail
cd "$(dirname "$0")/.."

components="conv dir com rep"
. ../../shared/asr.sh
corpus=librispeech

for name in $components; do
  exp=exp/$name config=conf/mini/small-$name.json
  if [ "$name" = com ]; then config=small; fi
  ./train.py --conf conf/mini/short.yaml --config "$config" --exp-dir "$exp/short"
  ./train.py --conf conf/mini/long.yaml --init "$exp/short/model" --exp-dir "$exp/long"
  ./train.py --conf conf/mini/real.yaml --init "$exp/long/model" --exp-dir "$exp/real"
  average "$exp/real" "$exp/real/small"
  decoding=(--conf conf/mini/decode.yaml --model "$exp/real/small" --out "$exp/decoded")
  decode_sets "dev-clean-dev dev-clean-test" greedy_search modified_beam_search
done
