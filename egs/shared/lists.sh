# From N-best lists of dev and test to results: what rescore.sh and egs/icefall/rescore.sh share; sourced after recipe.sh.
# Options of the script: out, lms, dev_ref, max_unknown (or none).  A script may add to models and tuned, an n-gram for example, and to fixed.
tuned=()   # names of the scores of LMs
models=()  # options that name the LMs
fixed=()   # options for scores that are not used: --fix NAME=0
for lm in $lms; do
  tuned+=("$(basename "$lm")")
  models+=(--lm "$lm")
done
if [ -n "${max_unknown:-}" ]; then models+=(--max-unknown "$max_unknown"); fi

score_lists() {  # of OUT/{dev,test}/nbest.jsonl.gz, in OUT/{dev,test}/scores
  local set
  for set in dev test; do
    rescore nbest --nbest "$out/$set/nbest.jsonl.gz" "${models[@]}" --out "$out/$set/scores"
  done
}

tune_lists() {  # tune_lists NAME SCORE...: scales of these scores of LMs and no others, in OUT/NAME.json; OUT/test/NAME
  local name=$1 off=("${fixed[@]}") score
  shift
  for score in "${tuned[@]}"; do
    [[ " $* " == *" $score "* ]] || off+=(--fix "$score=0")
  done
  rescore tune --scores "$out/dev/scores" --ref "$dev_ref" --out "$out/$name.json" "${off[@]}"
  rescore combine --scores "$out/test/scores" --weights "$out/$name.json" --out "$out/test/$name"
}
