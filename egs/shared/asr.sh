# What the run.sh of all recipes of recognisers share; sourced in place of recipe.sh, after the recipe's own options.
# A recipe sets then: corpus (data/CORPUS_cuts_SET.jsonl.gz), dev and test (names of sets), decoded (where decode.py writes),
# decoding (the options of every decode.py, an array), and for tables the options lms, ngram and device (or none).
max_unknown=0.5  # share of a recogniser's words that an LM may not know
. "$(dirname "${BASH_SOURCE[0]}")/recipe.sh"
known_lms ${lms-} ${fusion_lm-} ${ngram-}

average() {  # average RUN OUT: the last weights of a run with a budget, in float16
  need "$1/last-checkpoint" "an earlier stage trains it"
  asr average --exp-dir "$1" --iter "$(sed 's/[^0-9]//g' "$1/last-checkpoint")" --avg 1 --half --out "$2"
}

decode_sets() {  # decode_sets "SET..." METHOD...: by each method, which may have options: "fast_beam_search --lattices slf"
  local set method words cuts=()
  for set in $1; do cuts+=("data/${corpus}_cuts_$set.jsonl.gz"); done
  for method in "${@:2}"; do
    read -ra words <<< "$method"
    at_least_some ./decode.py "${decoding[@]}" --decoding-method "${words[@]}" "${cuts[@]}"
  done
}

best_lm_scale() {  # best_lm_scale SET LM N: of the last N searches with this LM, by icefall's summaries
  local last
  mapfile -t last < <(ls -t "$decoded/wer-summary-$1-"*"$(basename "${2%%\?*}")-lm-scale"* | head -n "$3")
  [ ${#last[@]} -gt 0 ] || fail "no search of $1 with the LM $2 in $decoded"
  grep -h 'lm[_-]scale' "${last[@]}" | LC_ALL=C sort -k 2 -n | head -n 1 | sed 's/.*lm[_-]scale[_-]\([0-9.]*\).*/\1/'
}

newest() { ls -td "$@" 2> /dev/null | head -n 1 || true; }  # newest PATH...: of those that are there; others may be of other settings

lattices() {  # lattices SET: the last ones of decode.py, as FORMAT:PATH
  local found
  found=$(newest "$decoded/lattices-$1-"*.pt "$decoded/lattices-$1-"*/)
  case $found in
    *.pt) echo "k2:$found?words=${found%.pt}.words.txt" ;;
    */) echo "slf:${found%/}" ;;
    *) fail "$decoded has no lattices of $1: decode by fast_beam_search --lattices first" ;;
  esac
}

rescore_lattices() {  # rescore_lattices OUT [OPTION...]: rescore.sh on the lattices of dev and test
  ../../shared/rescore.sh --dev "$(lattices "$dev")" --test "$(lattices "$test")" --out "$1" --lms "$lms" --ngram "$ngram" \
    --dev-ref "data/${corpus}_text_$dev" --test-ref "data/${corpus}_text_$test" \
    --device "${device:-cpu}" --max-unknown "$max_unknown" --first "$(newest "$decoded/nbest-$test-"*fast_beam_search*.jsonl.gz)" "${@:2}"
}
