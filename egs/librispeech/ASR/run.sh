#!/usr/bin/env bash
# LibriSpeech from audio to a table: no LM, n-gram, each neural LM, combinations, N-best lists against whole lattices.
#
# Usage: ./run.sh [--dl-dir DIR] [--stage N] [--stop-stage N]                  960 hours, 119 M parameters, GPUs
#        ./run.sh --mini true --dl-dir DIR [--stage N] [--stop-stage N]        2.6 hours, 5.3 M parameters, 2 CPU cores
set -eou pipefail
cd "$(dirname "$0")"

stage=0
stop_stage=4
dl_dir=download
mini=false
text_dir=../../../../shared/data/books       # mini: the text of the synthetic speech
world_size=4
components="conv dir com rep"                # mini: the encoders that are compared
lms="transfornn transformer bayesian lookup lstm"  # names of the zoo, or folders such as ../LM/exp/transfornn
ngram=ngram                                  # such as ../LM/exp/4gram.arpa
fusion_lm=transfornn
fusion_scales="0.1 0.15"                  # tried on dev
word_reward=1.0
. ../../shared/recipe.sh
dev=dev-clean test=test-clean exp=exp/paper-com decode=conf/decode.yaml
if "$mini"; then dev=dev-clean-dev test=dev-clean-test exp=exp/best decode=conf/mini/decode.yaml; fi

prepare() { ./prepare.sh --dl-dir "$dl_dir" --mini "$mini" --text-dir "$text_dir"; }

average() {  # average RUN: the last weights of a run with a budget, as RUN/small, in float16
  asr average --exp-dir "$1" --iter "$(sed 's/[^0-9]//g' "$1/last-checkpoint")" --avg 1 --half --out "$1/small"
}

variants() {  # the encoders in turn, from nothing, by one budget
  if ! "$mini"; then return; fi
  local name config part
  for name in $components; do
    config=conf/mini/small-$name.json
    if [ "$name" = com ]; then config=small; fi
    ./train.py --conf conf/mini/short.yaml --config "$config" --exp-dir "exp/$name/short"
    for part in long:short real:long; do
      ./train.py --conf "conf/mini/${part%:*}.yaml" --init "exp/$name/${part#*:}/model" --exp-dir "exp/$name/${part%:*}"
    done
    average "exp/$name/real"
    for method in greedy_search modified_beam_search; do
      ./decode.py --conf "$decode" --model "exp/$name/real/small" --out "exp/$name/decoded" --decoding-method "$method" \
        "data/librispeech_cuts_$dev.jsonl.gz" "data/librispeech_cuts_$test.jsonl.gz"
    done
  done
}

train() {
  if "$mini"; then
    ./train.py --conf conf/mini/best.yaml
    average exp/best
  else
    ./train.py --world-size "$world_size" --musan-cuts data/musan_cuts.jsonl.gz
  fi
}

decode() {
  local sets=("data/librispeech_cuts_$dev.jsonl.gz" "data/librispeech_cuts_$test.jsonl.gz") fused scale
  ./decode.py --conf "$decode" --decoding-method greedy_search "${sets[@]}"
  ./decode.py --conf "$decode" --decoding-method modified_beam_search "${sets[@]}"
  ./decode.py --conf "$decode" --decoding-method fast_beam_search --lattices k2 "${sets[@]}"
  fused=(--decoding-method modified_beam_search --lm "$fusion_lm" --word-reward "$word_reward" --lm-scale)
  for scale in $fusion_scales; do
    ./decode.py --conf "$decode" "${fused[@]}" "$scale" "${sets[0]}"
  done
  scale=$(grep -h lm_scale "$exp/decoded/wer-summary-$dev-"*"$(basename "$fusion_lm")-lm-scale"* | sort -k 2 -n | head -n 1 |
    sed 's/.*_lm_scale_\([0-9.]*\).*/\1/')
  ./decode.py --conf "$decode" "${fused[@]}" "$scale" "${sets[1]}"
}

rescore() {
  local decoded=$exp/decoded lattices=() set found
  for set in "$dev" "$test"; do
    found=$(ls "$decoded/lattices-$set-"*.pt)
    lattices+=("k2:$found?words=${found%.pt}.words.txt")
  done
  ../../shared/rescore.sh --dev "${lattices[0]}" --test "${lattices[1]}" --out "$exp/rescored" --lms "$lms" --ngram "$ngram" \
    --dev-ref "data/librispeech_text_$dev" --test-ref "data/librispeech_text_$test" \
    --ngram-scale 0.5 --words-scale 2.5 --ngram-alone-scale 0.5 --ngram-lattice-scale 0.35 --lm-scale 0.2 \
    --ngram-beam 4 --beam 3 --mbr "" \
    --first "$(ls "$decoded/nbest-$test-"*fast_beam_search*.jsonl.gz)"
}

run_stage 0 "data" prepare
run_stage 1 "mini: encoders with conv, dir, com, rep (3 hours on two cores)" variants
run_stage 2 "training (mini: an hour on a core)" train
run_stage 3 "decoding: greedy, beams, lattices, shallow fusion" decode
run_stage 4 "language models" rescore
