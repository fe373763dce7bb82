# The recipes use what bash 3.2, that of macOS, has not: associative arrays, empty ones under `set -u`.
if ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] < 404)); then
  echo "${0##*/}: found bash $BASH_VERSION, expected 4.4 or newer; put a newer one first on the PATH (macOS: brew install bash)" >&2
  exit 2
fi
