"""What Prefect's pages show of a search, as values: a table, a picture and a summary.

Nothing but what the exports hold. Prefect keeps the versions of one key, so a key names the
workload and the cluster and not the run: the versions are the history of that pair.
"""

import base64
import hashlib
import re
from collections.abc import Mapping

from projection.legality.derived import derived_settings
from schemas.workload import Workload
from storage import State
from storage.exports.knobs import changed_knobs, in_words
from storage.exports.printed import printed_result
from storage.state import Trial
from tasks.draw_trials import draw_trials
from tasks.picture import picture_of

BEST_TRIALS = 10
PAGE_DPI = 80
"""800 × 512 pixels: the pages show no more, and every listing of artifacts is sent all of it."""
LONGEST_KEY = 100

Row = dict[str, str | float | int]


def artifact_key(kind: str, *names: str) -> str:
    """`refold-<names>-<kind>` in the letters Prefect takes: a to z, digits and dashes.

    Where that loses more of a name than its case and punctuation, or is too long, a hash of the
    names keeps different ones apart.
    """
    text = "-".join(names).lower()
    slug = re.sub(r"[^a-z0-9]+", "-", text).strip("-")
    if len(slug) > LONGEST_KEY or not text.isascii() or not slug:
        digest = hashlib.sha256("\0".join(names).encode()).hexdigest()[:8]
        slug = f"{slug[:LONGEST_KEY].strip('-')}-{digest}".strip("-")
    return f"refold-{slug}-{kind}"


def best_trials_table(state: State, workload: Workload) -> list[Row]:
    """The best trials that may win, best first; one row each. Memory in 2^30 bytes per GPU."""
    return [_row(trial, workload) for trial in state.ranked()[:BEST_TRIALS]]


def _row(trial: Trial, workload: Workload) -> Row:
    evaluation = trial.evaluation
    assert evaluation is not None  # ranked
    memory = evaluation.memory_per_gpu_gb
    changed = changed_knobs(trial.proposed.config, workload)
    return {
        "trial": trial.number,
        "tokens/s/GPU": round(trial.score or 0.0, 1),
        "GB/GPU": "not known" if memory is None else round(memory, 1),
        "headroom GB": "not known" if memory is None else round(evaluation.cap_gb - memory, 1),
        "provenance": evaluation.provenance,
        "proposed by": trial.proposed.rule,
        "differs from the workload": ", ".join(
            f"{k}={in_words(v)}" for k, (_, v) in changed.items()
        )
        or "in nothing",
    }


def picture_markdown(state: State) -> str:
    """The run's picture in Markdown. Prefect's image artifact prints the whole of its address under
    it, so this is not one."""
    png = draw_trials(picture_of(state), dpi=PAGE_DPI)
    return f"![trials](data:image/png;base64,{base64.b64encode(png).decode()})\n"


def search_summary(state: State, workload: Workload) -> str:
    """The recipe, or what stood in the way of any, and the commands that go on from there."""
    spec = state.spec
    best = state.best
    derived = None if best is None else derived_settings(best.proposed.config, workload)
    result = printed_result(state, workload, derived)
    commands = {
        "why this recipe": f"refold lineage {state.run_id}",
        "every trial": f"refold show {state.run_id}",
        "the files again": f"refold export {state.run_id}",
        "nothing was changed since": f"refold verify {state.run_id}",
    }
    if state.finished is None:
        commands["go on"] = f"refold resume {state.run_id}"
    return "\n".join(
        (
            f"# {escaped(spec.workload_name)} on {escaped(spec.cluster_name)}",
            "",
            f"Run `{state.run_id}`, {state.status}, as of event {state.head_seq}"
            f" with head `{state.head_hash}`.",
            "",
            fenced(result),
            "",
            *_as_table(commands),
            "",
        )
    )


def _as_table(commands: Mapping[str, str]) -> list[str]:
    rows = [f"| {what} | `{command}` |" for what, command in commands.items()]
    return ["| | on the worker's machine |", "|--|--|", *rows]


def fenced(text: str) -> str:
    """`text` as a block of code, whatever is in it."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text.rstrip()}\n{fence}"


def escaped(text: str) -> str:
    """`text` on one line, so that Markdown shows it as it is."""
    return re.sub(r"([\\`*_{}\[\]<>()#+!|~&-])", r"\\\1", " ".join(text.split()))
