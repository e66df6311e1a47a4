"""What a call cost, by LiteLLM's shipped price list; nothing is fetched."""

import sys


def cost_usd(model: str, input_tokens: int | None, output_tokens: int | None) -> float | None:
    """The price of a call in USD; None where the model or its usage is not known.

    Asked only after a live call, so LiteLLM is imported by then or was not used.
    """
    litellm = sys.modules.get("litellm")
    if litellm is None or input_tokens is None or output_tokens is None:
        return None
    try:
        prompt, completion = litellm.cost_per_token(
            model=model, prompt_tokens=input_tokens, completion_tokens=output_tokens
        )
    except Exception:  # noqa: BLE001 - LiteLLM raises a bare Exception for a model it does not price
        return None
    return float(prompt + completion)
