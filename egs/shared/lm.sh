# What the recipes of LMs share; sourced after recipe.sh.  A recipe sets the options device, world_size (GPUs; on the CPU,
# processes) and train_options: more options of every training, such as "--train optimizer=sgd --train lr=0.1".

train_lm() {  # train_lm CONF FOLDER [OPTION...]: the LM of conf/CONF.yaml; a training that was stopped is continued
  local more=()
  read -ra more <<< "$train_options"
  once "$2/.done" ./train.py --conf "conf/$1.yaml" --out "$2" --device "$device" --world-size "$world_size" "${@:3}" \
    "${more[@]}"
}

ngram_and_counts() {  # ngram_and_counts FOLDER ORDER TEXTS [OPTION...]: FOLDER/ORDERgram.arpa and FOLDER/counts.txt.gz
  local folder=$1 order=$2 text texts=()
  for text in $3; do texts+=(--text "$text"); done
  once "$folder/.counts.done" rescore count "${texts[@]}" --out "$folder/counts.txt.gz"
  once "$folder/.ngram.done" rescore train-ngram "${texts[@]}" --order "$order" --out "$folder/${order}gram.arpa" \
    --discount-fallback "${@:4}"
}

vocabulary() {  # vocabulary COUNTS N: the N most frequent words of the counts (rescore count)
  zcat "$1" | awk 'NF == 2' | LC_ALL=C sort -k1,1nr -k2,2 | awk -v n="$2" 'NR <= n { print $2 }'
}

perplexities() {  # perplexities FOLDER TEST VALID LM...: of TEST: alone, with the n-gram, on the tail of FOLDER/counts.txt.gz
  # An LM is a FOLDER or NAME=FOLDER, or a mixture such as ngram,transformer,lstm of some of them and of the n-gram.  Weights are found
  # by EM on VALID.
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
  rescore ppl "${lms[@]}" --ngram "$ngram" --text "$test" --tune-mix "$valid" "${mixtures[@]}" --tail "$folder/counts.txt.gz"
}
