#!/bin/sh
# Prints the path of a CPython 3.10 that can make a virtual environment and compile extensions, or one error.
# Looks for: python3.10 on the PATH that really runs; pyenv's versions; uv (fetched into .venv-uv if there is none).
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
uv_version=0.13.8

check='
import ensurepip, os, platform, sys, sysconfig, venv
assert sys.version_info[:2] == (3, 10) and platform.python_implementation() == "CPython"
assert os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))'

try() {
    if [ -n "$1" ] && "$1" -c "$check" </dev/null >/dev/null 2>&1; then
        "$1" -c 'import sys; print(sys.executable)' </dev/null
        exit 0
    fi
}

try_path() {
    saved_ifs=$IFS
    IFS=:
    for folder in $PATH; do
        IFS=$saved_ifs
        if [ -x "$folder/python3.10" ]; then try "$folder/python3.10"; fi
    done
    IFS=$saved_ifs
}

try_pyenv() {
    pyenv_root=$(pyenv root 2>/dev/null) || pyenv_root=${PYENV_ROOT:-${HOME:-}/.pyenv}
    for python in "$pyenv_root"/versions/3.10*/bin/python; do try "$python"; done
}

fetch_uv() {
    for python in python3 python3.14 python3.13 python3.12 python3.11 python3.9 python3.8; do
        "$python" -c 'import sys; assert sys.version_info >= (3, 8)' </dev/null >/dev/null 2>&1 || continue
        "$python" "$root/tools/fetch.py" uv "uv-$uv_version-py3-none-manylinux_2_17_x86_64" \
            "uv-$uv_version.data/scripts/uv" "$root/.venv-uv/uv" </dev/null >&2 || return 1
        chmod +x "$root/.venv-uv/uv" && return 0
    done
    return 1
}

try_uv() {
    if command -v uv >/dev/null 2>&1; then
        uv=uv
    else
        echo "No python3.10 and none of pyenv; trying uv to install one into .venv-uv ..." >&2
        [ -x "$root/.venv-uv/uv" ] || fetch_uv || return
        uv=$root/.venv-uv/uv
    fi
    export UV_PYTHON_INSTALL_DIR="$root/.venv-uv/python" UV_PYTHON_PREFERENCE=only-managed UV_HTTP_TIMEOUT=60
    "$uv" python install 3.10 </dev/null >/dev/null 2>&1
    try "$("$uv" python find 3.10 </dev/null 2>/dev/null)"
}

try_path
try_pyenv
try_uv
cat >&2 <<'MESSAGE'
No usable CPython 3.10 found (k2 1.23.4 and torch 1.13.1 need it, with its headers and the module venv). Get one by any of:
  - the system's packages:  apt install python3.10 python3.10-venv python3.10-dev   (Ubuntu 22.04, deadsnakes elsewhere)
  - pyenv:                  pyenv install 3.10
  - uv:                     uv python install 3.10
  - conda:                  conda create -n py310 python=3.10, then put its bin folder on the PATH
then run make again.
MESSAGE
exit 1
