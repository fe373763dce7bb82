#!/usr/bin/env bash
# The encoders of the S4former in turn, from nothing, by one budget (mini configuration): exp/COMPONENT, or
# exp/COMPONENT-SCHEME-SEED of other S4s than S4D-Real and other seeds than 42, and what they decode.
#
# Usage: local/encoders.sh [--components "conv dir com rep"] [--schemes "real lin"] [--seeds "42 43 44"],
#        after ./prepare.sh --mini true
set -eou pipefail
cd "$(dirname "$0")/.."

components="conv dir com rep"
schemes=real
seeds=42
device=  # cpu or cuda; else training takes the GPU that is there, decoding the CPU
. ../../shared/asr.sh
corpus=librispeech

encoder() {  # encoder COMPONENT SCHEME SEED
  local exp=exp/$1-$2-$3 config=conf/mini/small-$1.json changes=() on=(${device:+--device "$device"}) decoding
  if [ "$2-$3" = real-42 ]; then exp=exp/$1; fi
  if [ "$1" = com ]; then config=small; fi
  if [ "$2" = lin ]; then changes=(--set encoder.s4_init=lin); fi
  ./train.py --conf conf/mini/short.yaml --config "$config" "${changes[@]}" "${on[@]}" --seed "$3" --exp-dir "$exp/short"
  ./train.py --conf conf/mini/long.yaml --init "$exp/short/model" "${on[@]}" --seed "$3" --exp-dir "$exp/long"
  ./train.py --conf conf/mini/real.yaml --init "$exp/long/model" "${on[@]}" --seed "$3" --exp-dir "$exp/real"
  average "$exp/real" "$exp/real/small"
  decoding=(--conf conf/mini/decode.yaml --model "$exp/real/small" --out "$exp/decoded" "${on[@]}")
  decode_sets "dev-clean-dev dev-clean-test" greedy_search modified_beam_search
}

for seed in $seeds; do
  for scheme in $schemes; do
    for name in $components; do
      if [ "$name-$scheme" != conv-lin ]; then encoder "$name" "$scheme" "$seed"; fi  # a convolution has no S4
    done
  done
done
