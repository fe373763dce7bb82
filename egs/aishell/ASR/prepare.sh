#!/usr/bin/env bash
# AISHELL-1 (Mandarin, 178 hours): manifests, noise, tokens and texts of characters, in data/.
#
# Usage: ./prepare.sh [--dl-dir DIR] [--musan false] [--stage N] [--stop-stage N]
#
# Every character is a word and a token: error rates are of characters, and LMs are over characters.  Stages have the numbers
# of icefall's.
set -eou pipefail
cd "$(dirname "$0")"

stage=0
stop_stage=7
dl_dir=download  # aishell/data_aishell/{wav,transcript}
musan=true       # noise for the training
. ../../shared/recipe.sh
. ../../shared/ngram.sh

download() { fetch "$dl_dir/aishell" lhotse download aishell "$dl_dir"; }

manifests() {
  local part
  for part in wav/{train,dev,test} transcript/aishell_transcript_v0.8.txt; do
    need "$dl_dir/aishell/data_aishell/$part" "stage 0 downloads and unpacks it (data_aishell.tgz, and the archives in its wav); or give --dl-dir"
  done
  once data/.aishell_manifests.done lhotse prepare aishell "$dl_dir/aishell" data/manifests
  for part in train dev test; do
    once "data/.aishell_$part.done" lhotse cut simple --force-eager -r "data/manifests/aishell_recordings_$part.jsonl.gz" \
      -s "data/manifests/aishell_supervisions_$part.jsonl.gz" "data/manifests/aishell_cuts_$part.jsonl.gz"
  done
  once data/.aishell.done asr prepare data --characters \
    --cuts data/manifests/aishell_cuts_train.jsonl.gz --cuts data/manifests/aishell_cuts_dev.jsonl.gz \
    --cuts data/manifests/aishell_cuts_test.jsonl.gz
}

noise() { ../../shared/musan.sh --dl-dir "$dl_dir" --out data; }

tokens() {
  sentences data/aishell_text_train > data/transcript_words.txt
  once data/.lang_char.done asr prepare data --characters --bpe-text data/transcript_words.txt
}

transcripts() {
  mkdir -p data/lm
  sentences data/aishell_text_train > data/lm/train.txt
  sentences data/aishell_text_dev > data/lm/valid.txt
}

texts() {  # written once: there may be more text in train.txt by now
  once data/lm/.transcripts.done transcripts
  ngram_and_counts data/lm 4 data/lm/train.txt
}

run_stage 0 "download (16 GB; hours)" download "$dl_dir/aishell"
run_stage 1 "manifests, characters as words (estimates: 10 minutes, 100 MB)" manifests data
! "$musan" || run_stage 2 "noise of MUSAN (download: 11 GB; an hour)" noise data/musan_cuts.jsonl.gz
run_stage 6 "tokens (a minute, 1 MB)" tokens data/lang_char
run_stage 7 "texts for language models, counts, a 4-gram (a minute, 30 MB)" texts data/lm
