#!/usr/bin/env bash
# From PocketSphinx's lattices to a table of WERs: own 4-gram, every LM of the zoo, both, all; over 100-best lists and
# over whole lattices.  Tuned on dev, reported on test.
#
# Usage: run.sh [--stage N] [--stop-stage M]
set -eou pipefail

cd "$(dirname "$0")"
root=$(cd ../.. && pwd)
PATH=$root/.venv/bin:$PATH

stage=0
stop_stage=7
data=${data:-$root/../shared/data}      # books/, librispeech/text/, slf_pocketsphinx/{lat/*.slf.gz,dev.text,test.text}
audio=${audio:-$data/librispeech/LibriSpeech/train-clean-100}  # the recordings of the lattices
exp=${exp:-exp}
lms=${lms:-transfornn transformer bayesian lookup lstm}  # names of the zoo, or model folders
ngram=${ngram:-$exp/4gram.arpa}
num_paths=${num_paths:-100}
mbr=${mbr:-0.15}  # the posterior scale of minimum Bayes risk

log() { echo "$(date '+%Y-%m-%d %H:%M:%S') $*" >&2; }

while [ $# -gt 0 ]; do
  case $1 in
    --stage) stage=$2 ;;
    --stop-stage) stop_stage=$2 ;;
    *) log "unknown option $1; there are --stage N and --stop-stage M"; exit 2 ;;
  esac
  shift 2
done

in_stage() { [ "$stage" -le "$1" ] && [ "$stop_stage" -ge "$1" ]; }

mkdir -p "$exp"
# PocketSphinx writes lower case, "u.s.", "well-known"; the references and LMs have upper case, "US", "WELL KNOWN".
normalise=(--case upper --delete . --split -)

if in_stage 0; then
  log "Stage 0: 4-gram LM (modified Kneser-Ney) of books and LibriSpeech's transcripts"
  if [ ! -f "$ngram" ]; then
    rescore train-ngram --text "$data/books/train.txt.xz" --text "kaldi:$data/librispeech/text/train-clean-100.txt" \
      --order 4 --prune 0,0,0,1 --out "$ngram"
  fi
fi

if in_stage 1; then
  log "Stage 1: lattices of dev and test; the recogniser's own 1-best, decoded from the audio"
  for set in dev test; do
    mkdir -p "$exp/$set/lat"
    cut -d' ' -f1 "$data/slf_pocketsphinx/$set.text" | while read -r utt; do
      ln -sfn "$(realpath "$data/slf_pocketsphinx/lat/$utt.slf.gz")" "$exp/$set/lat/$utt.slf.gz"
    done
    python local/recognise.py --audio "$audio" --ref "$data/slf_pocketsphinx/$set.text" --out "$exp/$set/recogniser.txt"
  done
fi

if in_stage 2; then
  log "Stage 2: exact $num_paths-best lists after an n-gram pass over the whole lattice"
  for set in dev test; do
    rescore convert "slf:$exp/$set/lat" "$exp/$set/nbest.jsonl.gz" -n "$num_paths" --ngram "$ngram" \
      --scale ngram=8 --scale words=-10 "${normalise[@]}"
  done
fi

names=()
for lm in $lms; do names+=("$(basename "$lm")"); done

if in_stage 3; then
  log "Stage 3: scores of $lms"
  options=()
  for lm in $lms; do options+=(--lm "$lm"); done
  for set in dev test; do
    rescore nbest --nbest "$exp/$set/nbest.jsonl.gz" "${options[@]}" --out "$exp/$set/scores"
  done
fi

if in_stage 4; then
  log "Stage 4: scales from dev, applied to test"
  tune() {  # tune NAME SCORE...: with these scores of LMs and no others
    local name=$1 fixed=(--fix posterior=0) score
    shift
    for score in ngram "${names[@]}"; do
      [[ " $* " == *" $score "* ]] || fixed+=(--fix "$score=0")
    done
    rescore tune --scores "$exp/dev/scores" --ref "$data/slf_pocketsphinx/dev.text" --out "$exp/$name.json" "${fixed[@]}"
    rescore combine --scores "$exp/test/scores" --weights "$exp/$name.json" --out "$exp/test/$name"
  }
  tune 4gram ngram
  for name in "${names[@]}"; do
    tune "$name" "$name"
    tune "4gram+$name" ngram "$name"
  done
  tune all ngram "${names[@]}"
fi

if in_stage 5; then
  log "Stage 5: the table of test"
  systems=("recogniser=$exp/test/recogniser.txt" "+ 4-gram=$exp/test/4gram")
  for name in "${names[@]}"; do systems+=("+ $name=$exp/test/$name"); done
  for name in "${names[@]}"; do systems+=("+ 4-gram and $name=$exp/test/4gram+$name"); done
  rescore compare --ref "$data/slf_pocketsphinx/test.text" "${systems[@]}" "+ all=$exp/test/all" \
    --against recogniser --against "+ 4-gram" --json "$exp/results.json" --markdown | tee "$exp/results.md"
fi

if in_stage 6; then
  log "Stage 6: whole lattices: the 4-gram exactly, then each LM; scales from dev, applied to test"
  for name in 4gram "${names[@]}"; do
    options=(--ngram "$ngram" --scale words=-10 --ngram-beam 60)
    if [ "$name" = 4gram ]; then
      options+=(--scale ngram=9)
    else
      options+=(--scale ngram=5 --lm "$name" --scale "$name=4" --beam 60)
    fi
    for set in dev test; do
      ( time rescore lattice rescore "slf:$exp/$set/lat" "slf:$exp/$set/lattices/$name" "${options[@]}" \
          "${normalise[@]}" ) 2>&1 | tee "$exp/$set/lattices.$name.log"
    done
    rescore tune --lattices "slf:$exp/dev/lattices/$name" --ref "$data/slf_pocketsphinx/dev.text" --fix posterior=0 \
      --out "$exp/lattices.$name.json"
    rescore lattice best-path "slf:$exp/test/lattices/$name" --weights "$exp/lattices.$name.json" \
      --out "$exp/test/lattices.$name.txt"
    rescore lattice mbr "slf:$exp/test/lattices/$name" --weights "$exp/lattices.$name.json" --posterior-scale "$mbr" \
      --out "$exp/test/mbr.$name.txt"
  done
fi

if in_stage 7; then
  log "Stage 7: the table of test, lists against lattices"
  systems=("4-gram, 100-best=$exp/test/4gram" "4-gram, lattice=$exp/test/lattices.4gram.txt")
  systems+=("4-gram, lattice, MBR=$exp/test/mbr.4gram.txt")
  for name in "${names[@]}"; do
    systems+=("+ $name, 100-best=$exp/test/4gram+$name" "+ $name, lattice=$exp/test/lattices.$name.txt")
    systems+=("+ $name, lattice, MBR=$exp/test/mbr.$name.txt")
  done
  rescore compare --ref "$data/slf_pocketsphinx/test.text" "${systems[@]}" --against "+ ${names[0]}, 100-best" \
    --json "$exp/lattices.json" --markdown | tee "$exp/lattices.md"
fi
