# Adapting an LM to a little text of another domain (Bayesian Transformer paper, Table 2): what the run.sh of earnings21/LM
# and pitt/LM share; sourced in place of recipe.sh, after the recipe's own options: source, sizes, and how `prepare` works.
# Options beside those of lm.sh: the grid, of which data/valid.txt chooses, and seeds.
rates="0.0005 0.002"     # learning rates tried
dropouts="0.0 0.2"       # tried in fine-tuning
sigmas=0.01              # posterior standard deviations at the start tried in Bayesian adaptation
seeds="1 2 3"            # the grid has the first; what is chosen is trained with the others, too
. "$(dirname "${BASH_SOURCE[0]}")/lm.sh"

adapt() {  # adapt CONF SOURCE SIZE RATE SEED FOLDER [OPTION...]
  local every=8
  if [ "$3" = all ]; then every=25; fi
  train_lm "$1" "$6" --init "$2" --text "data/$3/train.txt" --train "lr=$4" --train "steps=$((every * 12))" \
    --train "valid_every=$every" --train "seed=$5" "${@:7}"
}

try() {  # try KIND CONF SOURCE SETTING VALUE...: every rate with every value in exp/SIZE/KIND/tried, the best on valid with all seeds in exp/SIZE/KIND/SEED
  # SIZE and SEED in SOURCE stand for those.
  local kind=$1 conf=$2 from=$3 setting=$4 first=${seeds%% *} size rate value seed best folder
  for size in $sizes; do
    folder=exp/$size/$kind from=${3//SIZE/$size}
    for rate in $rates; do for value in "${@:5}"; do
      adapt "$conf" "${from//SEED/$first}" "$size" "$rate" "$first" "$folder/tried/$rate-$value" --set "$setting=$value"
    done; done
    best=$(rescore lms --best "$folder/tried"/*)
    best=$(basename "$best")
    for seed in $seeds; do
      if [ "$seed" = "$first" ]; then ln -sfn "tried/$best" "$folder/$seed"; continue; fi
      adapt "$conf" "${from//SEED/$seed}" "$size" "${best%%-*}" "$seed" "$folder/$seed" --set "$setting=${best#*-}"
    done
  done
}

fine_tuning() {  # and as many steps more from where it ends, which Bayesian adaptation from there has to beat
  try tuned tuned "$source" dropout $dropouts
  try tuned-twice tuned exp/SIZE/tuned/SEED dropout $dropouts
}

bayesian_adaptation() {  # the prior from the source LM, and from the fine-tuned one
  try bayes bayes "$source" sigma $sigmas
  try tuned-then-bayes bayes exp/SIZE/tuned/SEED sigma $sigmas
}

adapted_perplexities() {
  local size kind seed lms
  for size in $sizes; do
    lms=("source=$source")
    for kind in tuned bayes tuned-twice tuned-then-bayes; do
      for seed in $seeds; do lms+=("$kind.$seed=exp/$size/$kind/$seed"); done
    done
    ngram=data/$size/4gram.arpa results=exp/$size/ppl.json perplexities "data/$size" data/test.txt data/valid.txt "${lms[@]}" > "exp/$size/ppl.txt"
    log "words of target text: $size"
    ../../shared/over_seeds.py "exp/$size/ppl.json" --against tuned --against tuned-twice --out "exp/$size/ppl.md"
  done
}

adaptation_stages() {  # stages 0 to 3 of run.sh; the recipe has a function `prepare`
  run_stage 0 "data" prepare
  run_stage 1 "fine-tuning, and twice as long: every learning rate with every dropout, and seeds (a minute or two a run of a small LM on a CPU core)" fine_tuning exp
  run_stage 2 "Bayesian adaptation" bayesian_adaptation exp
  run_stage 3 "perplexity of test, means over seeds: the source, and what is best on valid" adapted_perplexities
}
