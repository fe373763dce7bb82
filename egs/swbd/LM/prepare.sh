#!/usr/bin/env bash
# Switchboard and Fisher: text, the most frequent words, a 4-gram and counts, in data/; the test set is eval2000's Switchboard.
#
# Usage: ./prepare.sh --swbd-dir DIR --fisher-dirs "DIR DIR" --eval2000-dir DIR [--stage N] [--stop-stage N]
set -eou pipefail
cd "$(dirname "$0")"

stage=0
stop_stage=1
swbd_dir=           # swb_ms98_transcriptions: .../sw2001A-ms98-a-trans.text, the transcripts of LDC97S62
fisher_dirs=        # LDC2004T19 and LDC2005T19: .../trans/000/fe_03_00001.txt
eval2000_dir=       # LDC2002T43: .../hub5e00.english.000405.stm
held_out=10000      # utterances of Switchboard that are kept to validate on, as in Kaldi's recipe
vocab_size=30000    # words
. ../../shared/recipe.sh
. ../../shared/ngram.sh
isip="www.openslr.org/resources/5/switchboard_word_alignments.tar.gz has them"
need "${swbd_dir:-(empty)}" "give --swbd-dir, the folder of Switchboard's transcripts of ISIP ($isip; audio: LDC97S62)"
for folder in ${fisher_dirs:-(empty)}; do
  need "$folder" "give --fisher-dirs, the folders of LDC2004T19 and LDC2005T19 (catalog.ldc.upenn.edu)"
done
need "${eval2000_dir:-(empty)}" "give --eval2000-dir, the folder of LDC2002T43 (catalog.ldc.upenn.edu)"
stm=$(find -L "$eval2000_dir" -name 'hub5e00.english*.stm' | head -n 1)
[ -n "$stm" ] || fail "$eval2000_dir has no hub5e00.english.000405.stm: give --eval2000-dir, the folder of LDC2002T43"

texts() {
  mkdir -p data
  once data/.swbd.done rescore transcripts swbd "$swbd_dir" --case lower --out data/swbd.txt
  once data/.fisher.done rescore transcripts fisher $fisher_dirs --case lower --out data/fisher.txt
  [ "$(wc -l < data/swbd.txt)" -gt "$held_out" ] || fail "data/swbd.txt: found $(wc -l < data/swbd.txt) utterances, expected more than" \
    "the $held_out that validate: is $swbd_dir whole?  If so, give --held-out a smaller number; then remove data/.swbd.done"
  head -n "$held_out" data/swbd.txt > data/valid.txt
  { tail -n +$((held_out + 1)) data/swbd.txt; cat data/fisher.txt; } > data/train.txt
  awk '/^sw_/' "$stm" > data/eval2000_swbd.stm
  rescore transcripts stm data/eval2000_swbd.stm --case lower --out data/test.txt
}

ngrams() {
  forget_other_texts data data/train.txt
  once data/.counts.done rescore count --text data/train.txt --out data/counts.txt.gz
  vocabulary data/counts.txt.gz "$vocab_size" > data/vocab.txt
  ngram_and_counts data 4 data/train.txt --vocab data/vocab.txt
}

run_stage 0 "text (an estimate: 5 minutes, 300 MB)" texts data
run_stage 1 "words, 4-gram, counts (an estimate: 15 minutes, 1 GB)" ngrams data
