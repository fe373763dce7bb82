#!/usr/bin/env bash
# Word error rates of a decoding folder as Kaldi's score.sh has them, where there is no Kaldi: <dir>/wer_LMWT_WIP and
# <dir>/scoring_kaldi/best_wer.
#
# Usage: score_zoo.sh [options] <data-dir> <lang-dir> <decode-dir>
#   --min-lmwt (9), --max-lmwt (20), --word-ins-penalty (0.0,0.5,1.0), --cmd (taken, not used)
set -eou pipefail

min_lmwt=9
max_lmwt=20
word_ins_penalty=0.0,0.5,1.0
cmd=run.pl
. "$(dirname "$(readlink -f "$0")")/zoo.sh"
[ ${#positional[@]} = 3 ] || fail "expected 3 arguments, found ${#positional[@]}; see --help"
data=${positional[0]} lang=${positional[1]} dir=${positional[2]}

for name in ref hyp output; do
  if [ -x "local/wer_${name}_filter" ]; then say "local/wer_${name}_filter is not used: words are counted as they are"; fi
done
files=()  # of these weights; those of an earlier scoring may lie beside them
lmwts=$(seq "$min_lmwt" "$max_lmwt")
[ -n "$lmwts" ] || fail "--min-lmwt $min_lmwt is more than --max-lmwt $max_lmwt"
for lmwt in $lmwts; do
  for wip in ${word_ins_penalty//,/ }; do
    rates=$(rescore --quiet lattice best-path "kaldi:$dir" --words "$lang/words.txt" --lmwt "$lmwt" --wip "$wip" \
      --ref "$data/text")
    echo "$rates" > "$dir/wer_${lmwt}_$wip"
    files+=("$dir/wer_${lmwt}_$wip")
  done
done
mkdir -p "$dir/scoring_kaldi"
grep -H WER "${files[@]}" | awk -F: '{print $2, $1}' | LC_ALL=C sort -n -k 2,2 -s | head -n 1 | tee "$dir/scoring_kaldi/best_wer"
