#!/usr/bin/env bash
# Figures 2 and 3 of the papers in small, on all words of the calls, from nothing: width of the feed-forward layers against dropout and
# posterior (Bayesian Transformer), and slots, order and entries of the lookup dictionary.  conf/scratch_*.yaml, equal steps.
#
# Usage: ./sweeps.sh [--widths "128 512 2048 8192"] [--dictionaries "slots=250 ..."] [--seeds 1] [--stage N] [--stop-stage N]
set -eou pipefail
cd "$(dirname "$0")"

stage=0
stop_stage=2
dl_dir=
widths="128 512 2048 8192"
passes=8
. ../../shared/sweeps.sh
counts=data/all ngram=data/all/4gram.arpa

prepare() { ./prepare.sh --sizes all ${dl_dir:+--dl-dir "$dl_dir"}; }

run_sweeps "three to eight minutes"
