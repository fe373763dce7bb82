#!/usr/bin/env bash
# From lattices of dev and test to a table of error rates: the recogniser, + n-gram, + each neural LM, + all of them, over N-best
# lists and over whole lattices.  Scales come from dev alone.
#
# Usage: rescore.sh --dev LATTICES --test LATTICES --dev-ref TEXT --test-ref TEXT --out DIR [--first TEST_1BEST] ...
#
# Texts are Kaldi's, or N-best lists (--first).
#
# Stages: 0 exact N-best lists after a pass of the n-gram, 1 scores of all LMs, 2 scales and results, 3 whole lattices,
# 4 the tables, OUT/lists.md and OUT/lattices.md (with JSON beside them).
set -eou pipefail

stage=0
stop_stage=4
dev=                     # lattices, as FORMAT:PATH
test=
dev_ref=                 # Kaldi text
test_ref=
first=                   # the recogniser's own 1-best of test; left out where it is not given
out=exp/rescored
ngram=ngram              # an n-gram LM: ARPA, KenLM binary, or the one of the zoo
lms="transfornn transformer bayesian lookup lstm"  # names of the zoo, or model folders; empty: the n-gram alone
device=cpu               # where LMs are evaluated: cpu or cuda
num_paths=100
ngram_scale=0.4          # of the pass over lattices that gives the lists
words_scale=0.5          # reward of each word
ngram_alone_scale=0.4    # of the n-gram's own pass over whole lattices
ngram_lattice_scale=0.2  # of the n-gram, and of the LM, in the passes with an LM over whole lattices
lm_scale=0.3
ngram_beam=8             # what is so much worse than the best path is left out; in units of the total score
beam=6
held=                    # scores of the lattices that are not used
normalise=               # options for the words, such as "--case upper"
tail=                    # counts of a training text (rescore count): error rates on rare words too
mbr=0.15                 # posterior scale of minimum Bayes risk; empty: none
max_unknown=0.5          # share of the words that an LM may not know
cer=false                # true: scales and tables are of character error rates
on_error=stop            # at a lattice that cannot be read or has no path; skip: leave it out, by name
shared=$(dirname "$(readlink -f "$0")")
. "$shared/recipe.sh"
. "$shared/lists.sh"

for name in dev test dev_ref test_ref; do
  [ -n "${!name}" ] || fail "--${name//_/-} is missing; see --help"
done
read -ra normalise <<< "$normalise"
names=("${tuned[@]}")
[[ " ${names[*]} " != *" ngram "* ]] || fail "--lms names ngram, the score of --ngram, which is taken anyway; leave it out (--lms '' for it alone)"
tuned=(ngram "${names[@]}")
declare -A lattices=([dev]=$dev [test]=$test)
reported=()
if [ -n "$tail" ]; then reported+=(--tail "$tail"); fi
if "$cer"; then reported+=(--cer) normalising+=(--cer); fi
for score in $held; do fixed+=(--fix "$score=0"); done

lists() {
  local set
  for set in dev test; do
    mkdir -p "$out/$set"
    at_least_some rescore convert "${lattices[$set]}" "$out/$set/nbest.jsonl.gz" -n "$num_paths" --ngram "$ngram" \
      --scale "ngram=$ngram_scale" --scale "words=$words_scale" "${normalise[@]}" --max-unknown "$max_unknown" "${skipping[@]}"
  done
}

tune() {
  local name
  tune_lists ngram ngram
  for name in "${names[@]}"; do
    tune_lists "$name" "$name"
    tune_lists "ngram+$name" ngram "$name"
  done
  if [ ${#names[@]} -gt 0 ]; then tune_lists all "${tuned[@]}"; fi
}

timed() {  # timed LOG COMMAND...: what it says and the seconds that it takes, in LOG too
  local log=$1
  shift
  { time "$@"; } 2>&1 | tee "$log" >&2
}

lattice_pass() {  # lattice_pass NAME LM: of the n-gram alone where LM is empty
  local name=$1 lm=$2 set options=(--max-unknown "$max_unknown" --ngram "$ngram" --scale "words=$words_scale" --ngram-beam "$ngram_beam")
  if [ -z "$lm" ]; then
    options+=(--scale "ngram=$ngram_alone_scale")
  else
    options+=(--scale "ngram=$ngram_lattice_scale" --lm "$name=$lm" --scale "$name=$lm_scale" --beam "$beam" --device "$device")
  fi
  for set in dev test; do
    rm -rf "$out/$set/lattices/$name"
    timed "$out/$set/lattices.$name.log" \
      at_least_some rescore lattice rescore "${lattices[$set]}" "slf:$out/$set/lattices/$name" "${options[@]}" "${normalise[@]}" \
        "${skipping[@]}"
  done
  rescore tune --objective errors --lattices "slf:$out/dev/lattices/$name" --ref "$dev_ref" --out "$out/lattices.$name.json" \
    "${normalising[@]}" "${common[@]}" "${fixed[@]}"
  rescore lattice best-path "slf:$out/test/lattices/$name" --weights "$out/lattices.$name.json" \
    --out "$out/test/lattices.$name.txt"
  if [ -n "$mbr" ]; then
    rescore lattice mbr "slf:$out/test/lattices/$name" --weights "$out/lattices.$name.json" --posterior-scale "$mbr" \
      --out "$out/test/mbr.$name.txt"
  fi
}

whole_lattices() {
  local lm i=0
  lattice_pass ngram ""
  for lm in $lms; do
    lattice_pass "${names[i]}" "$lm"
    i=$((i + 1))
  done
}

tables() {
  local systems=() name
  if [ -n "$first" ]; then systems+=("recogniser=$first"); fi
  systems+=("+ n-gram=$out/test/ngram")
  for name in "${names[@]}"; do systems+=("+ $name=$out/test/$name"); done
  for name in "${names[@]}"; do systems+=("+ n-gram and $name=$out/test/ngram+$name"); done
  if [ ${#names[@]} -gt 0 ]; then systems+=("+ all=$out/test/all"); fi
  rescore compare --ref "$test_ref" "${systems[@]}" --against "+ n-gram" "${reported[@]}" "${common[@]}" \
    --json "$out/lists.json" --markdown | tee "$out/lists.md"
  [ -e "$out/test/lattices.ngram.txt" ] || return 0
  systems=()
  local against=()
  if [ ${#names[@]} -gt 0 ]; then against=(--against "+ n-gram and ${names[0]}, $num_paths-best"); fi
  for name in ngram "${names[@]}"; do
    local lists=$out/test/ngram+$name shown="+ n-gram and $name"
    if [ "$name" = ngram ]; then lists=$out/test/ngram shown="+ n-gram"; fi
    systems+=("$shown, $num_paths-best=$lists" "$shown, lattice=$out/test/lattices.$name.txt")
    if [ -n "$mbr" ]; then systems+=("$shown, lattice, MBR=$out/test/mbr.$name.txt"); fi
  done
  rescore compare --ref "$test_ref" "${systems[@]}" "${against[@]}" "${reported[@]}" "${common[@]}" \
    --json "$out/lattices.json" --markdown | tee "$out/lattices.md"
}

run_stage 0 "exact $num_paths-best lists after a pass of the n-gram over the lattices" lists
run_stage 1 "scores of ${lms:-the n-gram alone, which the lists have}" score_lists
run_stage 2 "scales from dev, applied to test" tune
run_stage 3 "whole lattices" whole_lattices
run_stage 4 "the tables of test" tables
