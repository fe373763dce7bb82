#!/usr/bin/env bash
# From Kaldi's lattices of dev and test to new decoding folders that Kaldi's score.sh reads: an LM of the zoo beside the
# LM of the lattices, scales from dev alone.
#
# Usage: run.sh --lang data/lang --dev exp/chain/decode_dev --dev-data data/dev \
#                --test exp/chain/decode_test --test-data data/test --lm exp/transfornn --out exp/chain/zoo
#
# Stages: 0 a look at the references, the LM over the lattices of dev, 1 scales, 2 OUT/decode_test, 3 the table, OUT/results.md
set -eou pipefail

stage=0
stop_stage=3
lang=data/lang   # words.txt
dev=             # decoding folders: lat.JOB.gz, num_jobs
dev_data=        # with text
test=
test_data=
lm=transfornn    # model folder or name of the zoo, in the letter case of words.txt
out=exp/zoo
device=cpu       # where the LM is evaluated: cpu or cuda
max_unknown=0.5  # share of the words that the LM may not know
utterances=same  # as text has; or common: those that lattices and text both have count, how many do not is said
lmwt=12          # LM weight of the search, and scale of the new LM; what is used in the end comes from dev
lm_scale=6
beam=8           # lattices are pruned by this first, in units of the graph cost
lm_beam=6        # and the LM leaves out histories that are estimated so much worse than the best one
. "$(dirname "$0")/../shared/recipe.sh"

for name in dev dev_data test test_data; do [ -n "${!name}" ] || fail "--${name//_/-} is missing; see --help"; done
for folder in "$dev" "$test"; do need "$folder/lat.1.gz" "decode with Kaldi first"; done
for file in "$test/num_jobs" "$lang/words.txt" "$dev_data/text" "$test_data/text"; do need "$file" "it is part of Kaldi's folders"; done
words=$lang/words.txt
read -r first_beam second_beam <<< "$(LC_ALL=C awk "BEGIN {print $lmwt * $beam, $lmwt * $lm_beam}")"
search=(--words "$words" --lm "nn=$lm" --device "$device" --max-unknown "$max_unknown" --ngram-beam "$first_beam" --beam "$second_beam")

check() {  # check LATTICES DATA: do the references fit
  rescore lattice best-path "kaldi:$1" --words "$words" --lmwt "$lmwt" --out "$out/search.txt"
  rescore wer --ref "$2/text" --hyp "$out/search.txt" --utterances "$utterances" || fail "$2/text does not fit $1; with others on purpose: --utterances common"
}

scores() {
  mkdir -p "$out"
  check "$dev" "$dev_data"
  check "$test" "$test_data"
  rm -rf "$out/dev"
  rescore lattice rescore "kaldi:$dev" "slf:$out/dev" "${search[@]}" --scale am=1 --scale "graph=$lmwt" --scale "nn=$lm_scale"
}

tune() {
  local how=(--objective errors --lattices "slf:$out/dev" --ref "$dev_data/text" --utterances "$utterances")
  rescore tune "${how[@]}" --out "$out/weights.json"
  rescore tune "${how[@]}" --out "$out/first.json" --fix nn=0
  grep -m 1 '"graph"' "$out/weights.json" | sed 's/.*: *//; s/,.*//' > "$out/lmwt"  # the scale of am is 1
}

decode() {  # Kaldi's jobs stay as they are
  local job name target=$out/decode_test
  mkdir -p "$target" && rm -f "$target"/lat.*.gz  # an earlier run may have had more jobs
  for name in final.mdl frame_shift frame_subsampling_factor; do  # what scoring and CTM look for beside the folder
    if [ -e "$test/../$name" ]; then ln -sf "$(readlink -f "$test/../$name")" "$out/$name"; fi
  done
  for job in $(seq "$(cat "$test/num_jobs")"); do
    rescore lattice rescore "kaldi:$test/lat.$job.gz" "kaldi:$target/lat.$job.gz?weights=$out/weights.json" "${search[@]}" --weights "$out/weights.json"
  done
  cp "$test/num_jobs" "$target/"
}

table() {
  rescore lattice best-path "kaldi:$out/decode_test" --words "$words" --lmwt "$(cat "$out/lmwt")" --out "$out/best.txt"
  rm -rf "$out/first"
  rescore lattice rescore "kaldi:$test" "slf:$out/first" "${search[@]}" --weights "$out/first.json"
  rescore lattice best-path "slf:$out/first" --weights "$out/first.json" --out "$out/first.txt"
  rescore compare --ref "$test_data/text" "Kaldi=$out/first.txt" "+ $(basename "$lm")=$out/best.txt" \
    --utterances "$utterances" --json "$out/results.json" --markdown | tee "$out/results.md"
}

run_stage 0 "the LM over the lattices of dev" scores "$out/dev"
run_stage 1 "scales from dev" tune
run_stage 2 "lattices of test with the new graph cost" decode "$out/decode_test"
run_stage 3 "the table of test" table
