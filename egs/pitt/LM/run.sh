#!/usr/bin/env bash
# Adaptation from Switchboard and Fisher to DementiaBank's Pitt corpus (Bayesian Transformer paper, Table 2).
#
# Usage: ./run.sh --pitt-dir DIR [--source DIR] [--stage N] [--stop-stage N]         after ../../swbd/LM/run.sh
set -eou pipefail
cd "$(dirname "$0")"

stage=0
stop_stage=3
pitt_dir=
source=../../swbd/LM/exp/transformer
sizes=all
rates="0.0005 0.002"     # learning rates tried
dropouts="0.0 0.2"       # tried in fine-tuning
sigmas=0.01              # posterior standard deviations at the start tried in Bayesian adaptation
device=cpu
world_size=1
train_options=           # more options of every training
. ../../shared/recipe.sh
. ../../shared/lm.sh
. ../../shared/adapt.sh

prepare() { ./prepare.sh --pitt-dir "$pitt_dir" --sizes "$sizes"; }

run_stage 0 "data" prepare
run_stage 1 "fine-tuning: every learning rate with every dropout" fine_tuning
run_stage 2 "Bayesian adaptation" bayesian_adaptation
run_stage 3 "perplexity of test: the source, and the runs that are best on valid" adapted_perplexities
