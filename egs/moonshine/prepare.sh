#!/usr/bin/env bash
# Speech for the recogniser, in data/: manifests of LibriSpeech's dev-clean, divided by speaker, and of train-clean-100;
# the same under white noise and under babble of the other speakers of a set.
#
# Usage: ./prepare.sh [--data DIR] [--noise "KIND:SNR ..."] [--stage N] [--stop-stage N]
#
# DIR holds librispeech/LibriSpeech/{dev-clean,train-clean-100} and librispeech/dev-clean-speaker-split.json.
set -eou pipefail
cd "$(dirname "$0")"

stage=0
stop_stage=1
data=../../../shared/data
noise="babble:10 babble:5 white:10 white:5"  # kinds, and ratios of speech to noise in dB
. ../shared/recipe.sh
speech=$data/librispeech
sets="dev-clean-dev dev-clean-test dev-clean-train train-clean-100"

manifests() {
  need "$speech/LibriSpeech" "give --data, a folder with librispeech/LibriSpeech"
  once data/.librispeech.done \
    asr prepare data --librispeech "$speech/LibriSpeech" -p dev-clean -p train-clean-100 \
      --split "$speech/dev-clean-speaker-split.json"
}

noisy() {
  local set kind
  for kind in $noise; do
    for set in $sets; do
      once "data/.$set.$kind.done" \
        asr add-noise "data/librispeech_cuts_$set.jsonl.gz" data --kind "${kind%:*}" --snr "${kind#*:}"
    done
  done
}

run_stage 0 "manifests (seconds, 1 MB)" manifests data
run_stage 1 "the sets under noise (a quarter of an hour a kind on two cores, 0.4 GB)" noisy data
