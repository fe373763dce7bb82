#!/usr/bin/env bash
# Transcripts of earnings calls (Earnings-21), the target text of the adaptation, in data/.
#
# Usage: ./prepare.sh [--dl-dir DIR] [--sizes "10000 50000 all"] [--stage N] [--stop-stage N]
set -eou pipefail
cd "$(dirname "$0")"

stage=0
stop_stage=1
dl_dir=../../../../shared/data/earnings21  # {train,valid,test}.txt, one upper-case sentence a line, divided by call
sizes="10000 50000 all"                    # words of target text
. ../../shared/recipe.sh
. ../../shared/ngram.sh

texts() {
  local part
  for part in train valid test; do
    need "$dl_dir/$part.txt" "give --dl-dir, a folder with {train,valid,test}.txt made of github.com/revdotcom/speech-datasets"
  done
  mkdir -p data
  cp -f "$dl_dir"/{train,valid,test}.txt data
}

run_stage 0 "text (seconds, 2 MB)" texts data
run_stage 1 "the first words of it, 4-grams, counts (2 seconds on an idle core, 22 MB)" small_texts data
