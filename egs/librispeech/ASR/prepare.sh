#!/usr/bin/env bash
# LibriSpeech: manifests, features, tokens and noise, in data/.
#
# Usage: ./prepare.sh [--dl-dir DIR] [--stage N] [--stop-stage N]
#        ./prepare.sh --mini true --dl-dir DIR [--text-dir DIR]
#
# The download is 60 GB (MUSAN: 11 GB).  --mini true is for a part of LibriSpeech that is on disk, with a division of
# dev-clean by speaker, and makes synthetic speech of a text to begin with (egs/synthetic/ASR).
set -eou pipefail
cd "$(dirname "$0")"

stage=0
stop_stage=4
dl_dir=download        # LibriSpeech/PART/SPEAKER/CHAPTER/*.{flac,trans.txt}; mini: dev-clean-speaker-split.json too
vocab_size=500
mini=false
text_dir=../../../../shared/data/books  # mini: the text of the synthetic speech
nj=4
. ../../shared/recipe.sh

split=()
if "$mini"; then
  split=(--split "$dl_dir/dev-clean-speaker-split.json")
  need "$dl_dir/LibriSpeech" "give --dl-dir, a folder with LibriSpeech/PART/SPEAKER/CHAPTER"
  need "$dl_dir/dev-clean-speaker-split.json" "it divides dev-clean by speaker: {\"train\": [...], \"dev\": [...], \"test\": [...]}"
fi

download() {
  if "$mini"; then return; fi
  mkdir -p "$dl_dir"
  once "$dl_dir/.librispeech.done" lhotse download librispeech --full "$dl_dir"
  once "$dl_dir/.musan.done" lhotse download musan "$dl_dir"
}

features() {
  need "$dl_dir/LibriSpeech" "stage 0 downloads it; or give --dl-dir"
  once data/.librispeech.done asr prepare data --librispeech "$dl_dir/LibriSpeech" "${split[@]}" --fbank --perturb-speed
}

noise() {
  if "$mini"; then return; fi
  once data/.musan_manifests.done lhotse prepare musan "$dl_dir/musan" data/musan
  for part in music noise; do
    once "data/.musan_$part.done" lhotse cut simple -r "data/musan/musan_recordings_$part.jsonl.gz" "data/musan_cuts_$part.jsonl.gz"
  done
  once data/.musan.done lhotse combine data/musan_cuts_{music,noise}.jsonl.gz data/musan_cuts.jsonl.gz
}

tokens() {
  if "$mini"; then return; fi
  local lang=data/lang_bpe_$vocab_size
  mkdir -p "$lang"
  cut -d ' ' -f 2- data/librispeech_text_train-* > "$lang/transcript_words.txt"
  once "$lang/.done" asr prepare data --bpe-text "$lang/transcript_words.txt" --vocab-size "$vocab_size"
}

synthetic() {
  if ! "$mini"; then return; fi
  ../../synthetic/ASR/prepare.sh --text-dir "$(realpath "$text_dir")" --jobs "$nj"
}

run_stage 0 "download (60 GB and 11 GB; hours)" download
run_stage 1 "manifests and features, the training parts at three speeds (960 h: 6 hours, 60 GB; mini: 4 minutes, 0.3 GB)" \
  features data
run_stage 2 "noise of MUSAN" noise
run_stage 3 "tokens (a minute)" tokens
run_stage 4 "mini: synthetic speech and its tokens (11 minutes, 1.9 GB)" synthetic
