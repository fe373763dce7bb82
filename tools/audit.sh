#!/bin/sh
# Known vulnerabilities of the pinned packages, by pip-audit in an environment of its own; needs PyPI itself.
# --strict: a package that cannot be looked up is an error, not one without vulnerabilities.
set -eu
cd "$(dirname "$0")/.."
venv=.venv-audit
if [ ! -x "$venv/bin/pip-audit" ]; then
    python3 -m venv "$venv" &&
        "$venv/bin/pip" install --quiet --retries 0 --timeout 15 pip-audit >/dev/null 2>&1 || {
        rm -rf "$venv"
        echo "audit: pip-audit cannot be installed (no network?); nothing was looked up"
        exit 0
    }
fi
status=0
for lock in tools/requirements-py310.txt tools/requirements-py311.txt; do
    echo "$lock:"
    "$venv/bin/pip-audit" --strict --no-deps --disable-pip --progress-spinner off --timeout 15 -r "$lock" || status=$?
done
exit "$status"
