# What the scripts here share: options as Kaldi's utils/parse_options.sh takes them, path.sh, the command rescore.
# A script sets its options as variables and sources this file; what is not an option stands in `positional` then.

. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../shared/bash.sh"

say() { echo "${0##*/}: $*" >&2; }

fail() {
  say "$*"
  exit 1
}

config=
for ((k = 1; k < $#; k++)); do  # files that set options, which those of the command line come after
  if [ "${!k}" = --config ]; then
    config=${@:k+1:1}
    [ -r "$config" ] || fail "--config: $config is not there, or cannot be read"
    . "$(readlink -f "$config")"
  fi
done
positional=()
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --*) name=${1#--}; name=${name//-/_}
      [[ $name =~ ^[a-zA-Z][a-zA-Z0-9_]*$ && -n ${!name+set} ]] || fail "invalid option $1; see --help"
      [ $# -ge 2 ] || fail "$1 needs a value"
      check_value "$1" "$2" "${!name}"
      printf -v "$name" %s "$2"
      shift ;;
    *) positional+=("$1") ;;
  esac
  shift
done

if [ -f ./path.sh ]; then
  set +eu  # it may use what is not set
  . ./path.sh
  set -eu
fi
here=$(dirname "$(readlink -f "$0")")
if ! command -v rescore > /dev/null; then  # the environment of the repository
  for folder in "$here"/../../../.venv311 "$here"/../../../.venv; do PATH=$folder/bin:$PATH; done
fi
command -v rescore > /dev/null || fail "the command rescore is not on the PATH: install the package"
