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
. ../../shared/adapt.sh

prepare() { ./prepare.sh --pitt-dir "$pitt_dir" --sizes "$sizes"; }

adaptation_stages
