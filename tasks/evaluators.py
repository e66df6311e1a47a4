"""Who answers for a trial, by mode: the oracle, the oracle's memory alone, or nobody (dry)."""

from typing import Protocol

from projection.oracle import Oracle
from schemas.cluster import Cluster
from schemas.evaluation import Evaluation, SignatureHashes
from schemas.trial import NormalTrial
from schemas.workload import Workload
from tasks.synthetic import dry_evaluation, with_synthetic_time


class Evaluator(Protocol):
    """Memory first, then the score; both are functions of the trial alone."""

    def memory(self, trial: NormalTrial) -> Evaluation:
        """Memory and whether it fits, the cheaper half."""
        ...

    def score(self, trial: NormalTrial) -> Evaluation:
        """Everything this mode says of the trial."""
        ...


class Full:
    """`--mode full`, simulate: the oracle projects memory and time."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle

    def memory(self, trial: NormalTrial) -> Evaluation:
        """Projected memory."""
        return self._oracle.memory(trial)

    def score(self, trial: NormalTrial) -> Evaluation:
        """Projected memory and time."""
        return self._oracle.project(trial)


class MemoryReal:
    """`--mode memory-real`: projected memory, synthetic time."""

    def __init__(self, oracle: Oracle, workload: Workload, cluster: Cluster) -> None:
        self._oracle, self._workload, self._cluster = oracle, workload, cluster

    def memory(self, trial: NormalTrial) -> Evaluation:
        """Projected memory."""
        return self._oracle.memory(trial)

    def score(self, trial: NormalTrial) -> Evaluation:
        """Projected memory with a made-up time."""
        memory = self._oracle.memory(trial)
        return with_synthetic_time(memory, trial, self._workload, self._cluster)


class Dry:
    """`--mode dry`: everything synthetic, no oracle."""

    def __init__(self, workload: Workload, cluster: Cluster, signature: SignatureHashes) -> None:
        self._workload, self._cluster, self._signature = workload, cluster, signature

    def memory(self, trial: NormalTrial) -> Evaluation:
        """Made-up memory (and time, which the filter does not read)."""
        return self.score(trial)

    def score(self, trial: NormalTrial) -> Evaluation:
        """Made-up memory and time."""
        return dry_evaluation(trial, self._workload, self._cluster, self._signature)
