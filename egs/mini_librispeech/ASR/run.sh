#!/usr/bin/env bash
# Mini LibriSpeech from the download to a table: no LM, n-gram, each neural LM, all of them, lists against whole lattices.
#
# Usage: ./run.sh [--dl-dir DIR] [--conf FILE] [--world-size N] [--device cpu|cuda] [--stage N] [--stop-stage N]
#
# conf/train.yaml learns from nothing, in four hours on a GPU; conf/from-small.yaml begins with the small recogniser of
# synthetic speech that ships with the package, for two hours on a CPU: --conf conf/from-small.yaml --device cpu
set -eou pipefail
cd "$(dirname "$0")"

stage=0
stop_stage=3
dl_dir=download
conf=conf/train.yaml
world_size=1
device=cuda
lms="transfornn transformer bayesian lookup lstm"  # names of the zoo, or model folders
ngram=ngram
. ../../shared/asr.sh
corpus=librispeech dev=dev-clean-2-dev test=dev-clean-2-test decoded=exp/decoded decoding=(--device "$device")

prepare() { ./prepare.sh --dl-dir "$dl_dir"; }

train() { ./train.py --conf "$conf" --world-size "$world_size" --device "$device"; }

decode() { decode_sets "$dev $test" greedy_search modified_beam_search "fast_beam_search --lattices slf"; }

tables() { rescore_lattices exp/rescored; }

run_stage 0 "data" prepare
run_stage 1 "training (the hours of its budget, see max-minutes in $conf)" train exp
run_stage 2 "decoding: greedy, beams, lattices (estimated: half an hour on a core)" decode
run_stage 3 "language models, over lists and lattices (estimated: an hour on a core)" tables
