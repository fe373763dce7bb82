# What the stages of prepare.sh in recipes of LMs share; sourced after recipe.sh.

ngram_and_counts() {  # ngram_and_counts FOLDER ORDER TEXTS [OPTION...]: FOLDER/ORDERgram.arpa and FOLDER/counts.txt.gz
  local folder=$1 order=$2 text texts=()
  for text in $3; do texts+=(--text "$text"); done
  forget_other_texts "$folder" "$3"
  once "$folder/.counts.done" rescore count "${texts[@]}" --out "$folder/counts.txt.gz"
  once "$folder/.ngram.done" rescore train-ngram "${texts[@]}" --order "$order" --out "$folder/${order}gram.arpa" \
    --discount-fallback "${@:4}"
}

forget_other_texts() {  # forget_other_texts FOLDER TEXTS: counts and an n-gram of other texts, of which FOLDER/.texts has the sum, are made again
  local folder=$1 text sum
  for text in $2; do need "${text#kaldi:}" "an earlier stage writes it"; done
  sum=$(for text in $2; do cat "${text#kaldi:}"; done | cksum)
  if [ -e "$folder/.texts" ] && [ "$(cat "$folder/.texts")" != "$sum" ]; then
    log "$folder: another text than before; counts and n-gram are made again, LMs that were trained on it (exp) are not: remove those"
    rm -f "$folder/.counts.done" "$folder/.ngram.done"
  fi
  echo "$sum" > "$folder/.texts"
}

vocabulary() {  # vocabulary COUNTS N: the N most frequent words of the counts (rescore count)
  zcat "$1" | awk 'NF == 2' | LC_ALL=C sort -k1,1nr -k2,2 | awk -v n="$2" 'NR <= n { print $2 }'
}

small_texts() {  # the first words of data/train.txt, as many as each of $sizes says, n-grams and counts of them
  local size
  for size in $sizes; do
    mkdir -p "data/$size"
    awk -v n="$size" '{ print; words += NF } n != "all" && words >= n + 0 { exit }' data/train.txt > "data/$size/train.txt"
    ngram_and_counts "data/$size" 4 "data/$size/train.txt"
  done
}
