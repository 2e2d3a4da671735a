"""Firefox for the tests of pages, by the protocol that it speaks itself: numbered messages in JSON over a socket."""

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tests.patience import PATIENCE

FIREFOX = shutil.which("firefox-esr") or shutil.which("firefox")


class Firefox:
    """A page in Firefox."""

    def __init__(self, port: int) -> None:
        self.connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self.answers = self.connection.makefile("rb")
        self.number = 0
        self._answer()
        self.ask("WebDriver:NewSession")

    def ask(self, command: str, **given: Any) -> Any:
        """The answer to a command of WebDriver's."""
        self.number += 1
        message = json.dumps([0, self.number, command, given]).encode()
        self.connection.sendall(b"%d:%s" % (len(message), message))
        _, _, wrong, answer = self._answer()
        assert wrong is None, wrong
        return answer

    def _answer(self) -> Any:
        length = b""
        while (digit := self.answers.read(1)) != b":":
            length += digit
        return json.loads(self.answers.read(int(length)))

    def close(self) -> None:
        self.answers.close()
        self.connection.close()

    def open(self, path: Path, address: str = "") -> None:
        self.ask("WebDriver:Navigate", url=path.as_uri() + address)

    def evaluate(self, script: str) -> Any:
        return self.ask("WebDriver:ExecuteScript", script=f"return {script}", args=[])["value"]

    def until(self, condition: str) -> None:
        end = time.monotonic() + PATIENCE
        while not self.evaluate(f"Boolean({condition})"):
            assert time.monotonic() < end, f"never: {condition}"
            time.sleep(0.02)


@contextmanager
def firefox(profile: Path) -> Iterator[Firefox]:
    """Firefox without a window, with a profile of its own, until the block ends."""
    (profile / "user.js").write_text('user_pref("marionette.port", 0);\n')
    command = [str(FIREFOX), "--headless", "--marionette", "--no-remote", "--profile", str(profile)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            port, end = profile / "MarionetteActivePort", time.monotonic() + PATIENCE
            while not (port.exists() and port.read_text()):
                assert time.monotonic() < end, "Firefox did not start"
                time.sleep(0.05)
            with closing(Firefox(int(port.read_text()))) as browser:
                yield browser
        finally:
            process.kill()
