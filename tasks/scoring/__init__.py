"""Where batches are scored: in this process, in processes of its own, on Dask or on Ray.

Every engine gives the same evaluations, bit for bit; only the order in which they arrive differs.
"""

from tasks.scoring.choice import chosen
from tasks.scoring.engine import Engine, ScoringLost
from tasks.scoring.scorer import Scorer

__all__ = ["Engine", "Scorer", "ScoringLost", "chosen"]
