"""Which of two trials is better: the one rule, used by the fold, the summary and the exports."""

from schemas.evaluation import Evaluation


def eligible(evaluation: Evaluation) -> float | None:
    """Tokens/s/GPU of an evaluation that may win: legal, within the cap, and timed. Else None.

    The baseline is scored also when it does not fit; it is then never the incumbent.
    """
    if evaluation.legal and evaluation.fits:
        return evaluation.tokens_per_s_per_gpu
    return None


def rank(number: int, tokens_per_s_per_gpu: float) -> tuple[float, int]:
    """Sort key, best first: more tokens/s/GPU, then the lower trial number."""
    return (-tokens_per_s_per_gpu, number)
