"""A page in headless Chromium, driven over a pipe by the DevTools protocol; needs nothing but the browser."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1100,900",
    "--remote-debugging-pipe",
)
PATIENCE = 120.0  # seconds
# The browser reads its descriptor 3 and writes its descriptor 4.
START = (
    "import os, sys\n"
    "for old, new in ((int(sys.argv[1]), 103), (int(sys.argv[2]), 104), (103, 3), (104, 4)): os.dup2(old, new)\n"
    "os.execv(sys.argv[3], sys.argv[3:])"
)


def find_browser() -> str | None:
    """The browser's program, if there is one."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Page:
    """One page; `errors` collects what it throws, writes to the console as an error, or is refused."""

    def __init__(self, program: str, profile: Path) -> None:
        read, write = os.pipe(), os.pipe()  # the browser reads the one and writes the other
        start = [sys.executable, "-c", START, str(read[0]), str(write[1])]
        command = [*start, program, *OPTIONS, f"--user-data-dir={profile}", "about:blank"]
        quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, pass_fds=(read[0], write[1]), **quiet)
        os.close(read[0])
        os.close(write[1])
        self.send, self.receive = os.fdopen(read[1], "wb", buffering=0), os.fdopen(write[0], "rb")
        self.errors: list[str] = []
        self.number, self.session, self.rest = 0, "", b""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Runtime", "Page", "Log", "Network"):
            self.call(f"{domain}.enable")

    def open(self, url: str) -> None:
        """Goes to the page, and waits until it says that it is ready."""
        self.call("Page.navigate", url=url)
        self.until("document.documentElement?.dataset.ready")

    def until(self, expression: str) -> None:
        """Waits until this is true, which may last on a busy machine."""
        deadline = time.monotonic() + PATIENCE
        while not self.ask(f"Boolean({expression})"):
            if time.monotonic() > deadline:
                raise RuntimeError(f"not so: {expression}; errors: {self.errors}")
            time.sleep(0.05)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a method; events that come before it are looked at."""
        self.number += 1
        message: dict[str, Any] = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        self.send.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return dict(answer["result"])
            self._note(answer)

    def ask(self, expression: str) -> Any:
        """The value of an expression of JavaScript, of a promise what it becomes."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(str(found["exceptionDetails"]))
        return found["result"].get("value")

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            part = os.read(self.receive.fileno(), 1 << 16)
            if not part:
                raise RuntimeError("the browser has ended")
            self.rest += part
        message, _, self.rest = self.rest.partition(b"\0")
        return dict(json.loads(message))

    def _note(self, event: dict[str, Any]) -> None:
        method, params = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(str(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.errors.append(str(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(str(params["entry"]))
        elif method == "Page.javascriptDialogOpening":
            self.errors.append(f"a dialog: {params['message']}")

    def close(self) -> None:
        self.send.close()
        self.receive.close()
        self.process.terminate()
        self.process.wait(timeout=PATIENCE)
