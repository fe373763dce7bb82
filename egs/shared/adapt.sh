# Adapting an LM to a little text of another domain (Bayesian Transformer paper, Table 2): what the run.sh of earnings21/LM
# and pitt/LM share; sourced in place of recipe.sh, after the recipe's own options: source, sizes, and how `prepare` works.
# Options beside those of lm.sh: the grid, of which data/valid.txt chooses.
rates="0.0005 0.002"     # learning rates tried
dropouts="0.0 0.2"       # tried in fine-tuning
sigmas=0.01              # posterior standard deviations at the start tried in Bayesian adaptation
. "$(dirname "${BASH_SOURCE[0]}")/lm.sh"

adapt() {  # adapt CONF SOURCE SIZE RATE NAME [OPTION...]
  local every=8
  if [ "$3" = all ]; then every=25; fi
  train_lm "$1" "exp/$3/$5" --init "$2" --text "data/$3/train.txt" --train "lr=$4" --train "steps=$((every * 12))" \
    --train "valid_every=$every" "${@:6}"
}

best() {  # best SIZE PREFIX: the run with the lowest validation loss
  rescore lms --best "exp/$1/$2"*
}

fine_tuning() {
  local size rate dropout
  for size in $sizes; do for rate in $rates; do for dropout in $dropouts; do
    adapt tuned "$source" "$size" "$rate" "tuned-$rate-$dropout" --set "dropout=$dropout"
  done; done; done
}

bayesian_adaptation() {  # the prior from the source LM, and from the best fine-tuned one
  local size rate sigma tuned
  for size in $sizes; do
    tuned=$(best "$size" tuned-)
    for rate in $rates; do
      for sigma in $sigmas; do
        adapt bayes "$source" "$size" "$rate" "bayes-$rate-$sigma" --set "sigma=$sigma"
      done
      adapt bayes "$tuned" "$size" "$rate" "tuned.bayes-$rate"
    done
  done
}

adapted_perplexities() {
  local size
  for size in $sizes; do
    log "words of target text: $size"
    ngram=data/$size/4gram.arpa perplexities "data/$size" data/test.txt data/valid.txt "source=$source" \
      "tuned=$(best "$size" tuned-)" "bayes=$(best "$size" bayes-)" "tuned-then-bayes=$(best "$size" tuned.bayes-)"
  done | tee exp/ppl.txt
}

adaptation_stages() {  # stages 0 to 3 of run.sh; the recipe has a function `prepare`
  run_stage 0 "data" prepare
  run_stage 1 "fine-tuning: every learning rate with every dropout (2 minutes a run of a small LM on a CPU core)" fine_tuning exp
  run_stage 2 "Bayesian adaptation (2 minutes a run)" bayesian_adaptation exp
  run_stage 3 "perplexity of test: the source, and the runs that are best on valid" adapted_perplexities
}
