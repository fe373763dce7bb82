#!/usr/bin/env bash
# From speech to tables: lists of Moonshine tiny, clean and under noise, and each LM of the zoo on them.  Scales come from three
# speakers of dev-clean; four others are the test set.  train-clean-100, which Moonshine may have seen, is apart.
#
# Usage: ./run.sh [--data DIR] [--model NAME|DIR] [--lms "NAME|DIR ..."] [--noise "KIND:SNR ..."] [--stage N] [--stop-stage N]
#
# Stages: 0 speech, 1 lists, 2 the recogniser's own rows, 3 scores of LMs, 4 scales, 5 tables of LMs, 6 tables of all of dev-clean.
set -eou pipefail
cd "$(dirname "$0")"

stage=0
stop_stage=6
data=../../../shared/data
model=moonshine         # or a folder with encoder_model and decoder_model_merged in ONNX
lms="ngram transfornn transformer bayesian lookup lstm"  # names of the zoo, model folders, or hf:smollm2 and the like
noise="babble:10 babble:5 white:10 white:5"
beam=32                 # hypotheses that differ in their words
noisy_beam=16
normalise=librispeech
max_unknown=0.5         # share of the words that an LM may not know
device=cpu              # where LMs are evaluated: cpu or cuda
exp=exp
. ../shared/recipe.sh
. ../shared/lists.sh
. ../shared/written.sh
parts=(dev test seen) fixed=(--fix ilm=0)
declare -A sources=([dev]=dev-clean-dev [test]=dev-clean-test [seen]=train-clean-100)
others=dev-clean-train
whole="dev-clean-dev dev-clean-test dev-clean-train"
dev_ref=data/librispeech_text_dev-clean-dev

speech() { ./prepare.sh --data "$data" --noise "$noise"; }
lists() { of_each recognise; }
rows() { of_each own_rows; }
scores() { of_each score_lists; }
scales() { of_each tune; }
tables() { of_each lm_rows; }
crosses() { of_each cross_fit; }

run_stage 0 "speech (an hour on two cores, 2 GB)" speech
run_stage 1 "lists (40 minutes on a core for the clean ones, 25 for each kind of noise)" lists
run_stage 2 "the recogniser's own rows, EXP/CONDITION/PART/recogniser.md" rows
run_stage 3 "scores of $lms" scores
run_stage 4 "scales from dev, applied to the others" scales
run_stage 5 "the tables of LMs, EXP/CONDITION/PART/lms.md" tables
run_stage 6 "all of dev-clean, scales from other speakers (20 minutes for the clean lists), EXP/CONDITION/whole/lms.md" crosses
