#!/usr/bin/env bash
# Adaptation from books to earnings calls (Bayesian Transformer paper, Table 2): fine-tuning against Bayesian adaptation.
#
# Usage: ./run.sh [--dl-dir DIR] [--source NAME|DIR] [--sizes "10000 50000 all"] [--stage N] [--stop-stage N]
set -eou pipefail
cd "$(dirname "$0")"

stage=0
stop_stage=3
dl_dir=
source=transformer       # an LM of the zoo, or a folder
sizes="10000 50000 all"  # words of target text
. ../../shared/adapt.sh

prepare() { ./prepare.sh --sizes "$sizes" ${dl_dir:+--dl-dir "$dl_dir"}; }

adaptation_stages
