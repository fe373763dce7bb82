#!/usr/bin/env bash
# N-best rescoring with an LM of the zoo, with the arguments and files of Kaldi's lmrescore_nbest_pytorchnn.sh.
#
# Usage: lmrescore_nbest_zoo.sh [options] <old-lang-dir> <lm> <vocab> <data-dir> <input-decode-dir> <output-decode-dir>
#   <lm>                            a model folder or a name of the zoo; it has its own words, <vocab> is not read
#   --N <N>                         hypotheses an utterance (10)
#   --inv-acwt <W>                  LM weight for the lists (10)
#   --weight <W>                    interpolation weight of the LM with the old one (0.8)
#   --use-phi (true|false)          take old costs out as lmrescore.sh has put them in (false)
#   --keep-ali (true|false)         alignments (true)
#   --stage <N>                     begin with 6: the LM's costs, 7: interpolation, 8: lattices, 9: scoring (1)
#   --test (true|false)             lattices with the old costs, to compare (false)
#   --skip-scoring (true|false), --cmd <run.pl|queue.pl [opts]>
#   --old-lm <FILE>                 ARPA or KenLM binary file of the old LM, in place of <old-lang-dir>/G.fst
#   --case, --delete, --split-words what is done to words for the LM alone, as in: rescore kaldi score
#   --drop <"WORD...">              words that are left out for the LM alone, such as "[noise] [laughter]"
# --model-type, --embedding-dim, --hidden-dim, --nlayers, --nhead and --oov-symbol are taken, but the LM knows them.
set -eou pipefail

N=10
inv_acwt=10
weight=0.8
use_phi=false
keep_ali=true
stage=1
test=false
skip_scoring=false
cmd=run.pl
old_lm=
case=
delete=
split_words=
drop=
model_type= embedding_dim= hidden_dim= nlayers= nhead= oov_symbol=
. "$(dirname "$(readlink -f "$0")")/decode_dir.sh"
options=()
if "$use_phi"; then options+=(--phi); fi
if ! "$keep_ali"; then options+=(--no-ali); fi
text=()
for name in case delete split_words; do
  if [ -n "${!name}" ]; then text+=("--${name//_/-}" "${!name}"); fi
done
read -ra words <<< "$drop"
for word in "${words[@]}"; do text+=(--drop "$word"); done

if [ "$stage" -le 5 ]; then
  say "N-best lists, and archives with the old LM's costs"
  jobs "$dir/log/make_archives.JOB.log" rescore kaldi archives "$indir/lat.JOB.gz" "$dir" --job JOB -n "$N" \
    --lmwt "$inv_acwt" --words "$lang/words.txt" --old-ngram "$old_lm" "${options[@]}"
fi
if "$test"; then
  jobs "$dir/log/test.JOB.log" rescore kaldi lattices "$dir" --job JOB --costs lmwt.withlm
  exit 0
fi
if [ "$stage" -le 6 ]; then
  say "costs of $lm"
  jobs "$dir/log/compute_sentence_scores.JOB.log" rescore kaldi score "$dir/archives.JOB" --lm "$lm" "${text[@]}"
fi
if [ "$stage" -le 7 ]; then
  jobs "$dir/log/interpolate.JOB.log" rescore kaldi score "$dir/archives.JOB" --weight "$weight"
fi
if [ "$stage" -le 8 ]; then
  say "lattices"
  jobs "$dir/log/reconstruct_lattice.JOB.log" rescore kaldi lattices "$dir" --job JOB --costs "lmwt.interp.$weight"
fi
score "$data" "$lang" "$dir"
