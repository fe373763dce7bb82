#!/usr/bin/env bash
# LibriSpeech from audio to a table: no LM, n-gram, each neural LM, combinations, N-best lists against whole lattices.
#
# Usage: ./run.sh [--dl-dir DIR] [--device cpu|cuda] [--stage N] [--stop-stage N]   960 hours, 119 M parameters, GPUs
#        ./run.sh --mini true --dl-dir DIR [--stage N] [--stop-stage N]             2.6 hours, 5.3 M parameters, 2 CPU cores
set -eou pipefail
cd "$(dirname "$0")"

stage=0
stop_stage=4
dl_dir=download
mini=false
text_dir=../../../../shared/data/books       # mini: the text of the synthetic speech
world_size=4
device=                                      # cpu or cuda; else training takes the GPUs that are there, the rest the CPU
components="conv dir com rep"                # mini: the encoders that are compared
lms="transfornn transformer bayesian lookup lstm"  # names of the zoo, or folders such as ../LM/exp/transfornn
ngram=ngram                                  # such as ../LM/data/4gram.arpa
fusion_lm=transfornn
fusion_scales="0.1 0.15"                     # tried on dev; empty: no fusion
word_reward=1.0
. ../../shared/asr.sh
corpus=librispeech dev=dev-clean test=test-clean exp=exp/paper-com on=(${device:+--device "$device"})
decoding=(--conf conf/decode.yaml "${on[@]}")
if "$mini"; then dev=dev-clean-dev test=dev-clean-test exp=exp/best decoding=(--conf conf/mini/decode.yaml "${on[@]}"); fi
decoded=$exp/decoded

prepare() { ./prepare.sh --dl-dir "$dl_dir" --mini "$mini" --text-dir "$text_dir"; }

encoders() { if "$mini"; then local/encoders.sh --components "$components" "${on[@]}"; fi; }

train() {
  if "$mini"; then
    ./train.py --conf conf/mini/best.yaml "${on[@]}"
    average exp/best exp/best/small
  else
    ./train.py --world-size "$world_size" --musan-cuts data/musan_cuts.jsonl.gz "${on[@]}"
  fi
}

each_pair() {  # each_pair FUNCTION: for dev and test, then for dev-other and test-other where both are there
  local suffix=
  "$1"
  if ! "$mini" && [ -e data/librispeech_cuts_dev-other.jsonl.gz ] && [ -e data/librispeech_cuts_test-other.jsonl.gz ]; then
    local dev=dev-other test=test-other suffix=-other
    "$1"
  fi
}

decode_pair() {
  local fused="modified_beam_search --lm $fusion_lm --word-reward $word_reward --lm-scale" scale
  decode_sets "$dev $test" greedy_search modified_beam_search "fast_beam_search --lattices k2"
  if [ -z "$fusion_scales" ]; then return; fi
  for scale in $fusion_scales; do decode_sets "$dev" "$fused $scale"; done
  scale=$(best_lm_scale "$dev" "$fusion_lm" "$(wc -w <<< "$fusion_scales")")
  decode_sets "$test" "$fused $scale"
}

tables_of_pair() {
  rescore_lattices "$exp/rescored$suffix" --ngram-scale 0.5 --words-scale 2.5 --ngram-alone-scale 0.5 \
    --ngram-lattice-scale 0.35 --lm-scale 0.2 --ngram-beam 4 --beam 3 --mbr ""
}

decode() { each_pair decode_pair; }

tables() { each_pair tables_of_pair; }

run_stage 0 "data" prepare
run_stage 1 "mini: encoders with conv, dir, com, rep (3 hours on two cores)" encoders
run_stage 2 "training (mini: an hour on a core)" train
run_stage 3 "decoding: greedy, beams, lattices, shallow fusion" decode
run_stage 4 "language models, over lists and lattices: tables in $exp/rescored (and -other)" tables
