# The recipes use what bash 3.2, that of macOS, has not: associative arrays, empty ones under `set -u`.
if ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] < 404)); then
  echo "${0##*/}: found bash $BASH_VERSION, expected 4.4 or newer; put a newer one first on the PATH (macOS: brew install bash)" >&2
  exit 2
fi

check_value() {  # check_value OPTION VALUE DEFAULT: `fail` is the script's, or what it sources has it
  local number='^[0-9]+([.][0-9]+)?$' whole='^-?[0-9]+$' expected=
  if [[ $1 == --seeds ]]; then
    [[ $2 =~ ^[0-9]+(\ [0-9]+)*$ ]] || expected="whole numbers, such as '1 2 3'"
  elif [[ $1 == --sizes ]]; then
    [[ $2 =~ ^([0-9]+|all)(\ ([0-9]+|all))*$ ]] || expected="numbers of words, or all, such as '10000 all'"
  elif [[ $3 == true || $3 == false ]]; then
    [[ $2 == true || $2 == false ]] || expected="true or false"
  elif [[ $1 == --stage || $1 == --stop-stage ]]; then
    [[ $2 =~ $whole ]] || expected="a whole number"
  elif [[ $3 =~ $whole || $1 == --weight ]]; then
    [[ $2 =~ $number ]] || expected="a number"
  fi
  [ -z "$expected" ] || fail "$1: found '$2', expected $expected"
}
