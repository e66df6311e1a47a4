"""As much of the protocols of Google Cloud Storage (XML) and Azure Blob Storage as a store uses.

They see to it that the client's requests mean there what they must: conditions by generation or by
ETag, copies, batches of deletions, folders in listings. They are no proof of the services.
"""

import json
import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape

PAGE = 1000


@dataclass(frozen=True)
class Blob:
    data: bytes
    generation: int
    metadata: Mapping[str, str]


class Service(BaseHTTPRequestHandler):
    """One bucket in memory; a subclass speaks a service's dialect. One class, one server."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    metadata_prefix: ClassVar[str]
    copy_header: ClassVar[str]
    blobs: dict[str, Blob]
    turn: threading.Lock
    generation: ClassVar[int] = 0

    def condition_holds(self, there: Blob | None) -> bool:
        raise NotImplementedError

    def version(self, blob: Blob) -> dict[str, str]:
        raise NotImplementedError

    def log_message(self, *_: object) -> None: ...

    def answer(self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None):
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    @staticmethod
    def key_of(path: str) -> str:
        """`/account-or-bucket…/key`: what follows the part the environment names."""
        return unquote(urlsplit(path).path).partition("/store/")[2]

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))

    def do_PUT(self) -> None:
        data, key = self.body(), self.key_of(self.path)
        metadata = {n: v for n, v in self.headers.items() if n.startswith(self.metadata_prefix)}
        with self.turn:
            if not self.condition_holds(self.blobs.get(key)):
                return self.answer(412)
            if source := self.headers.get(self.copy_header):
                copied = self.blobs.get(self.key_of(f"/{source.lstrip('/')}"))
                if copied is None:
                    return self.answer(404)
                data, metadata = copied.data, dict(copied.metadata)
            type(self).generation += 1
            blob = self.blobs[key] = Blob(data, self.generation, metadata)
        return self.answer(201, headers=self.version(blob))

    def do_GET(self) -> None:
        blob = self.blobs.get(self.key_of(self.path))
        if blob is None:
            return self.answer(404)
        modified = {"Last-Modified": formatdate(usegmt=True)}
        return self.answer(200, blob.data, {**self.version(blob), **modified, **blob.metadata})

    def do_DELETE(self) -> None:
        with self.turn:
            there = self.blobs.pop(self.key_of(self.path), None)
        self.answer(404 if there is None else 204)

    def page(self, after: str) -> tuple[list[str], list[str], str]:
        """Keys, folders, and where the next page begins, of what the query asks for."""
        prefix = self.query.get("prefix", "")
        below = (key.removeprefix(prefix) for key in self.blobs if key.startswith(prefix))
        names = sorted({prefix + rest.partition("/")[0] + "/" * ("/" in rest) for rest in below})
        names = [name for name in names if name > after]
        shown, more = names[:PAGE], names[PAGE:]
        keys = [name for name in shown if not name.endswith("/")]
        return keys, [n for n in shown if n.endswith("/")], shown[-1] if more else ""


class Google(Service):
    metadata_prefix = "x-goog-meta-"
    copy_header = "x-goog-copy-source"

    def condition_holds(self, there: Blob | None) -> bool:
        wanted = self.headers.get("x-goog-if-generation-match")
        return wanted is None or int(wanted) == (there.generation if there else 0)

    def version(self, blob: Blob) -> dict[str, str]:
        return {"ETag": f'"{hash(blob.data)}"', "x-goog-generation": str(blob.generation)}

    def do_GET(self) -> None:
        if "list-type" not in self.query:
            return super().do_GET()
        keys, folders, token = self.page(self.query.get("continuation-token", ""))
        described = (
            f"<Contents><Key>{escape(key)}</Key><Size>1</Size><ETag>1</ETag>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for key in keys
        )
        prefixes = (
            f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
            for folder in folders
        )
        following = f"<NextContinuationToken>{escape(token)}</NextContinuationToken>" * bool(token)
        return self.answer(200, _xml("ListBucketResult", (*described, *prefixes, following)))


class Azure(Service):
    metadata_prefix = "x-ms-meta-"
    copy_header = "x-ms-copy-source"

    def condition_holds(self, there: Blob | None) -> bool:
        if self.headers.get("If-None-Match") == "*":
            return there is None
        wanted = self.headers.get("If-Match")
        return wanted is None or (there is not None and wanted == self.version(there)["ETag"])

    def version(self, blob: Blob) -> dict[str, str]:
        return {"ETag": f'"0x{blob.generation}"', "x-ms-copy-status": "success"}

    def do_GET(self) -> None:
        if self.query.get("comp") != "list":
            return super().do_GET()
        keys, folders, marker = self.page(self.query.get("marker", ""))
        described = (
            f"<Blob><Name>{escape(key)}</Name><Properties><Content-Length>1</Content-Length>"
            "<Last-Modified>Thu, 01 Jan 2026 00:00:00 GMT</Last-Modified><Etag>1</Etag>"
            "<Content-Type>a/b</Content-Type></Properties></Blob>"
            for key in keys
        )
        prefixes = (f"<BlobPrefix><Name>{escape(name)}</Name></BlobPrefix>" for name in folders)
        parts = ("<Blobs>", *described, *prefixes, "</Blobs>", f"<NextMarker>{marker}</NextMarker>")
        return self.answer(200, _xml("EnumerationResults", parts))

    def do_POST(self) -> None:
        """A batch of deletions."""
        parts = []
        for number, path in enumerate(re.findall(rb"DELETE (\S+) HTTP", self.body())):
            there = self.blobs.pop(self.key_of(path.decode()), None)
            status = "202 Accepted" if there else "404 Not Found"
            parts.append(
                f"--batch\r\nContent-Type: application/http\r\nContent-ID: {number}\r\n\r\n"
                f"HTTP/1.1 {status}\r\nx-ms-request-id: 1\r\n\r\n\r\n"
            )
        headers = {"Content-Type": "multipart/mixed; boundary=batch"}
        self.answer(202, ("".join(parts) + "--batch--\r\n").encode(), headers)


def _xml(root: str, parts: Iterable[str]) -> bytes:
    return f"<?xml version='1.0'?><{root}>{''.join(parts)}</{root}>".encode()


class Running:
    """A server of one of them, its URL for `--store` and its environment."""

    def __init__(self, service: type[Service]) -> None:
        state = {"blobs": {}, "turn": threading.Lock()}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Own", (service,), state))
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._thread.start()
        url = f"http://127.0.0.1:{self._server.server_port}"
        if service is Google:
            account = {"gcs_base_url": url, "disable_oauth": True, "client_email": ""}
            account |= {"private_key": "", "private_key_id": ""}
            self.store = "gs://store/a folder"
            self.environment = {
                "GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(account),
                "GOOGLE_ALLOW_HTTP": "true",
            }
        else:
            self.store = "az://store/a folder"
            self.environment = {
                "AZURE_STORAGE_ACCOUNT_NAME": "account",
                "AZURE_STORAGE_ACCOUNT_KEY": "Zm9v",
                "AZURE_STORAGE_ENDPOINT": f"{url}/account",
            }

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
