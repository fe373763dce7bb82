# Adapting an LM to a little text of another domain (Bayesian Transformer paper, Table 2): what earnings21/LM and pitt/LM
# share; sourced after lm.sh.  Options: source, sizes, rates, dropouts, sigmas.  The settings are chosen by data/valid.txt.

small_texts() {  # the first words of the target text, n-grams of them
  local size
  for size in $sizes; do
    mkdir -p "data/$size"
    awk -v n="$size" '{ print; words += NF } n != "all" && words >= n + 0 { exit }' data/train.txt > "data/$size/train.txt"
    ngram_and_counts "data/$size" 4 "data/$size/train.txt"
  done
}

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
