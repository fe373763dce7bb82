#!/usr/bin/env bash
# From PocketSphinx's lattices to a table of WERs: own 4-gram, TransfoRNN, both.  Tuned on dev, reported on test.
#
# Usage: run.sh [--stage N] [--stop-stage M]
set -eou pipefail

cd "$(dirname "$0")"
root=$(cd ../.. && pwd)
PATH=$root/.venv/bin:$PATH

stage=0
stop_stage=5
data=${data:-$root/../shared/data}      # books/, librispeech/text/, slf_pocketsphinx/{lat/*.slf.gz,dev.text,test.text}
audio=${audio:-$data/librispeech/LibriSpeech/train-clean-100}  # the recordings of the lattices
exp=${exp:-exp}
lm=${lm:-transfornn}                    # a name of the zoo, or a model folder
ngram=${ngram:-$exp/4gram.arpa}
num_paths=${num_paths:-200}

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

if in_stage 3; then
  log "Stage 3: scores of $lm"
  for set in dev test; do
    rescore nbest --nbest "$exp/$set/nbest.jsonl.gz" --lm "transfornn=$lm" --out "$exp/$set/scores"
  done
fi

if in_stage 4; then
  log "Stage 4: scales from dev, applied to test"
  tune() {  # tune NAME [--fix ...]
    local name=$1
    shift
    rescore tune --scores "$exp/dev/scores" --ref "$data/slf_pocketsphinx/dev.text" --out "$exp/$name.json" "$@"
    rescore combine --scores "$exp/test/scores" --weights "$exp/$name.json" --out "$exp/test/$name"
  }
  tune 4gram --fix transfornn=0 --fix posterior=0
  tune transfornn --fix ngram=0 --fix posterior=0
  tune both --fix posterior=0
fi

if in_stage 5; then
  log "Stage 5: the table of test"
  rescore compare --ref "$data/slf_pocketsphinx/test.text" \
    recogniser="$exp/test/recogniser.txt" "+ 4-gram=$exp/test/4gram" "+ TransfoRNN=$exp/test/transfornn" \
    "+ 4-gram and TransfoRNN=$exp/test/both" \
    --against recogniser --against "+ 4-gram" --json "$exp/results.json" --markdown | tee "$exp/results.md"
fi
