#!/usr/bin/env bash
# WikiText-2 (Merity et al. 2017): text, a 5-gram and counts, in data/.
#
# Usage: ./prepare.sh [--dl-dir DIR] [--stage N] [--stop-stage N]
set -eou pipefail
cd "$(dirname "$0")"

stage=0
stop_stage=2
dl_dir=download  # wikitext-2/wiki.{train,valid,test}.tokens, or where the archive is brought to
. ../../shared/recipe.sh
. ../../shared/ngram.sh

get() {  # what is no zip, such as a page that says what is wrong, is fetched again the next time
  curl -fL --retry 3 -o "$1" https://wikitext.smerity.com/wikitext-2-v1.zip && python3 -m zipfile -t "$1" > /dev/null
}

unpack() {  # from the author's own address; the first one, s3.amazonaws.com/research.metamind.io, answers no more
  local archive=$dl_dir/wikitext-2-v1.zip
  fetch "$archive" get "$archive"
  python3 -m zipfile -t "$archive" > /dev/null 2>&1 || fail "$archive is no zip archive, or damaged; remove it, and it is fetched again"
  python3 -m zipfile -e "$archive" "$dl_dir" && (cd "$dl_dir/wikitext-2" && sha1sum --check --quiet -) < wikitext-2.sha1
}

download() {
  local elsewhere="files of wikitext-2-v1 with the sums of wikitext-2.sha1; web.archive.org has \
https://s3.amazonaws.com/research.metamind.io/wikitext/wikitext-2-v1.zip"
  fetch "$dl_dir/wikitext-2" unpack
}

texts() {  # lines without a word are left out; words are as they stand: @-@, <unk>, = Heading =
  local part
  for part in train valid test; do
    need "$dl_dir/wikitext-2/wiki.$part.tokens" "stage 0 downloads it; or give --dl-dir"
  done
  mkdir -p data
  for part in train valid test; do awk NF "$dl_dir/wikitext-2/wiki.$part.tokens" > "data/$part.txt"; done
}

ngrams() { ngram_and_counts data 5 data/train.txt; }

run_stage 0 "download (4.5 MB; seconds)" download "$dl_dir"
run_stage 1 "text (seconds, 13 MB)" texts data
run_stage 2 "5-gram, counts (an estimate: 10 seconds, 250 MB)" ngrams data
