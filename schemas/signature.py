"""What a score depends on: model, cluster and software, each as a hash with its parts."""

import hashlib
import json
from typing import Any

from schemas.evaluation import SignatureHashes
from schemas.model import FrozenModel


def content_hash(value: Any) -> str:
    """16 hex digits of the SHA-256 of `value`'s canonical JSON (sorted keys, no NaN)."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Signature(FrozenModel):
    """The parts and where each came from; `hashes` is what events and caches key on."""

    model: dict[str, Any]
    cluster: dict[str, Any]
    stack: dict[str, Any]
    origin: dict[str, str]
    """Per entry of the stack that is not Refold's own: "declared (…)", "detected (…)" or "none".
    Said, not hashed."""

    @property
    def hashes(self) -> SignatureHashes:
        """The three hashes."""
        return SignatureHashes(
            model=content_hash(self.model),
            cluster=content_hash(self.cluster),
            stack=content_hash(self.stack),
        )
