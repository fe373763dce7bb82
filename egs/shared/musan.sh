#!/usr/bin/env bash
# Music and noise of MUSAN (11 GB) as cuts, OUT/musan_cuts.jsonl.gz, for the training of recognisers.
#
# Usage: musan.sh [--dl-dir DIR] [--out DIR]
set -eou pipefail

stage=0
stop_stage=1
dl_dir=download  # musan/{music,noise,speech}
out=data
. "$(dirname "$0")/recipe.sh"

download() { fetch "$dl_dir/musan" lhotse download musan "$dl_dir"; }

cuts() {
  local part
  for part in music noise speech; do need "$dl_dir/musan/$part" "stage 0 downloads it; or give --dl-dir"; done
  once "$out/.musan_manifests.done" lhotse prepare musan "$dl_dir/musan" "$out/manifests"
  for part in music noise; do
    once "$out/.musan_$part.done" lhotse cut simple --force-eager \
      -r "$out/manifests/musan_recordings_$part.jsonl.gz" "$out/manifests/musan_cuts_$part.jsonl.gz"
  done
  once "$out/.musan.done" lhotse combine "$out"/manifests/musan_cuts_{music,noise}.jsonl.gz "$out/musan_cuts.jsonl.gz"
}

run_stage 0 "download of MUSAN (11 GB; an hour)" download "$dl_dir/musan"
run_stage 1 "cuts of MUSAN (minutes, 1 MB)" cuts "$out/musan_cuts.jsonl.gz"
