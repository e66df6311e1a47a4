"""Steps that cost more to take again than to look up, answered from what the store has kept."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter, ValidationError

from projection.legality import derive_axes
from schemas.legality import LegalAxes
from storage.kept_answers import KeptAnswers
from tasks.inputs import Inputs
from tasks.seed_plan import SeedPlan, plan_seeds
from tasks.step_keys import key_of_step

Answered = TypeVar("Answered")
Say = Callable[[str], None]

_AXES: Final[TypeAdapter[LegalAxes]] = TypeAdapter(LegalAxes)
_SEEDS: Final[TypeAdapter[SeedPlan]] = TypeAdapter(SeedPlan)


def axes_of(inputs: Inputs, answers: KeptAnswers | None, odd: Say) -> LegalAxes:
    """`derive_axes`, asked only if no search with the same key was before. `odd` is told what is
    wrong with an entry; None for `answers` asks always.

    Raises:
        ClusterError: as `derive_axes`.
        LogError: the store cannot be read or written.
    """

    def derived() -> LegalAxes:
        return derive_axes(inputs.workload, inputs.cluster, inputs.search)

    return _answered("derive_axes", inputs, answers, odd, _AXES, derived)


def seeds_of(inputs: Inputs, answers: KeptAnswers | None, odd: Say) -> SeedPlan:
    """`plan_seeds`, as `axes_of` is `derive_axes`."""

    def planned() -> SeedPlan:
        return plan_seeds(inputs.workload, inputs.cluster, inputs.search)

    return _answered("seed_batch", inputs, answers, odd, _SEEDS, planned)


def _answered(
    step: str,
    inputs: Inputs,
    answers: KeptAnswers | None,
    odd: Say,
    form: TypeAdapter[Any],
    ask: Callable[[], Answered],
) -> Answered:
    if answers is None:
        return ask()
    key = key_of_step(step, inputs)
    found = answers.find(step, key)
    if found.warning is not None:
        odd(found.warning)
    if found.value is not None:
        try:
            known: Answered = form.validate_python(found.value)
        except ValidationError:
            odd(f"cached answer of {step} {key} has another form; asking again")
            return ask()
        return known
    answer = ask()
    warning = answers.put(step, key, form.dump_python(answer, mode="json"))
    if warning is not None:
        odd(warning)
    return answer
