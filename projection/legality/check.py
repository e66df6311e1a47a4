"""The verdict on one trial: every rule it breaks, each with its reason."""

from projection.legality.advice import ADVICE
from projection.legality.context import Context
from projection.legality.rules import RULES, VALUE_RULES, Rule
from projection.legality.rules.request import read
from schemas.cluster import Cluster
from schemas.legality import Verdict, Violation
from schemas.search import SearchSpec
from schemas.trial import NormalTrial, TrialConfig
from schemas.workload import Workload


def check(
    trial: TrialConfig | NormalTrial,
    workload: Workload,
    cluster: Cluster,
    search: SearchSpec,
    *,
    proposal: bool = True,
) -> Verdict:
    """Whether `trial` may run on `cluster`; memory is not asked.

    A `proposal` is something a planner or a model asks for. A user's file or a measured row
    (`proposal=False`) is not held to what only limits the search (pinned axes, micro batches that
    are powers of two, …), and what a framework asserts but somebody ran becomes a warning. Nothing
    a trial can hold raises: an unknown schedule or a size of zero is a violation too.

    Raises:
        ClusterError: the search pins a knob that does not exist.
    """
    context = Context.of(workload, cluster, search)
    found: list[Violation] = []
    if isinstance(trial, TrialConfig):
        trial, found = read(trial, workload)
    return judge(trial, context, proposal=proposal, found=found)


def judge(
    trial: NormalTrial,
    context: Context,
    *,
    proposal: bool = True,
    found: list[Violation] | None = None,
) -> Verdict:
    """`check` for a trial in normal form, with the context at hand and violations found before."""
    violations, warnings = list(found or ()), []
    impossible = _broken(VALUE_RULES, trial, context)
    if impossible:
        return Verdict(violations=(*violations, *(violation for _, violation in impossible)))
    for rule, violation in _broken(RULES, trial, context):
        if proposal or rule.elsewhere == "refuse":
            violations.append(violation)
        elif rule.elsewhere == "warn":
            warnings.append(violation.reason)
    advice = (advise(trial, context) for advise in ADVICE)
    warnings.extend(line for line in advice if line is not None)
    return Verdict(violations=tuple(violations), warnings=tuple(warnings))


def _broken(
    rules: tuple[Rule, ...], trial: NormalTrial, context: Context
) -> list[tuple[Rule, Violation]]:
    return [
        (rule, violation)
        for rule in rules
        if (violation := rule.violation(trial, context)) is not None
    ]
