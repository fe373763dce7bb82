# What the papers' figures vary, in small and from nothing, at equal steps: the width of the feed-forward layers, with a posterior, dropout
# and neither (Bayesian Transformer, Fig. 2); slots, order and entries of the dictionary (lookup dictionary, Figs. 2 and 3).
# Sourced in place of lm.sh, after the recipe's own options.  The recipe has conf/scratch_*.yaml, sets `counts` (the folder of counts.txt.gz)
# and `ngram`, defines `prepare`, and calls run_sweeps.
exp_dir=exp/sweeps
rows="none dropout bayesian"  # of conf/scratch_*.yaml, with each width
dictionaries="slots=2000 slots=250 slots=8000 order=1 order=3 slots=8000,order=1 slots=8000,order=3 entries=4 entries=64"
seeds=1
. "$(dirname "${BASH_SOURCE[0]}")/lm.sh"

each() {  # each FUNCTION: of every LM, with its configuration, its folder and the options that are its own
  local seed width row dictionary changes name
  for seed in $seeds; do
    for width in $widths; do
      for row in $rows; do "$1" "scratch_$row" "$exp_dir/${row}_$width.$seed" --set "feedforward=$width" --train "seed=$seed"; done
    done
    for dictionary in $dictionaries; do
      read -ra changes <<< "--set ${dictionary//,/ --set }"
      name=lookup_${dictionary//=/}  # a comma would be a mixture
      "$1" scratch_lookup "$exp_dir/${name//,/_}.$seed" "${changes[@]}" --train "seed=$seed"
    done
  done
}

train_row() { train_lm "$@" --train "passes=$passes"; }
add_row() {
  lms+=("$(basename "$2")=$2")
  if [ "$1" = scratch_lookup ]; then with_dictionary+=("$2"); fi
}

tables() {
  local lms=() with_dictionary=()
  each add_row
  results=$exp_dir/ppl.json perplexities "$counts" data/test.txt data/valid.txt "${lms[@]}" > "$exp_dir/ppl.txt"
  ../../shared/over_seeds.py "$exp_dir/ppl.json" --out "$exp_dir/ppl.md"
  if [ ${#with_dictionary[@]} -gt 0 ]; then
    ../../shared/information_gain.py --text data/test.txt "${with_dictionary[@]}" | tee "$exp_dir/information_gain.txt"
  fi
}

train_rows() { each train_row; }

run_sweeps() {  # run_sweeps TIME: what a training takes
  run_stage 0 "data" prepare
  run_stage 1 "trainings ($1 each on a CPU core)" train_rows "$exp_dir"
  run_stage 2 "perplexities of test, information gain" tables
}
