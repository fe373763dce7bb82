#!/bin/sh
# make_venv.sh FOLDER REQUIREMENTS PYTHON [HASHED] - makes or updates a virtual environment that holds exactly the pinned
# requirements and this checkout (editable).  A folder made with another Python version is made anew.
# HASHED: requirements whose files are chosen by their hashes; each must be importable at the end.
set -eu
cd "$(dirname "$0")/.."
venv=$1 requirements=$2 python=$3 hashed=${4:-}

for tool in c++ cmake; do
    command -v "$tool" >/dev/null 2>&1 && continue
    echo "No $tool on this machine; KenLM needs it.  On Debian or Ubuntu: apt install build-essential cmake" >&2
    exit 1
done

version() { "$1" -c 'import sys; print(*sys.version_info[:2])' </dev/null 2>/dev/null; }
if [ "$(version "$venv/bin/python" || true)" != "$(version "$python")" ]; then
    rm -rf "$venv"
    "$python" -m venv "$venv"
fi
rm -f "$venv/.ready"

pip() { "$venv/bin/python" -m pip --disable-pip-version-check -qq "$@" </dev/null; }
retry() {
    for attempt in 1 2 3; do
        "$@" && return 0
        echo "attempt $attempt failed: $*" >&2
        sleep 5
    done
    return 1
}

# pip 26.3 refuses the tag of k2's wheels; the pip that comes with Python 3.10 and 3.11 takes them.
case $(pip --version | cut -d' ' -f2) in
2[6-9].* | [3-9][0-9].*) retry pip install 'pip<26' ;;
esac
echo "Installing $requirements into $venv (the first time minutes, and up to 5 GB with torch's CUDA libraries) ..."
# Bytecode is written when a module is first imported: half of the time would go to thousands that never are.
retry pip install --no-compile -r "$requirements"
if [ -n "$hashed" ]; then
    packages=$(sed -n 's/^\([a-z0-9_]*\)==.*/\1/p' "$hashed")
    for package in $packages; do
        # A file for another Python may be there under the same version: pip would take it for the right one.
        "$venv/bin/python" -c "import $package" >/dev/null 2>&1 || retry pip install --no-compile --no-deps --force-reinstall -r "$hashed"
        "$venv/bin/python" -c "import $package" && continue
        echo "$package was installed from $hashed, but cannot be imported: see the error above" >&2
        exit 1
    done
fi
exec 9<tools/make_venv.sh
if command -v flock >/dev/null 2>&1; then flock 9; fi  # two that are made side by side both write into this folder
retry pip install --no-deps --no-build-isolation -e .
cat "$requirements" $hashed >"$venv/.ready"
echo "$venv is ready."
