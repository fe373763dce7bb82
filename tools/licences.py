"""The licences of the packages that the lock files pin: `tools/licences.tsv`, which a test compares with them.

    .venv/bin/python tools/licences.py            what is installed is written into the table; what is not there stays
    .venv/bin/python tools/licences.py --check    compares the table with the lock files; needs nothing but this folder

A package says its licence in its metadata, in words of many kinds (SAID); those that say nothing, or not all, are in
READ, from the licence file in the package.  Packages under other licences than FREE need a reason in ALLOWED.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

TOOLS = Path(__file__).resolve().parent
TABLE = "licences.tsv"
LOCKS = ("requirements-py310.txt", "requirements-py311.txt", "requirements-k2.txt")
FREE = {"MIT", "BSD-2-Clause", "BSD-3-Clause", "BSD", "BSL-1.0", "ISC", "Apache-2.0", "CNRI-Python", "PSF-based"}
FREE |= {"Apache-2.0 WITH LLVM-exception"}
SAID = {
    "MIT License": "MIT",
    "BSD License": "BSD",
    "BSD-3": "BSD-3-Clause",
    "BSD 3-Clause License": "BSD-3-Clause",
    "Apache Software License": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Apache 2.0 License": "Apache-2.0",
    "Apache-2.0 License": "Apache-2.0",
    "Python Software Foundation License": "PSF-based",
    "GNU Library or Lesser General Public License (LGPL)": "LGPL",
}
READ = {
    "k2": "Apache-2.0",
    "kenlm": "LGPL-2.1-or-later",
    "espeakng-loader": "GPL-3.0-or-later",
}
ALLOWED = {
    "kenlm": "a library, used as it is, by the extra ngram",
    "num2words": "a library, used as it is, by the extra text",
    "hypothesis": "MPL-2.0; for the tests alone",
    "espeakng-loader": "eSpeak NG, by the extra demo, for synthetic speech alone",
}


def pinned() -> dict[str, set[str]]:
    """The versions of each package that the lock files name."""
    found: dict[str, set[str]] = {}
    for lock in LOCKS:
        for line in (TOOLS / lock).read_text(encoding="utf-8").splitlines():
            if match := re.match(r"([A-Za-z0-9_.-]+)==([^\s;]+)", line):
                found.setdefault(match[1].lower(), set()).add(match[2])
    return found


def licence_of(name: str) -> str | None:
    """What an installed package says of its licence; None where it is not installed, "" where it does not say."""
    try:
        about = metadata(name)
    except PackageNotFoundError:
        return None
    classified = [text.split(" :: ")[-1] for text in about.get_all("Classifier") or [] if text.startswith("License ::")]
    said = [about.get("License-Expression"), *classified, about.get("License")]
    found = next((text for text in said if text and text != "OSI Approved"), "").splitlines()
    return READ.get(name) or SAID.get(found[0], found[0]) if found or name in READ else ""


def read_table() -> dict[str, str]:
    """Package -> licence; the versions have no part in it."""
    path = TOOLS / TABLE
    lines = path.read_text(encoding="utf-8").splitlines()[1:] if path.exists() else []
    return dict(line.split("\t")[:2] for line in lines)


def problems(packages: dict[str, set[str]], table: dict[str, str]) -> list[str]:
    """What is wrong with the table: packages that are missing or not pinned, licences that are not allowed."""
    found = [f"{name}: not in {TABLE}; run tools/licences.py where it is installed" for name in packages.keys() - table]
    found += [f"{name}: in {TABLE}, but no lock file names it" for name in table.keys() - packages.keys()]
    for name, licence in table.items():
        if not FREE.issuperset(licence.split(" AND ")) and name not in ALLOWED:
            found.append(f"{name}: its licence is '{licence}'; take another package, or say in ALLOWED why it may be")
    return sorted(found)


def main() -> None:
    packages, table = pinned(), read_table()
    if "--check" not in sys.argv[1:]:
        table = {name: licence_of(name) or table.get(name, "unknown") for name in sorted(packages)}
        rows = [f"{name}\t{licence}\t{ALLOWED.get(name, '')}".rstrip() for name, licence in table.items()]
        (TOOLS / TABLE).write_text("\n".join(["package\tlicence\twhy it may be", *rows]) + "\n", encoding="utf-8")
    if found := problems(packages, table):
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
