#!/usr/bin/env bash
# Adaptation (Bayesian Transformer paper, Table 2) from books to earnings calls: fine-tuning against Bayesian
# adaptation, for small amounts of target text.  Settings are chosen by valid, the chosen ones measured on test.
#
# Usage: run.sh [--stage N] [--stop-stage M]
set -eou pipefail

cd "$(dirname "$0")"
root=$(cd ../../.. && pwd)
PATH=${venv:-$root/.venv311}/bin:$PATH

stage=0
stop_stage=3
data=${data:-$root/../shared/data/earnings21}  # {train,valid,test}.txt
exp=${exp:-exp}
source=${source:-transformer}           # an LM of the zoo, or a folder
sizes=${sizes:-"10000 50000 all"}       # words of target text
rates=${rates:-"0.0005 0.002"}           # learning rates tried
dropouts=${dropouts:-"0.0 0.2"}         # tried in fine-tuning
sigmas=${sigmas:-"0.01"}                  # initial posterior standard deviations tried in Bayesian adaptation

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

adapt() {  # adapt KIND SOURCE SIZE LR NAME OPTIONS...: an AdamW run that stops when valid no longer improves
  local kind=$1 from=$2 size=$3 rate=$4 name=$5 every=8
  shift 5
  [ "$size" = all ] && every=25
  rescore train-lm "$kind" --init "$from" --text "$exp/train.$size.txt" --valid "$data/valid.txt" \
    --train dtype=bfloat16 --train "lr=$rate" --train batch_tokens=2048 --train warmup=8 --train "steps=$((every * 12))" \
    --train "valid_every=$every" --train patience=2 --train save_every=1000 "$@" --out "$exp/$size/$name"
}

best() {  # best SIZE PREFIX: the run with the lowest validation loss
  rescore lms --best "$exp/$1/$2"*
}

if in_stage 0; then
  log "Stage 0: the first words of the target text"
  for size in $sizes; do
    if [ "$size" = all ]; then cp "$data/train.txt" "$exp/train.all.txt"; else
      awk -v n="$size" '{ print; words += NF } words >= n { exit }' "$data/train.txt" > "$exp/train.$size.txt"
    fi
  done
fi

if in_stage 1; then
  log "Stage 1: fine-tuning, every learning rate with every dropout"
  for size in $sizes; do for rate in $rates; do for dropout in $dropouts; do
    adapt transformer "$source" "$size" "$rate" "tuned-$rate-$dropout" --set "dropout=$dropout"
  done; done; done
fi

if in_stage 2; then
  log "Stage 2: Bayesian adaptation: prior from the source LM, and from the best fine-tuned one"
  for size in $sizes; do
    tuned=$(best "$size" tuned-)
    for rate in $rates; do for sigma in $sigmas; do
      adapt bayesian "$source" "$size" "$rate" "bayes-$rate-$sigma" --set "sigma=$sigma" --set dropout=0.0
    done; done
    for rate in $rates; do
      adapt bayesian "$tuned" "$size" "$rate" "tuned.bayes-$rate" --set sigma=0.01
    done
  done
fi

if in_stage 3; then
  log "Stage 3: perplexity of test"
  for size in $sizes; do
    rescore ppl --lm "source=$source" --lm "tuned=$(best "$size" tuned-)" --lm "bayes=$(best "$size" bayes-)" \
      --lm "tuned-then-bayes=$(best "$size" tuned.bayes-)" --text "$data/test.txt"
  done
fi
