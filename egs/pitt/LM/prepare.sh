#!/usr/bin/env bash
# DementiaBank's Pitt corpus, the target text of the adaptation, in data/: divided by speaker, 8 : 1 : 1.
#
# Usage: ./prepare.sh --pitt-dir DIR [--sizes "10000 all"] [--stage N] [--stop-stage N]
set -eou pipefail
cd "$(dirname "$0")"

stage=0
stop_stage=1
pitt_dir=         # .../SPEAKER-VISIT.cha, such as Dementia/cookie/001-0.cha
sizes=all         # words of target text
. ../../shared/recipe.sh
. ../../shared/ngram.sh
need "${pitt_dir:-(empty)}" "give --pitt-dir, the folder of the Pitt transcripts (CHAT): members get it at dementia.talkbank.org"

texts() {  # by the last digit of the speaker's number
  mkdir -p data
  once data/.train.done rescore transcripts chat "$pitt_dir" --files '*[2-9]-?.cha' --case lower --out data/train.txt
  once data/.valid.done rescore transcripts chat "$pitt_dir" --files '*1-?.cha' --case lower --out data/valid.txt
  once data/.test.done rescore transcripts chat "$pitt_dir" --files '*0-?.cha' --case lower --out data/test.txt
}

run_stage 0 "text (seconds, 1 MB)" texts data
run_stage 1 "the first words of it, 4-grams, counts (an estimate: 2 seconds, 20 MB)" small_texts data
