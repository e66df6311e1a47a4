"""Serves a GGUF model over the OpenAI protocol on 127.0.0.1, one request at a time.

    PYTHONPATH=RUNTIME python serve.py WEIGHTS CONTEXT_TOKENS GRAMMAR

Every answer keeps to the grammar (GBNF, of llama.cpp), as a server's operator may ask. Prints its
address once it answers. Knows chat completions, and of their options max_tokens (or
max_completion_tokens) and temperature. Not a test: it runs in a process of its own.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from cyllama.api import LLM, GenerationConfig
from cyllama.llama.llama_cpp import LlamaSampler, LlamaSamplerChainParams

SEED = 1
TEMPERATURE = 0.7
"""Where a request names none. The other settings, too, are those the model is published with."""
LONGEST_ANSWER = 700


class TooLong(ValueError):
    """The prompt leaves no room for an answer."""


class Grammatical(LLM):
    """A model whose every answer keeps to a grammar."""

    grammar = ""

    def _ensure_sampler(self, config: GenerationConfig) -> LlamaSampler:
        sampler = LlamaSampler(LlamaSamplerChainParams())
        sampler.add_grammar(self.vocab, self.grammar, "root")
        sampler.add_penalties(64, config.repeat_penalty, 0.0, 0.0)
        sampler.add_top_k(config.top_k)
        sampler.add_top_p(config.top_p, 1)
        sampler.add_temp(config.temperature)
        sampler.add_dist(config.seed)
        self._sampler = sampler
        return sampler


class Model:
    """The model, loaded once."""

    def __init__(self, weights: str, context: int, grammar: str) -> None:
        self._context = context
        Grammatical.grammar = grammar
        self._llm = Grammatical(weights, config=self._config(1, TEMPERATURE), verbose=False)

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        """The completion of a request."""
        messages = [
            {"role": message["role"], "content": _text(message["content"])}
            for message in body["messages"]
        ]
        prompt = self._llm._apply_template(messages)
        sent = len(self._llm.vocab.tokenize(prompt, add_special=True, parse_special=True))
        room = self._context - sent
        if room < 64:
            raise TooLong(f"the prompt has {sent} tokens of {self._context}")
        asked = body.get("max_completion_tokens") or body.get("max_tokens") or LONGEST_ANSWER
        most = min(asked, LONGEST_ANSWER, room)
        temperature = body.get("temperature")
        config = self._config(most, TEMPERATURE if temperature is None else temperature)
        text = str(self._llm(prompt, config=config))
        written = len(self._llm.vocab.tokenize(text, add_special=False, parse_special=False))
        return {
            "id": "local",
            "object": "chat.completion",
            "created": 0,
            "model": body.get("model", "local"),
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": text},
                    "finish_reason": "length" if written >= most else "stop",
                }
            ],
            "usage": {
                "prompt_tokens": sent,
                "completion_tokens": written,
                "total_tokens": sent + written,
            },
        }

    def _config(self, max_tokens: int, temperature: float) -> GenerationConfig:
        return GenerationConfig(
            n_ctx=self._context,
            n_batch=512,
            n_gpu_layers=0,
            seed=SEED,
            temperature=temperature,
            top_p=0.8,
            top_k=20,
            repeat_penalty=1.1,
            max_tokens=max_tokens,
        )


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content)


def main() -> None:
    """Serves until it is ended."""
    model = Model(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]).read_text())

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            try:
                status, said = 200, model.answer(body)
            except TooLong as error:
                status, said = 400, {"error": {"message": str(error), "code": "context"}}
            data = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *arguments: Any) -> None:
            """Quiet."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_address[1]}/v1", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
