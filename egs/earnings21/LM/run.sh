#!/usr/bin/env bash
# Adaptation from books to earnings calls (Bayesian Transformer paper, Table 2): fine-tuning against Bayesian adaptation.
#
# Usage: ./run.sh [--dl-dir DIR] [--stage N] [--stop-stage N]
set -eou pipefail
cd "$(dirname "$0")"

stage=0
stop_stage=3
dl_dir=
source=transformer       # an LM of the zoo, or a folder
sizes="10000 50000 all"  # words of target text
rates="0.0005 0.002"     # learning rates tried
dropouts="0.0 0.2"       # tried in fine-tuning
sigmas=0.01              # posterior standard deviations at the start tried in Bayesian adaptation
device=cpu
world_size=1
train_options=           # more options of every training
. ../../shared/recipe.sh
. ../../shared/lm.sh
. ../../shared/adapt.sh

prepare() { ./prepare.sh --sizes "$sizes" ${dl_dir:+--dl-dir "$dl_dir"}; }

run_stage 0 "data" prepare
run_stage 1 "fine-tuning: every learning rate with every dropout (2 minutes a run on a CPU core)" fine_tuning
run_stage 2 "Bayesian adaptation (2 minutes a run)" bayesian_adaptation
run_stage 3 "perplexity of test: the source, and the runs that are best on valid" adapted_perplexities
