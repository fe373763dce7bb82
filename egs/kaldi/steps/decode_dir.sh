# What the drop-ins share: their six arguments, jobs as run.pl runs them, decoding folders, scoring; sourced after the options.
# Sets lang, lm, data, indir, dir, old_lm and nj.
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/zoo.sh"
[ ${#positional[@]} = 6 ] || fail "expected 6 arguments, found ${#positional[@]}; see --help"
lang=${positional[0]} lm=${positional[1]} data=${positional[3]} indir=${positional[4]} dir=${positional[5]}
[[ $lm != */* || $lm == *:* || -e $lm ]] || fail "expected the LM $lm to exist: a model folder or file, or a name such as transfornn"
[[ $cmd == run.pl* ]] || command -v "${cmd%% *}" > /dev/null || fail "--cmd: no command '${cmd%% *}' is on the PATH"

for_shell() {  # for_shell ARGUMENT: as run.pl and queue.pl need it, which give a shell <unk>, without a blank, as it is
  if [[ $1 =~ [[:space:]] ]]; then
    printf %s "$1"
  else
    printf %s "$1" | sed "s/[][\"'\`\$\\*?#~|&;<>(){}!]/\\\\&/g"
  fi
}

jobs() {  # jobs LOG COMMAND...: for each of the $nj jobs, JOB being its number, by $cmd if that is there
  local log=$1 job argument quoted=()
  shift
  if command -v "${cmd%% *}" > /dev/null; then
    for argument; do quoted+=("$(for_shell "$argument")"); done
    $cmd "JOB=1:$nj" "$log" "${quoted[@]}" || exit 1
    return
  fi
  mkdir -p "$(dirname "$log")"
  for job in $(seq "$nj"); do
    "${@//JOB/$job}" > "${log//JOB/$job}" 2>&1 || { cat "${log//JOB/$job}" >&2; fail "job $job failed"; }
  done
}

find_old_lm() {  # sets old_lm where it is not given: that of the lang folder $1
  if [ -z "$old_lm" ] && [ -f "$1/G.carpa" ]; then
    fail "$1/G.carpa is not read: give the ARPA file that it was made of by --old-lm FILE"
  fi
  old_lm=${old_lm:-$1/G.fst}
  [ -f "$old_lm" ] || fail "expecting $old_lm to exist, or an ARPA file by --old-lm FILE"
}

start_decode_dir() {  # start_decode_dir INDIR DIR: num_jobs, and beside the folder what scoring looks for there; sets nj
  local name job
  for name in "$1/lat.1.gz" "$1/num_jobs" "$lang/words.txt"; do [ -f "$name" ] || fail "expected file $name to exist"; done
  [ ! "$1" -ef "$2" ] || fail "$1 is the folder of the input: name another for the output"
  nj=$(cat "$1/num_jobs")
  [[ $nj =~ ^[1-9][0-9]*$ ]] || fail "$1/num_jobs: found '$nj', expected the number of jobs"
  for name in "$1"/lat.*.gz; do
    job=${name##*/lat.}
    job=${job%.gz}
    if [[ $job =~ ^[0-9]+$ ]] && [ "$job" -gt "$nj" ]; then say "$name is left out: $1/num_jobs says $nj"; fi
  done
  mkdir -p "$2/log"
  cp "$1/num_jobs" "$2/num_jobs"
  for name in final.mdl frame_shift frame_subsampling_factor; do
    if [ -e "$1/../$name" ] && [ ! -e "$2/../$name" ]; then ln -s "$(readlink -f "$1/../$name")" "$2/../$name"; fi
  done
}

remove_later_jobs() {  # remove_later_jobs DIR: what an earlier run of more than $nj jobs has left; scoring reads all that is there
  local path job
  for path in "$1"/{lat,nbest1,lattice_expansion/lat}.*.gz "$1"/archives.*; do
    job=${path##*/}
    job=${job#*.}
    job=${job%.gz}
    if [[ $job =~ ^[0-9]+$ ]] && [ "$job" -gt "$nj" ]; then rm -r "$path"; fi
  done
}

score() {  # score DATA LANG DIR, by the recipe's own script if there is one
  if "$skip_scoring"; then
    say "not scoring because --skip-scoring was given"
  elif [ -x local/score.sh ]; then
    local/score.sh --cmd "$cmd" "$1" "$2" "$3" || fail "scoring failed (ignore by --skip-scoring true)"
  else
    "$here"/score_zoo.sh "$1" "$2" "$3"
  fi
}

find_old_lm "$lang"
start_decode_dir "$indir" "$dir"
remove_later_jobs "$dir"
