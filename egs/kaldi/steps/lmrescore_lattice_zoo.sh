#!/usr/bin/env bash
# Lattice rescoring with an LM of the zoo, with the arguments and files of Kaldi's lmrescore_lattice_pytorchnn.sh.
#
# Usage: lmrescore_lattice_zoo.sh [options] <old-lang-dir> <lm> <vocab> <data-dir> <input-decode-dir> <output-decode-dir>
#   <lm>                            a model folder or a name of the zoo; it has its own words, <vocab> is not read
#   --inv-acwt <W>                  LM weight of pruning and of the search (10)
#   --weight <W>                    interpolation weight of the LM with the old one (0.8)
#   --beam <B>                      lattices are pruned to this first (5)
#   --context <N>                   histories that end in the same N words are merged into the best of them (3)
#   --stage <N>                     begin with 2: the LM's costs in the lattices, 5: scoring (0)
#   --skip-scoring (true|false), --cmd <run.pl|queue.pl [opts]>
#   --old-lm <FILE>                 ARPA or KenLM binary file of the old LM, in place of <old-lang-dir>/G.fst
# --model-type, --embedding-dim, --hidden-dim, --nlayers, --nhead and --oov-symbol are taken, but the LM knows them;
# --epsilon is taken: how far lattices are expanded is said by --context, and the best path has exact costs.
set -eou pipefail

inv_acwt=10
weight=0.8
beam=5
context=3
stage=0
skip_scoring=false
cmd=run.pl
old_lm=
model_type= embedding_dim= hidden_dim= nlayers= nhead= oov_symbol= epsilon=
. "$(dirname "$(readlink -f "$0")")/decode_dir.sh"
pruned=$dir/lattice_expansion
mkdir -p "$pruned"
# graph + weight * (new - old), which is what the lattices written have as graph cost
echo "{\"scales\": {\"am\": 1, \"graph\": $inv_acwt, \"old-ngram\": -$(LC_ALL=C awk "BEGIN {print $inv_acwt * $weight}")," \
  "\"nn\": $(LC_ALL=C awk "BEGIN {print $inv_acwt * $weight}")}}" > "$dir/weights.json"

if [ "$stage" -le 1 ]; then
  say "pruning"
  jobs "$dir/log/prune.JOB.log" rescore lattice prune "kaldi:$indir/lat.JOB.gz" "kaldi:$pruned/lat.JOB.gz" \
    --words "$lang/words.txt" --beam "$(LC_ALL=C awk "BEGIN {print $inv_acwt * $beam}")" --scale am=1 --scale "graph=$inv_acwt"
fi
if [ "$stage" -le 4 ]; then
  say "costs of $lm in place of those of $old_lm"
  jobs "$dir/log/nnlmrescore.JOB.log" rescore lattice rescore "kaldi:$pruned/lat.JOB.gz" \
    "kaldi:$dir/lat.JOB.gz?weights=$dir/weights.json" --words "$lang/words.txt" --old-ngram "$old_lm" --lm "nn=$lm" \
    --weights "$dir/weights.json" --context "$context"
fi
score "$data" "$lang" "$dir"
