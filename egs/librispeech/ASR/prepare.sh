#!/usr/bin/env bash
# LibriSpeech: manifests, features, tokens and noise, in data/.  Stages have the numbers of icefall's.
#
# Usage: ./prepare.sh [--dl-dir DIR] [--stage N] [--stop-stage N]
#        ./prepare.sh --mini true --dl-dir DIR [--text-dir DIR]
#
# The download is 60 GB (MUSAN: 11 GB).  --mini true is for a part of LibriSpeech that is on disk, with a division of
# dev-clean by speaker, and makes synthetic speech of a text to begin with (egs/synthetic/ASR).
set -eou pipefail
cd "$(dirname "$0")"

stage=0
stop_stage=6
dl_dir=download        # LibriSpeech/PART/SPEAKER/CHAPTER/*.{flac,trans.txt}; mini: dev-clean-speaker-split.json too
vocab_size=500
mini=false
text_dir=../../../../shared/data/books  # mini: the text of the synthetic speech
nj=4
. ../../shared/recipe.sh

stored=()  # the large training computes features as it goes: of noisy speech at all speeds
if "$mini"; then
  stored=(--split "$dl_dir/dev-clean-speaker-split.json" --fbank --perturb-speed)
  need "$dl_dir/LibriSpeech" "give --dl-dir, a folder with LibriSpeech/PART/SPEAKER/CHAPTER"
  need "$dl_dir/dev-clean-speaker-split.json" "it divides dev-clean by speaker: {\"train\": [...], \"dev\": [...], \"test\": [...]}"
fi

download() {
  if "$mini"; then return; fi
  fetch "$dl_dir/LibriSpeech" lhotse download librispeech --full "$dl_dir"
}

manifests() {
  need "$dl_dir/LibriSpeech" "stage 0 downloads it; or give --dl-dir"
  once data/.librispeech.done asr prepare data --librispeech "$dl_dir/LibriSpeech" "${stored[@]}"
}

noise() {
  if "$mini"; then return; fi
  ../../shared/musan.sh --dl-dir "$dl_dir" --out data
}

tokens() {
  if "$mini"; then return; fi
  sentences data/librispeech_text_train-* > data/transcript_words.txt
  once "data/.lang_bpe_$vocab_size.done" \
    asr prepare data --bpe-text data/transcript_words.txt --vocab-size "$vocab_size"
}

synthetic() {
  if ! "$mini"; then return; fi
  ../../synthetic/ASR/prepare.sh --text-dir "$(realpath "$text_dir")" --jobs "$nj"
}

run_stage 0 "download (60 GB; hours)" download
run_stage 1 "manifests (960 h: estimated half an hour); mini: features at three speeds too (4 minutes, 0.3 GB)" manifests data
run_stage 2 "noise of MUSAN (download: 11 GB)" noise
run_stage 5 "tokens (a minute)" tokens
run_stage 6 "mini: synthetic speech and its tokens (11 minutes, 1.9 GB)" synthetic
