"""A lineage as a graph: files → signature → run → round → rule or LLM call → trial → evaluation
→ recipe. One lane per search: a trial that was carried over has its parent's lane above it."""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

from schemas.lineage import ForkStep, InputFile, Lineage, RecordedEvaluation, TrialStory

Kind = Literal["file", "signature", "run", "round", "proposer", "trial", "evaluation", "recipe"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""From left to right."""

LINE_CHARS = 30
MAX_LINES = 4
"""Lines that one text of a node may take."""
MAX_FILES = 6


@dataclass(frozen=True, slots=True)
class Node:
    """A box: a heading and lines under it. Lane 0 is the oldest search, drawn on top."""

    name: str
    kind: Kind
    lane: int
    title: str
    lines: tuple[str, ...]
    bad: bool = False
    """An invalidated evaluation, or a hash that does not hold."""


@dataclass(frozen=True, slots=True)
class Edge:
    """An arrow between two nodes, by name."""

    source: str
    target: str
    label: str = ""
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Graph:
    """What is drawn. Every edge is between two of `nodes`."""

    title: str
    subtitle: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


def graph_of(lineage: Lineage) -> Graph:
    """The graph of a lineage."""
    runs = _lanes_of_runs(lineage)
    lane = max(runs.values())
    nodes: list[Node] = []
    edges: list[Edge] = []
    for part in (
        _inputs(lineage, lane),
        _runs(lineage, runs),
        _stories(lineage, runs),
        _recipe(lineage, lane),
    ):
        for item in part:
            (nodes if isinstance(item, Node) else edges).append(item)  # type: ignore[arg-type]
    kind = (
        "Why this recipe" if lineage.is_recipe else f"Where trial #{lineage.trial.trial} comes from"
    )
    return Graph(
        title=f"{kind}: {lineage.workload.name} on {lineage.cluster.name}",
        subtitle=(
            f"run {lineage.run_id} as of event {lineage.as_of_event}, head {lineage.head_hash[:16]}"
        ),
        nodes=tuple(nodes),
        edges=tuple(edges),
    )


def dot_of(graph: Graph) -> str:
    """The graph in Graphviz' language, ending in a newline."""
    heading = _quoted("\n".join((graph.title, graph.subtitle)))
    lines = [
        "digraph lineage {",
        f"  label={heading}; labelloc=t; rankdir=LR;",
        '  node [shape=box, style="rounded,filled", fillcolor=white, fontname="Helvetica"];',
        '  edge [fontname="Helvetica", fontsize=10];',
    ]
    for node in graph.nodes:
        text = "\n".join((node.title, *node.lines))
        colour = ", color=red" if node.bad else ""
        lines.append(f"  {_quoted(node.name)} [label={_quoted(text)}{colour}];")
    for edge in graph.edges:
        label = f"label={_quoted(edge.label)}" if edge.label else ""
        style = "style=dashed" if edge.dashed else ""
        given = ", ".join(text for text in (label, style) if text)
        arrow = f"{_quoted(edge.source)} -> {_quoted(edge.target)}"
        lines.append(f"  {arrow}{f' [{given}]' if given else ''};")
    for kind in KINDS:
        names = " ".join(_quoted(node.name) for node in graph.nodes if node.kind == kind)
        if names:
            lines.append(f"  {{ rank=same; {names} }}")
    return "\n".join((*lines, "}", ""))


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _lanes_of_runs(lineage: Lineage) -> dict[str, int]:
    """Each run of the lineage, oldest first → its lane."""
    forks = lineage.forks
    found = {forks[0].parent if forks else lineage.run_id: 0}
    lane = 0
    for fork in forks:
        lane += not fork.inherits
        found[fork.place.run_id] = lane
    return found


def _inputs(lineage: Lineage, lane: int) -> Iterator[Node | Edge]:
    parts = {"workload": ("model",), "cluster": ("cluster", "stack")}
    for role, fed in parts.items():
        for node in _file_nodes(lineage.files, role, lane):
            yield node
            for name in fed:
                yield Edge(node.name, f"signature {name}")
    first = next(run for run, of in _lanes_of_runs(lineage).items() if of == lane)
    for name, part in lineage.signature.items():
        lines = (part.hash, *_signature_words(lineage, name))
        yield Node(f"signature {name}", "signature", lane, name, lines, bad=not part.hash_holds)
        yield Edge(f"signature {name}", f"run {first}")


def _file_nodes(files: Sequence[InputFile], role: str, lane: int) -> Iterator[Node]:
    mine = [file for file in files if file.role == role]
    for file in mine[:MAX_FILES]:
        short = file.path.replace("\\", "/").rpartition("/")[2]
        lines = (*_wrapped(short, 1), f"sha256 {file.sha256[:16]}")
        yield Node(f"file {file.path}", "file", lane, f"{role} file", lines)
    if len(mine) > MAX_FILES:
        more = f"{len(mine) - MAX_FILES} more"
        yield Node(f"files {role}", "file", lane, f"{role} files", (more,))


def _signature_words(lineage: Lineage, part: str) -> tuple[str, ...]:
    if part == "model":
        return _wrapped(lineage.workload.name, 2)
    if part == "cluster":
        return _wrapped(lineage.cluster.name, 2)
    return (f"Refold {lineage.refold_version}", f"projection {lineage.projection_version}")


def _runs(lineage: Lineage, runs: dict[str, int]) -> Iterator[Node | Edge]:
    began = {fork.place.run_id: fork for fork in lineage.forks}
    for run, lane in runs.items():
        fork = began.get(run)
        title = "run" if fork is None else "fork"
        yield Node(f"run {run}", "run", lane, title, (*_run_id(run), *_changes(fork)))
        if fork is not None:
            yield Edge(f"run {fork.parent}", f"run {run}", f"event {fork.parent_seq}")


def _run_id(run: str) -> tuple[str, ...]:
    """Broken before its last part, by which it can be named."""
    time, dash, entropy = run.rpartition("-")
    return (f"{time}{dash}", entropy) if len(run) > LINE_CHARS else (run,)


def _changes(fork: ForkStep | None) -> tuple[str, ...]:
    if fork is None:
        return ()
    return _wrapped("; ".join(fork.changed) or "nothing changed", MAX_LINES)


def _stories(lineage: Lineage, runs: dict[str, int]) -> Iterator[Node | Edge]:
    story: TrialStory | None = lineage.trial
    lane = max(runs.values())
    while story is not None:
        mine = [run for run, of in runs.items() if of == lane]
        yield from _story(story, lane, mine)
        if story.carried_from is not None:
            yield Edge(f"trial {lane - 1}", f"proposer {lane}", "carried")
        story, lane = story.carried_from, lane - 1


def _story(story: TrialStory, lane: int, runs: Sequence[str]) -> Iterator[Node | Edge]:
    planned = f", {story.planned} planned" if story.planned else ""
    words = (f"{story.proposer}{planned}",)
    yield Node(f"round {lane}", "round", lane, f"round {story.round}", words)
    yield _proposer(story, lane)
    changed = ", ".join(f"{name} {_value(value)}" for name, (_, value) in story.changed.items())
    lines = (*_wrapped(story.tag, 1), story.trial_id, *_wrapped(changed, MAX_LINES))
    yield Node(f"trial {lane}", "trial", lane, f"trial #{story.trial}", lines)
    chain = (f"run {story.place.run_id}", f"round {lane}", f"proposer {lane}", f"trial {lane}")
    for source, target in pairwise(chain):
        yield Edge(source, target)
    mine = _evaluations_in(runs, story)
    elsewhere = sum(not e.in_lineage for e in story.evaluations)
    for number, evaluation in enumerate(mine):
        name = f"evaluation {lane}.{number}"
        also = (f"and {elsewhere} in other runs",) if elsewhere and number == 0 else ()
        lines = (*_evaluation_words(evaluation), *also, *_invalid(story))
        title = f"event {evaluation.place.seq}: {evaluation.code or evaluation.verdict}"
        yield Node(name, "evaluation", lane, title, lines, bad=story.invalidated)
        yield Edge(f"trial {lane}", name)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _proposer(story: TrialStory, lane: int) -> Node:
    if story.recalled_from is not None:
        origin = story.recalled_from
        lines = (f"trial #{origin.trial} of run", *_run_id(origin.run_id))
        return Node(f"proposer {lane}", "proposer", lane, f"rule {story.rule}", lines)
    why = _wrapped(story.why, MAX_LINES)
    if story.call is None:
        return Node(f"proposer {lane}", "proposer", lane, f"rule {story.rule}", why)
    call = story.call
    lines = (*_wrapped(call.model, 1), f"prompt {call.prompt_hash[:16]}", *why)
    return Node(f"proposer {lane}", "proposer", lane, f"LLM call {call.call}, {call.role}", lines)


def _evaluation_words(evaluation: RecordedEvaluation) -> tuple[str, ...]:
    tokens, memory, cap = (
        evaluation.tokens_per_s_per_gpu,
        evaluation.memory_per_gpu_gb,
        evaluation.cap_gb,
    )
    lines = []
    if tokens is not None:
        lines.append(f"{tokens:,.0f} tokens/s/GPU")
    if memory is not None and cap is not None:
        lines.append(f"{memory:,.1f} of {cap:,.1f} GB")
    if evaluation.provenance is not None:
        lines.append(f"{evaluation.provenance}, {evaluation.source}")
    return (*lines, *(("from the cache",) if evaluation.from_cache else ()))


def _invalid(story: TrialStory) -> tuple[str, ...]:
    here = [c for c in story.corrections if c.in_lineage and c.trial == story.trial]
    return _wrapped(f"invalidated: {here[-1].why}", MAX_LINES) if here else ()


def _recipe(lineage: Lineage, lane: int) -> Iterator[Node | Edge]:
    if not lineage.is_recipe:
        return
    lines = []
    rivals = {"the workload": lineage.baseline, "next best": lineage.next_best}
    for words, rival in rivals.items():
        if rival is not None and rival.lead_percent is not None and rival.lead_percent > 0:
            lines.append(f"beats {words} #{rival.trial} by {rival.lead_percent:.1f} %")
    lines.append(f"{lineage.candidates} candidates, {sum(lineage.rejected.values())} rejected")
    lines.append(f"as of event {lineage.as_of_event}")
    yield Node("recipe", "recipe", lane, "recipe", tuple(lines))
    here = [run for run, of in _lanes_of_runs(lineage).items() if of == lane]
    last = len(_evaluations_in(here, lineage.trial)) - 1
    yield Edge(f"evaluation {lane}.{last}", "recipe")
    if lineage.trial.place.run_id != lineage.run_id:
        yield Edge(f"run {lineage.run_id}", "recipe", "its best", dashed=True)


def _evaluations_in(runs: Sequence[str], story: TrialStory) -> list[RecordedEvaluation]:
    """Those of the story's own search: a trial's number is that of another one elsewhere."""
    mine = [e for e in story.evaluations if e.in_lineage and e.trial == story.trial]
    return [e for e in mine if e.place.run_id in runs]


def _wrapped(text: str, lines: int) -> tuple[str, ...]:
    """`text` in at most `lines` lines; what is cut off ends in an ellipsis."""
    broken = textwrap.wrap(text, LINE_CHARS, break_on_hyphens=False)
    if len(broken) <= lines:
        return tuple(broken)
    return (*broken[: lines - 1], f"{broken[lines - 1][: LINE_CHARS - 1]}…")
