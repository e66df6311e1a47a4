"""A desk over a real run with a round of a model open."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flows.desk import Desk
from flows.interrupts import shielded
from flows.ledger import Ledger
from flows.llm_tape import RunTape
from flows.opening import Watch, start_run
from flows.seeding import seed_round
from flows.stages import in_process
from projection.legality import derive_axes
from schemas.events import AxesDerived, RoundStarted
from storage import Entry, State, Store
from tasks.inputs import Inputs, resolve_pair
from tasks.llm.halt import Halt
from tasks.scoring import Scorer
from tests.end_to_end.files import write_inputs


@dataclass
class Opened:
    """A desk, its run, and the questions experts were asked."""

    desk: Desk
    ledger: Ledger
    inputs: Inputs
    halt: Halt
    questions: list[tuple[str, str]] = field(default_factory=list)

    @property
    def state(self) -> State:
        """What the run knows."""
        return self.ledger.state


@contextmanager
def opened(folder: Path, **budget: Any) -> Iterator[Opened]:
    """A desk in round 1 of a run with two seeds."""
    limits = {"max_perf_calls": 60, "max_proposals": 40, "seed_budget": 2}
    workload, cluster = write_inputs(folder, optimization={"budget": {**limits, **budget}})
    inputs = resolve_pair(workload, cluster, gemm_backend="tile", mode="dry")
    store = Store.at(folder / "store")
    questions: list[tuple[str, str]] = []

    def ask(expert: str, question: str) -> str:
        questions.append((expert, question))
        return "It depends."

    with shielded() as shield, start_run(store, inputs, folder / "out", Watch(shield)) as ledger:
        axes = derive_axes(inputs.workload, inputs.cluster, inputs.search)
        ledger.record(Entry(AxesDerived(axes=axes)))
        seed_round(ledger, inputs, store.evaluations, in_process, Scorer())
        begun = RoundStarted(proposer="llm", planned=0, budget=ledger.state.spec.search.budget)
        ledger.record(Entry(begun, 1))
        halt = Halt()
        desk = Desk(ledger, inputs, store.evaluations, RunTape(ledger), halt, ask)
        yield Opened(desk, ledger, inputs, halt, questions)
