#!/usr/bin/env bash
# From PocketSphinx's lattices to tables of WERs: own 4-gram, every LM of the zoo, both, all; over 100-best lists and over
# whole lattices.  Tuned on dev, reported on test.
#
# Stages: 0 4-gram, 1 lattices, 2 lists, 3 scores, 4 scales, 5 whole lattices, 6 tables.
#
# Usage: ./run.sh [--data DIR] [--lms "NAME|DIR ..."] [--stage N] [--stop-stage N]
#
# DIR holds slf_pocketsphinx/{lat/UTT.slf.gz,dev.text,test.text}, and for the 4-gram books/train.txt.xz and
# librispeech/text/train-clean-100.txt.
set -eou pipefail
cd "$(dirname "$0")"

stage=0
stop_stage=6
data=../../../shared/data
audio=                  # the recordings; DATA/librispeech/LibriSpeech/train-clean-100 where it is not given
exp=exp
lms="transfornn transformer bayesian lookup lstm"  # names of the zoo, or model folders
ngram=                  # a ready ARPA or KenLM file; EXP/4gram.arpa, which stage 0 makes, where it is not given
device=cpu              # where LMs are evaluated: cpu or cuda
num_paths=100
. ../shared/recipe.sh
known_lms $lms $ngram
audio=${audio:-$data/librispeech/LibriSpeech/train-clean-100}
ours=$data/slf_pocketsphinx
for path in lat dev.text test.text; do
  need "$ours/$path" "give --data, a folder with slf_pocketsphinx/{lat/UTT.slf.gz,dev.text,test.text}"
done

train_ngram() {
  if [ -n "$ngram" ]; then return; fi
  once "$exp/.4gram.done" rescore train-ngram --text "$data/books/train.txt.xz" \
    --text "kaldi:$data/librispeech/text/train-clean-100.txt" --order 4 --prune 0,0,0,1 --out "$exp/4gram.arpa"
}

lattices() {
  local set utt
  for set in dev test; do
    mkdir -p "$exp/$set/lat"
    cut -d ' ' -f 1 "$ours/$set.text" | while read -r utt; do
      ln -sfn "$(realpath "$ours/lat/$utt.slf.gz")" "$exp/$set/lat/$utt.slf.gz"
    done
    once "$exp/$set/.recogniser.done" \
      python3 local/recognise.py --audio "$audio" --ref "$ours/$set.text" --out "$exp/$set/recogniser.txt"
  done
}

from_lattices() {  # PocketSphinx writes lower case, "u.s.", "well-known"; references have "US", "WELL KNOWN"
  ../shared/rescore.sh --dev "slf:$exp/dev/lat" --test "slf:$exp/test/lat" --out "$exp" --first "$exp/test/recogniser.txt" \
    --dev-ref "$ours/dev.text" --test-ref "$ours/test.text" --ngram "${ngram:-$exp/4gram.arpa}" --lms "$lms" \
    --normalise "--case upper --delete . --split-words -" --held posterior --num-paths "$num_paths" --device "$device" \
    --ngram-scale 8 --words-scale -10 --ngram-alone-scale 9 --ngram-lattice-scale 5 --lm-scale 4 --ngram-beam 60 --beam 60 \
    --stage "$((stage - 2))" --stop-stage "$((stop_stage - 2))"
}

run_stage 0 "4-gram LM (modified Kneser-Ney) of books and LibriSpeech's transcripts (minutes)" train_ngram "$exp"
run_stage 1 "lattices of dev and test; the recogniser's own 1-best, decoded from the audio (minutes)" lattices
if in_stages 2 3 4 5 6; then from_lattices; fi  # its stages 0 to 4
