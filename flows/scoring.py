"""The engine that scores a run's batches: opened before there is a run, closed after its end."""

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager

from flows.terminal import say
from schemas.scoring import Scoring
from storage import Store
from tasks.scoring import Scorer, chosen


@contextmanager
def scoring_in(store: Store, asked: Scoring | None) -> Iterator[Scorer]:
    """What scores as `asked`, else as the environment says; its files are below the store's folder.

    Raises:
        UserError: settings that contradict each other.
        EnvironmentMissing: the engine is not installed, or its cluster cannot be reached.
    """
    choice = chosen(asked, os.environ)
    folder = store.local_folder(os.environ) / "scoring"
    with closing(Scorer(choice, folder.absolute(), say)) as scorer:
        scorer.connect()
        yield scorer
