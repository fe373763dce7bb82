#!/usr/bin/env bash
# LibriSpeech: manifests, features, tokens and noise, in data/.  Stages have the numbers of icefall's.
#
# Usage: ./prepare.sh [--dl-dir DIR] [--stage N] [--stop-stage N]
#        ./prepare.sh --mini true --dl-dir DIR [--text-dir DIR]
#
# The download is 60 GB (MUSAN: 11 GB).  --mini true is for what is on disk of train-clean-100 and dev-clean, with a
# division of dev-clean by speaker, and makes synthetic speech of a text to begin with (egs/synthetic/ASR).
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

corpus=$dl_dir/LibriSpeech
how=()  # the large training computes features as it goes: of noisy speech at all speeds
if "$mini"; then
  how=(-p train-clean-100 -p dev-clean --split "$dl_dir/dev-clean-speaker-split.json" --fbank --perturb-speed)
  for part in train-clean-100 dev-clean; do
    need "$corpus/$part" "give --dl-dir, a folder with LibriSpeech/$part/SPEAKER/CHAPTER"
  done
  need "$dl_dir/dev-clean-speaker-split.json" "it divides dev-clean by speaker: {\"train\": [...], \"dev\": [...], \"test\": [...]}"
fi

download() { fetch "$corpus" lhotse download librispeech --full "$dl_dir"; }

manifests() {
  need "$corpus" "stage 0 downloads it; or give --dl-dir"
  once data/.librispeech.done asr prepare data --librispeech "$corpus" "${how[@]}"
}

noise() { ../../shared/musan.sh --dl-dir "$dl_dir" --out data; }

tokens() {
  sentences data/librispeech_text_train-* > data/transcript_words.txt
  once "data/.lang_bpe_$vocab_size.done" \
    asr prepare data --bpe-text data/transcript_words.txt --vocab-size "$vocab_size"
}

synthetic() { ../../synthetic/ASR/prepare.sh --text-dir "$(realpath "$text_dir")" --jobs "$nj"; }

if "$mini"; then
  run_stage 1 "manifests, features at three speeds (4 minutes, 0.3 GB)" manifests data
  run_stage 6 "synthetic speech and its tokens (11 minutes, 1.9 GB)" synthetic ../../synthetic/ASR/data
else
  run_stage 0 "download (60 GB; hours)" download "$corpus"
  run_stage 1 "manifests of 960 h (estimates: half an hour, 0.2 GB)" manifests data
  run_stage 2 "noise of MUSAN (download: 11 GB; an hour)" noise data/musan_cuts.jsonl.gz
  run_stage 5 "tokens (a minute, 1 MB)" tokens "data/lang_bpe_$vocab_size"
fi
