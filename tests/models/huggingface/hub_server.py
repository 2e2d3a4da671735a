"""A small model hub on the loopback address: what it answers to the hub's own client, and what it was asked."""

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "5" * 40
CHUNK = 4096
RESOLVE = re.compile(r"/(.+)/resolve/[^/]+/([^?]+)")
DETAILS = re.compile(r"/api/models/([^/?]+/[^/?]+)(?:/(revision|tree)/)?")


@dataclass(eq=False)
class Hub:
    """Models by name, each a folder, and how it behaves.

    Attributes:
        models: their folders.
        gated: names that need a permission.
        break_after: how many bytes of a file of weights are sent before the connection is cut; ``None`` for all.
        stall_after: how many are sent before nothing more comes.
        status: what every request is answered with, if not what is there.
        requests: method, path and range of each request.
    """

    models: dict[str, Path]
    gated: set[str] = field(default_factory=set)
    break_after: int | None = None
    stall_after: int | None = None
    status: int | None = None
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    stalled: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    address: str = ""

    @property
    def fetched(self) -> list[str]:
        """The names of the files whose content was asked for."""
        return [path.rpartition("/")[2] for method, path, _ in self.requests if method == "GET" and "/resolve/" in path]

    @property
    def ranges(self) -> list[str]:
        """The parts of weights that were asked for, an empty string for a whole file."""
        return [given for method, path, given in self.requests if method == "GET" and path.endswith(".safetensors")]


@contextmanager
def served(models: dict[str, Path]) -> Iterator[Hub]:
    """The hub while the block runs."""
    hub = Hub(models)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("HubHandler", (Handler,), {"hub": hub}))
    server.daemon_threads = True
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.released.set()
        server.shutdown()
        server.server_close()
        thread.join()


class Handler(BaseHTTPRequestHandler):
    """Answers as the hub does: details of a model, the list of its files, and their bytes."""

    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, with_body: bool) -> None:
        self.hub.requests.append((self.command, self.path.partition("?")[0], self.headers.get("Range", "")))
        details, resolved = DETAILS.match(self.path), RESOLVE.match(self.path)
        name = details[1] if details else resolved[1] if resolved else ""
        folder = self.hub.models.get(name)
        if self.hub.status is not None:
            self._fail(self.hub.status, "", "The service is unavailable", with_body)
        elif folder is None:
            self._fail(401, "RepoNotFound", "Invalid username or password.", with_body)
        elif details is not None:
            self._json(self._listed(folder) if details[2] == "tree" else self._details(name, folder))
        elif resolved is not None and name in self.hub.gated:
            self._fail(401, "GatedRepo", f"Access to model {name} is restricted.", with_body)
        elif resolved is not None and (folder / resolved[2]).is_file():
            self._file(folder / resolved[2], with_body)
        else:
            self._fail(404, "EntryNotFound", "Entry not found", with_body)

    def _details(self, name: str, folder: Path) -> dict[str, object]:
        files = [{"rfilename": path.name} for path in _files(folder)]
        gated = "manual" if name in self.hub.gated else False
        return {"id": name, "modelId": name, "sha": COMMIT, "siblings": files, "private": False, "gated": gated}

    def _listed(self, folder: Path) -> list[dict[str, object]]:
        return [
            {"type": "file", "path": path.name, "size": path.stat().st_size, "oid": _etag(path)}
            for path in _files(folder)
        ]

    def _json(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _fail(self, status: int, code: str, message: str, with_body: bool) -> None:
        body = json.dumps({"error": message}).encode() if with_body else b""
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
            self.send_header("X-Error-Message", message)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _file(self, path: Path, with_body: bool) -> None:
        content = path.read_bytes()
        start = int(re.sub(r"bytes=(\d+)-.*", r"\1", self.headers.get("Range", "")) or 0)
        self.send_response(206 if start else 200)
        self.send_header("ETag", f'"{_etag(path)}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(content) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        if with_body:
            self._send(content[start:], path.suffix == ".safetensors")

    def _send(self, content: bytes, weights: bool) -> None:
        limits = [limit for limit in (self.hub.break_after, self.hub.stall_after) if limit is not None and weights]
        if not limits or limits[0] >= len(content):
            self.wfile.write(content)
            return
        self.wfile.write(content[: limits[0]])
        self.wfile.flush()
        if self.hub.stall_after is not None:
            self.hub.stalled.set()
            self.hub.released.wait()
        self.close_connection = True


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file())


def _etag(path: Path) -> str:
    return hashlib.sha1(path.read_bytes(), usedforsecurity=False).hexdigest()
