# From N-best lists of dev and test to results: what rescore.sh and egs/icefall/rescore.sh share; sourced after recipe.sh.
# Options of the script: out, lms, dev_ref, max_unknown, device and on_error (or none).  A script may add to models and tuned, an n-gram for example, and to fixed.
tuned=()   # names of the scores of LMs
models=()  # options that name the LMs; where there are none, the lists have all scores already
scoring=()  # options of rescore nbest beside them
fixed=()   # options for scores that are not used: --fix NAME=0
parts=(dev test)  # folders of OUT; scales come from dev, and are applied to the others
normalising=()    # options of rescore tune, such as --normalise NAME or --cer
common=()  # options of rescore tune and compare, where utterances may have been left out
skipping=()  # options of commands that may leave some out
if [ "${on_error:-stop}" = skip ]; then common+=(--utterances common) skipping+=(--on-error skip); fi
known_lms $lms ${ngram-}
for lm in $lms; do
  name=$(basename "${lm%%\?*}" .gguf)  # hf:smollm2?case=mixed is smollm2
  tuned+=("${name#hf:}")
  models+=(--lm "$lm")
done
if [ -n "${max_unknown:-}" ]; then scoring+=(--max-unknown "$max_unknown"); fi
if [ -n "${device:-}" ]; then scoring+=(--device "$device"); fi

score_lists() {  # of OUT/PART/nbest.jsonl.gz, in OUT/PART/scores
  local set
  [ ${#models[@]} -gt 0 ] || return 0
  for set in "${parts[@]}"; do
    at_least_some rescore nbest --nbest "$out/$set/nbest.jsonl.gz" "${models[@]}" "${scoring[@]}" "${skipping[@]}" --out "$out/$set/scores"
  done
}

tune_lists() {  # tune_lists NAME SCORE...: scales of these scores of LMs and no others, in OUT/NAME.json; OUT/PART/NAME
  local name=$1 off=("${fixed[@]}") scores=scores score set
  shift
  [ ${#models[@]} -gt 0 ] || scores=nbest.jsonl.gz
  for score in "${tuned[@]}"; do
    [[ " $* " == *" $score "* ]] || off+=(--fix "$score=0")
  done
  rescore tune --objective errors --scores "$out/dev/$scores" --ref "$dev_ref" --out "$out/$name.json" "${normalising[@]}" "${common[@]}" "${off[@]}"
  for set in "${parts[@]:1}"; do
    rescore combine --scores "$out/$set/$scores" --weights "$out/$name.json" --out "$out/$set/$name"
  done
}
