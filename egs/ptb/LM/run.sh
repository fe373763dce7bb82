#!/usr/bin/env bash
# Penn Treebank: the rows of the TransfoRNN paper's Tables 1, 3 and 4, the Bayesian Transformer, the lookup dictionary.
#
# Usage: run.sh [--stage N] [--stop-stage M]
# On a GPU:  device=cuda dim=512 depths="8 2 4 16" rnn_depths="2 4 8" without_positions=2 epochs=40 \
#             more_steps=2000 uncertain="embedding attention feedforward" run.sh
set -eou pipefail

cd "$(dirname "$0")"
root=$(cd ../../.. && pwd)
PATH=${venv:-$root/.venv311}/bin:$PATH

stage=0
stop_stage=3
data=${data:-$root/../shared/data/ptb}  # ptb.{train,valid,test}.txt
exp=${exp:-exp}
device=${device:-cpu}
dim=${dim:-256}
depths=${depths:-4}                     # Transformer layers of the Transformer rows
rnn_depths=${rnn_depths:-2}             # Transformer layers of the TransfoRNN rows
without_positions=${without_positions:-}  # TransfoRNN rows without positions: their Transformer layers
epochs=${epochs:-2}                     # of every row
more_steps=${more_steps:-150}           # of the Bayesian, the lookup and a plain Transformer, from the first Transformer on
uncertain=${uncertain:-feedforward}     # parts of the Bayesian Transformers: embedding attention feedforward
seed=${seed:-1}
steps_per_epoch=455                     # 930,000 tokens in batches of 32 windows of 64

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

lm() {  # lm NAME KIND STEPS OPTIONS...: trains one row
  local name=$1 kind=$2 steps=$3
  shift 3
  log "$name"
  rescore train-lm "$kind" --text "$data/ptb.train.txt" --valid "$data/ptb.valid.txt" --tokens word --device "$device" \
    --train text=windows --train window=64 --train batch_windows=32 --train optimizer=muon --train dtype=bfloat16 \
    --train warmup=50 --train "steps=$steps" --train "valid_every=$steps_per_epoch" \
    --train "seed=$seed" "$@" --out "$exp/$name"
}

steps=$((epochs * steps_per_epoch))
new=(--set "dim=$dim" --set dropout=0.2 --train lr=0.003 --train muon_lr=0.02)
further=(--train lr=0.001 --train muon_lr=0.005)
base=$exp/transformer_${depths%% *}

if in_stage 0; then
  log "Stage 0: modified Kneser-Ney 5-gram, <unk> as an ordinary word"
  rescore train-ngram --text "$data/ptb.train.txt" --order 5 --out "$exp/kn5.arpa"
  rescore ppl --ngram "$exp/kn5.arpa" --text "$data/ptb.test.txt"
fi

if in_stage 1; then
  log "Stage 1: Transformer, TransfoRNN with and without positions, LSTM; d = $dim, tied embeddings"
  for n in $rnn_depths; do
    lm "transfornn_$n" transfornn "$steps" "${new[@]}" --set "layers=$n"
  done
  for n in $depths; do
    lm "transformer_$n" transformer "$steps" "${new[@]}" --set "layers=$n" --set activation=gelu
  done
  lm lstm lstm "$steps" "${new[@]}"
  for n in $without_positions; do
    lm "transfornn_${n}_nopos" transfornn "$steps" "${new[@]}" --set "layers=$n" --set positions=false
  done
fi

if in_stage 2; then
  log "Stage 2: from $base, $more_steps steps more: Transformer, Bayesian, lookup dictionary and its rivals"
  memory=(--set slots=2000 --set entries=16 --set update_after=0)
  lm further_transformer transformer "$more_steps" --init "$base" "${further[@]}"
  for part in $uncertain; do
    lm "further_bayesian_$part" bayesian "$more_steps" --init "$base" "${further[@]}" --set "uncertain=$part"
  done
  lm further_lookup lookup "$more_steps" --init "$base" "${further[@]}" "${memory[@]}"
  lm further_lookup_positional lookup "$more_steps" --init "$base" "${further[@]}" "${memory[@]}" --set hashing=positional
  lm further_lookup_letter lookup "$more_steps" --init "$base" "${further[@]}" "${memory[@]}" --set residual=false
  lm further_notes lookup "$more_steps" --init "$base" "${further[@]}" "${memory[@]}" --set entries=1 --set gated=false
  lm further_ngram-embedding ngram-embedding "$more_steps" --init "$base" "${further[@]}" --set slots=2000
fi

if in_stage 3; then
  log "Stage 3: perplexities of test: windows of 64, every position; Transformers: last position too"
  rows=()
  for folder in "$exp"/*/model.safetensors; do rows+=(--lm "$(dirname "$folder")"); done
  rescore ppl "${rows[@]}" --text "$data/ptb.test.txt" --window 64 | tee "$exp/all.txt"
  rows=()
  for n in $depths; do rows+=(--lm "$exp/transformer_$n"); done
  rescore ppl "${rows[@]}" --text "$data/ptb.test.txt" --window 64 --position final | tee "$exp/final.txt"
  log "Sentence by sentence: interpolated with the 5-gram (weights by EM on valid), and on the tail of the training text"
  rescore count --text "$data/ptb.train.txt" --out "$exp/counts.txt"
  for folder in "$base" "$exp"/further_*; do
    rescore ppl --lm "$folder" --ngram "$exp/kn5.arpa" --text "$data/ptb.test.txt" --tune-mix "$data/ptb.valid.txt" \
      --tail "$exp/counts.txt"
  done
fi
