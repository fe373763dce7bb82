# What the scripts of all recipes share.  A script sets its options as variables, sources this file, and calls its stages:
#
#   set -eou pipefail
#   cd "$(dirname "$0")"
#   stage=0
#   stop_stage=1
#   exp_dir=exp
#   . ../../shared/recipe.sh
#   speak() { asr synthesise ...; }
#   run_stage 0 "Speech (6 minutes, 1.5 GB)" speak "$exp_dir/speech"
#
# `--exp-dir DIR` then sets exp_dir, and so on for every variable that was set: where it was true or false, to one of the two, where it
# was a whole number, to a number.  `--help` prints the comment at the head, and the options with what stands beside them.

. "$(dirname "${BASH_SOURCE[0]}")/bash.sh"

log() { echo "$(date '+%Y-%m-%d %H:%M:%S') ${0##*/}: $*" >&2; }

fail() {
  log "$*"
  exit 2
}

parse_options() {
  local name script=$0
  [ -e "$script" ] || script=$OLDPWD/$0  # it was called from another folder, and went to its own
  while [ $# -gt 0 ]; do
    case $1 in
      -h | --help) print_help "$script" "${BASH_SOURCE[@]:2:${#BASH_SOURCE[@]}-3}"; exit 0 ;;
      --*) name=${1#--}; name=${name//-/_} ;;
      *) fail "found '$1', expected options such as --stage 1; see --help" ;;
    esac
    [[ $name =~ ^[a-z][a-z0-9_]*$ && -n ${!name+set} ]] || fail "there is no option $1; see --help"
    [ $# -ge 2 ] || fail "$1 needs a value"
    check_value "$1" "$2" "${!name}"
    printf -v "$name" %s "$2"
    shift 2
  done
}

print_help() {  # print_help SCRIPT SOURCED...: the head of SCRIPT; the variables that it and what it sources set before they source another
  local file line name seen=" "
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$1"
  echo $'\nOptions:'
  for file in "$@"; do
    while IFS= read -r line && [[ $line != ". "* ]]; do
      if [[ $line =~ ^([a-z][a-z0-9_]*)=([^\$]|$) && $seen != *" ${BASH_REMATCH[1]} "* ]]; then
        name=${BASH_REMATCH[1]} seen+="$name "
        if [[ $line == *" # "* ]]; then line=${line#* # }; else line=; fi
        printf '  --%s%s%s\n' "${name//_/-}" "${line:+  $line}" "${!name:+  [${!name}]}"
      fi
    done < "$file"
  done
}

in_stages() {  # in_stages NUMBER...: whether one of these stages, which the script has, is asked for
  local number asked=1
  stages+=("$@")
  for number in "$@"; do
    if [ "$stage" -le "$number" ] && [ "$stop_stage" -ge "$number" ]; then stages_run=$((stages_run + 1)) asked=0; fi
  done
  return $asked
}

run_stage() {  # run_stage NUMBER TITLE FUNCTION [OUTPUT...]: says at the end how long it took and how large OUTPUT is
  local number=$1 title=$2 function=$3 began=$SECONDS
  shift 3
  if ! in_stages "$number"; then return; fi
  log "Stage $number: $title"
  "$function"
  local size=
  if [ $# -gt 0 ]; then size=$(du -shc "$@" 2> /dev/null | tail -n 1 | cut -f 1) || true; fi
  log "Stage $number took $((SECONDS - began)) s${size:+, $size in $*}"
}

say_no_stage() {  # at the end of a script: that of its stages none was asked for
  if [ $? = 0 ] && [ ${#stages[@]} -gt 0 ] && [ "$stages_run" = 0 ]; then
    fail "no stage from --stage $stage to --stop-stage $stop_stage; there are ${stages[*]}"
  fi
}

at_least_some() {  # at_least_some COMMAND...: its exit status, but 3, some utterances left out and named, is none
  local status=0
  "$@" || status=$?
  [ "$status" = 3 ] || return "$status"
}

once() {  # once MARK.done COMMAND...: runs it unless it was run to its end before; says where that was another command
  local mark=$1 made before
  shift
  made=$(printf ' %q' "$@" | sed -E 's/ --(device|world-size|jobs|num-jobs) [^ ]+//g')
  if [ -e "$mark" ]; then
    before=$(cat "$mark")
    if [ -n "$before" ] && [ "$before" != "$made" ]; then
      log "already done: $mark, but by another command:$before; it would be$made; remove the mark to do that"
    else
      log "already done: $mark"
    fi
    return
  fi
  if [ "$(type -t "$1")" = function ]; then "$@"; else at_least_some "$@"; fi
  mkdir -p "$(dirname "$mark")"
  printf '%s' "$made" > "$mark"
}

fetch() {  # fetch FOLDER COMMAND...: a download that makes FOLDER; a FOLDER that was there before is taken as it is
  # A recipe may say in `elsewhere` where else it can be had.
  local folder=$1
  shift
  if [ -e "$folder" ] && [ ! -e "$folder.begun" ]; then
    log "already there: $folder"
    return
  fi
  mkdir -p "$(dirname "$folder")"
  touch "$folder.begun"  # what it leaves when it is killed is no whole folder
  if ! ("$@"); then
    if [ ! -e "$folder" ]; then rm "$folder.begun"; fi
    fail "$folder was not made by: $*.  Bring it there by other means${elsewhere:+ ($elsewhere)}, without $folder.begun, and start again"
  fi
  rm "$folder.begun"
}

lhotse() {  # lhotse ARGUMENTS: that of the PATH; where `prepare` cannot read a file, its traceback becomes a line
  local said what status=0
  if [ "$1" != prepare ]; then command lhotse "$@"; return; fi
  said=$(mktemp)
  command lhotse "$@" 2>&1 | tee "$said" | sed -u '/^Traceback /,$d' >&2 || status=$?
  if [ "$status" != 0 ]; then
    what=$(grep -m 1 -E '^[A-Za-z_.]+(Error|Exception): ' "$said" | sed 's/[.] Details:$//') || what="exit status $status"
  fi
  rm "$said"
  [ "$status" = 0 ] || fail "lhotse prepare $2 $3: $what; expected readable audio and text in UTF-8: replace what is damaged, or take it out, and start again"
}

need() {  # need PATH HOW: ends, saying how to get it, where PATH is not there
  [ -e "$1" ] || fail "$1 is not there: $2"
}

known_lms() {  # known_lms LM...: ends, before hours of work, where one is neither a path nor a name; a path may be made by an earlier stage
  local lm listed
  if [ $# = 0 ]; then return; fi
  listed=" $(rescore lms | tr '\n' ' ')"
  for lm in "$@"; do
    lm=${lm%%\?*}
    [[ $lm == *[/:]* || -e $lm || $listed == *" $lm "* ]] || fail "no LM is called '$lm', and there is no such file or folder; rescore lms lists names"
  done
}

sentences() {  # sentences TEXT...: those of Kaldi texts without their ids; utterances at another speed are left out
  grep -hv '^[^ ]*_sp[01]\.[0-9]* ' "$@" | cut -d ' ' -f 2-
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
stages=()     # of the script, and how many of them ran
stages_run=0
trap say_no_stage EXIT
parse_options "$@"
for folder in "${venv:-}" "$root/.venv311" "$root/.venv"; do  # where no environment is active
  if [ -n "$folder" ] && { [ "$folder" = "${venv:-}" ] || ! command -v rescore > /dev/null; }; then
    PATH=$folder/bin:$PATH
  fi
done
command -v rescore > /dev/null || fail "the command rescore is not on the PATH: install the package (README.md)"
