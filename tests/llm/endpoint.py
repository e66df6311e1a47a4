"""A real HTTP server that speaks the OpenAI protocol, with a script for a model."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

Answer = str | tuple[int, str] | None
"""What the model says; a status and a body that is sent as it is; None: the connection drops."""
Script = Callable[[str, int], Answer]
"""From the whole prompt and the number of the request to the answer."""


class Endpoint(NamedTuple):
    """A running server, and the prompts it was sent."""

    url: str
    prompts: list[str]


@contextmanager
def endpoint(script: Script) -> Iterator[Endpoint]:
    """Serves `script` on a free port until the context ends."""
    prompts: list[str] = []
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            prompt = "\n\n".join(_text(message["content"]) for message in body["messages"])
            with lock:
                prompts.append(prompt)
                number = len(prompts) - 1
            answer = script(prompt, number)
            if answer is None:
                self.close_connection = True
                return
            status, text = answer if isinstance(answer, tuple) else (200, _completion(answer))
            data = text.encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *arguments: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield Endpoint(f"http://127.0.0.1:{server.server_address[1]}/v1", prompts)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content)


def _completion(text: str) -> str:
    message = {"role": "assistant", "content": text}
    return json.dumps(
        {
            "id": "scripted",
            "object": "chat.completion",
            "created": 0,
            "model": "scripted",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
        }
    )
