# Recognisers of written text from sets of cuts to tables, clean and under noise; sourced after recipe.sh and lists.sh.
# A recipe has the options exp, model, noise, beam, noisy_beam, normalise and lms, sets parts (lists.sh) and sources, the set of
# cuts of each part (data/librispeech_cuts_SET.jsonl.gz), others, sets that are decoded only, and whole, the sets of `cross_fit`.
normalising=(--normalise "$normalise")
names=("${tuned[@]}")

of_each() {  # of_each FUNCTION: clean, then with each noise: what its sets have behind their names, the beam, where results go
  local kind
  for kind in clean $noise; do
    behind=-${kind/:/-}dB size=$noisy_beam out=$exp/${kind/:/-}dB
    if [ "$kind" = clean ]; then behind='' size=$beam out=$exp/clean; fi
    files=$(basename "$model")-modified_beam_search-beam-size-$size
    "$1"
  done
}

recognise() {
  local set
  for set in "${sources[@]}" $others; do
    once "$exp/.$set$behind-$files.done" asr decode --model "$model" --decoding-method modified_beam_search \
      --beam-size "$size" --normalise "$normalise" --out "$exp/decoded" "data/librispeech_cuts_$set$behind.jsonl.gz"
  done
}

table() {  # table PART NAME SYSTEM...
  rescore compare --ref "$(references "$1")" "${normalising[@]}" --markdown --json "$out/$1/$2.json" "${@:3}" |
    tee "$out/$1/$2.md"
}

references() {
  if [ "$1" = whole ]; then echo "$out/whole/text"; else echo "data/librispeech_text_${sources[$1]}"; fi
}

own_rows() {  # the text of the most probable tokens; the words with the largest sum over the ways to write them
  local part stem
  for part in "${parts[@]}"; do
    mkdir -p "$out/$part"
    stem=${sources[$part]}$behind-$files
    ln -sfn "$(realpath "$exp/decoded/nbest-$stem.jsonl.gz")" "$out/$part/nbest.jsonl.gz"
    log "$out/$part: $(wc -l < "$exp/decoded/cut-off-$stem.txt") utterances cut off"
    table "$part" recogniser "single=$exp/decoded/single-$stem.txt" "summed=$out/$part/nbest.jsonl.gz"
  done
}

tune() {
  local name
  tune_lists none
  for name in "${names[@]}"; do tune_lists "$name" "$name"; done
  tune_lists all "${names[@]}"
}

lm_rows() {
  local part name systems
  for part in test seen; do
    systems=("summed=$out/$part/nbest.jsonl.gz" "+ words=$out/$part/none")
    for name in "${names[@]}" all; do systems+=("+ $name=$out/$part/$name"); done
    table "$part" lms --against "+ words" "${systems[@]}"
  done
}

cross_fit() {  # the sets of `whole` as one: each utterance decoded with scales that were tuned on other speakers
  local all=$out/whole name set stem systems
  local lists=() texts=() singles=()
  for set in $whole; do
    stem=$set$behind-$files
    lists+=("$exp/decoded/nbest-$stem.jsonl.gz") texts+=("data/librispeech_text_$set") singles+=("$exp/decoded/single-$stem.txt")
  done
  mkdir -p "$all"
  joined "$all/nbest.jsonl.gz" "${lists[@]}"
  joined "$all/text" "${texts[@]}"
  joined "$all/single" "${singles[@]}"
  rescore nbest --nbest "$all/nbest.jsonl.gz" "${models[@]}" "${scoring[@]}" --out "$all/scores"
  forget_others "$all/.of" "$all/scores/scores.jsonl.gz" "$all/text"
  cross none
  for name in "${names[@]}"; do cross "$name" "$name"; done
  cross all "${names[@]}"
  cross errors --objective errors "${names[@]}"
  systems=("single=$all/single" "summed=$all/nbest.jsonl.gz" "no LM=$all/none")
  for name in "${names[@]}"; do systems+=("+ $name=$all/$name"); done
  table whole lms --against summed "${systems[@]}" "+ all=$all/all" "+ all, by errors=$all/errors"
}

cross() {  # cross NAME [--objective NAME] SCORE...: with these scores of LMs and no others
  local all=$out/whole name=$1 score objective=() off=("${fixed[@]}")
  shift
  if [ "${1:-}" = --objective ]; then objective=("$1" "$2"); shift 2; fi
  for score in "${tuned[@]}"; do
    [[ " $* " == *" $score "* ]] || off+=(--fix "$score=0")
  done
  once "$all/.$name.done" rescore tune --scores "$all/scores" --ref "$all/text" "${normalising[@]}" "${objective[@]}" "${off[@]}" \
    --cross-fit "$all/$name" --out "$all/$name.json"
}

forget_others() {  # forget_others FILE INPUT...: marks of what was done with other inputs, of which FILE has the sum
  local sum
  sum=$(cat "${@:2}" | cksum)
  if [ "$(cat "$1" 2> /dev/null)" != "$sum" ]; then rm -f "$(dirname "$1")"/.*.done; fi
  echo "$sum" > "$1"
}

joined() {  # joined FILE PART...
  cat "${@:2}" > "$1.tmp"
  mv "$1.tmp" "$1"
}
