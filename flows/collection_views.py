"""What Prefect's server knows of work pools and blocks, from the installed package.

Asked for one of these lists, as `prefect work-pool create` does, the server fetches it from GitHub
and takes its own copy only where that fails. This answers with the copy.
"""

import re
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[MutableMapping[str, Any], Callable[[], Awaitable[Message]], Send], Any]

_PATH = re.compile(r".*/collections/views/([a-z-]+)")


def from_the_package(app: Application) -> Application:
    """`app`, but for the lists that Prefect ships."""
    from prefect.server.api import collections

    shipped = Path(collections.__file__).parent / "collections_data" / "views"

    async def answered(scope: MutableMapping[str, Any], receive: Any, send: Send) -> None:
        match = _PATH.fullmatch(scope["path"]) if scope["type"] == "http" else None
        file = shipped / f"{match[1]}.json" if match else None
        if file is None or not file.exists():
            await app(scope, receive, send)
            return
        body = file.read_bytes()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return answered
