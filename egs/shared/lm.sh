# What the run.sh of all recipes of LMs share; sourced in place of recipe.sh, after the recipe's own options.
# Options: --device cpu|cuda (of trainings and perplexities), --world-size N (GPUs; on the CPU, processes), and
# --train-options, more options of every training, such as "--train optimizer=sgd --train lr=0.1".
device=cpu
world_size=1
train_options=
max_unknown=0.5  # share of a text's words that an LM may not know
. "$(dirname "${BASH_SOURCE[0]}")/recipe.sh"

train_lm() {  # train_lm CONF FOLDER [OPTION...]: the LM of conf/CONF.yaml; a training that was stopped is continued
  local more=()
  read -ra more <<< "$train_options"
  once "$2/.done" ./train.py --conf "conf/$1.yaml" --out "$2" --device "$device" --world-size "$world_size" "${@:3}" \
    "${more[@]}"
}

perplexities() {  # perplexities FOLDER TEST VALID LM...: of TEST: alone, with the n-gram, on the tail of FOLDER/counts.txt.gz
  # An LM is a FOLDER or NAME=FOLDER, or a mixture such as ngram,transformer,lstm of some of them and of the n-gram.  Weights are found
  # by EM on VALID.  With `results` set, JSON goes there, too.
  local folder=$1 test=$2 valid=$3 lm lms=() mixtures=()
  for lm in "${@:4}"; do
    if [[ $lm == *,* ]]; then
      mixtures+=(--mixture "$lm")
    else
      lms+=(--lm "$lm")
      lm=${lm%%=*}
      mixtures+=(--mixture "ngram,${lm##*/}")
    fi
  done
  rescore ppl "${lms[@]}" --ngram "$ngram" --text "$test" --tune-mix "$valid" "${mixtures[@]}" --tail "$folder/counts.txt.gz" \
    --device "$device" --max-unknown "$max_unknown" ${results:+--json "$results"}
}
