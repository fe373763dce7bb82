#!/usr/bin/env bash
# What an icefall recipe decoded, rescored: N-best lists of its lattices, LMs of the zoo, scales from dev, a table of test.
#
# Usage: rescore.sh --dev DIR --test DIR --dev-recogs FILE --test-recogs FILE --symbols FILE --lms "NAME|DIR ..."
#
# Stages: 0 exact N-best lists, 1 scores of the LMs, 2 scales and results, 3 the table.  README.md tells where the
# lattices come from.
set -eou pipefail

stage=0
stop_stage=3
dev=                 # folders of k2 lattices, *.pt
test=
dev_recogs=          # icefall's recogs-SET-SUFFIX.txt of the same utterances
test_recogs=
symbols=data/lang_bpe_500/words.txt
pieces=false         # true: the lattices have pieces, not words (no HLG or LG); symbols is then tokens.txt
lms=transfornn       # names of the zoo, or model folders
ngram=               # an n-gram LM as well: ARPA, KenLM binary, or the one of the zoo
device=cpu           # where LMs are evaluated: cpu or cuda
max_unknown=0.5      # share of the words that an LM may not know
num_paths=100
scale=               # of scores of the lattices for the lists, such as lm=1
on_error=stop        # at a lattice without a path, as of LG where no word ends; skip: leave it out, by name
out=exp/rescored
. "$(dirname "$0")/../shared/recipe.sh"
. "$(dirname "$0")/../shared/lists.sh"

for name in dev test dev_recogs test_recogs; do
  [ -n "${!name}" ] || fail "--${name//_/-} is missing; see --help"
  need "${!name}" "decode with icefall first; see README.md"
done
need "$symbols" "give the symbol table of the lattices by --symbols"
if [ -n "$ngram" ]; then
  tuned+=(ngram)
  models+=(--ngram "$ngram")
fi
dev_ref=$dev_recogs
declare -A lattices=([dev]=$dev [test]=$test)

lists() {
  local set text=() scales=()
  if [ -n "$scale" ]; then scales=(--scale "$scale"); fi
  if "$pieces"; then text+=(--pieces); fi
  for set in dev test; do
    at_least_some rescore lattice nbest "k2:${lattices[$set]}" "$out/$set/paths.jsonl.gz" --words "$symbols" -n "$num_paths" \
      "${skipping[@]}" "${scales[@]}"
    rescore convert "$out/$set/paths.jsonl.gz" "$out/$set/nbest.jsonl.gz" "${text[@]}"
  done
}

tune() {  # each LM on its own, and all of them
  local name
  for name in "${tuned[@]}"; do tune_lists "$name" "$name"; done
  tune_lists all "${tuned[@]}"
}

table() {
  local systems=() name
  for name in "${tuned[@]}" all; do systems+=("+ $name=$out/test/$name"); done
  rescore compare --ref "$test_recogs" "icefall=$test_recogs" "${systems[@]}" "${common[@]}" --json "$out/results.json" \
    --markdown | tee "$out/results.md"
}

run_stage 0 "exact $num_paths-best lists (seconds a hundred utterances)" lists
run_stage 1 "scores of ${tuned[*]}" score_lists
run_stage 2 "scales from dev, applied to test" tune
run_stage 3 "the table of test" table
