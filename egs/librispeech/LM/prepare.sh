#!/usr/bin/env bash
# LibriSpeech: text of books and transcripts, words, a 4-gram and counts, in data/ (mini: data/mini).
#
# Usage: ./prepare.sh [--dl-dir DIR] [--stage N] [--stop-stage N]     after stages 0 and 1 of ../ASR/prepare.sh
#        ./prepare.sh --mini true --dl-dir DIR [--text-dir DIR]
#
# --mini true is for books and a part of the transcripts that are on disk.
set -eou pipefail
cd "$(dirname "$0")"

stage=0
stop_stage=2
dl_dir=download           # full: librispeech-{lm-norm.txt.gz,vocab.txt}; mini: text/train-clean-100.txt
mini=false
asr_data=../ASR/data      # full: the transcripts, librispeech_text_PART
text_dir=../../../../shared/data/books  # mini: {train,valid,test}.txt.xz, one upper-case sentence a line
. ../../shared/recipe.sh
. ../../shared/ngram.sh
if "$mini"; then
  data=data/mini
  for part in train valid test; do need "$text_dir/$part.txt.xz" "give --text-dir, a folder with {train,valid,test}.txt.xz"; done
  need "$dl_dir/text/train-clean-100.txt" "give --dl-dir, a folder with text/train-clean-100.txt, Kaldi text"
else
  data=data
  for part in train-clean-100 {dev,test}-{clean,other}; do
    need "$asr_data/librispeech_text_$part" "run ../ASR/prepare.sh --stop-stage 1, of all of LibriSpeech, or give --asr-data"
  done
fi

download() {
  local file
  for file in lm-norm.txt.gz vocab.txt; do
    fetch "$dl_dir/librispeech-$file" curl -fL --retry 3 -o "$dl_dir/librispeech-$file" \
      "https://www.openslr.org/resources/11/librispeech-$file"
  done
}

texts() {
  mkdir -p "$data"
  if "$mini"; then
    ln -sf "$(realpath "$text_dir")"/{train,valid,test}.txt.xz "$(realpath "$dl_dir")/text/train-clean-100.txt" "$data"
    return
  fi
  local set
  ln -sf "$(realpath "$dl_dir/librispeech-lm-norm.txt.gz")" data/books.txt.gz
  ln -sf "$(realpath "$dl_dir/librispeech-vocab.txt")" data/vocab.txt
  log "transcripts of $(cd "$asr_data" && echo librispeech_text_train-*)"
  sentences "$asr_data"/librispeech_text_train-* > data/transcripts.txt
  for set in {dev,test}-{clean,other}; do cut -d ' ' -f 2- "$asr_data/librispeech_text_$set" > "data/$set.txt"; done
}

ngrams() {
  if "$mini"; then
    ngram_and_counts "$data" 4 "$data/train.txt.xz kaldi:$data/train-clean-100.txt" --prune 0,0,0,1
  else
    ngram_and_counts data 4 data/transcripts.txt --vocab data/vocab.txt
  fi
}

"$mini" || run_stage 0 "download (1.5 GB; minutes)" download "$dl_dir"
run_stage 1 "text (a minute, 60 MB)" texts "$data"
run_stage 2 "4-gram, counts (estimates: mini 3 minutes, 500 MB; of 960 h 2 minutes, 600 MB)" ngrams "$data"
