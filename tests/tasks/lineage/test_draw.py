"""The drawn lineage: every arrow has its ends, every text its box, and no box another's place."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from schemas.lineage import Lineage
from storage import Entry, EventLog, Store
from tasks.lineage import lineage_of_trial
from tasks.lineage.draw import CHAR_EM, svg_of
from tasks.lineage.graph import KINDS, LINE_CHARS, dot_of, graph_of
from tests.storage.builders import write
from tests.storage.forked_runs import CHILD, PARENT, child_run, forked, invalidated, parent_run

SVG = "{http://www.w3.org/2000/svg}"
CASES = ["a call", "carried", "inherited", "invalidated", "rejected"]


@pytest.fixture(params=CASES)
def lineage(request: pytest.FixtureRequest, tmp_path: Path) -> Lineage:
    parent_run(tmp_path)
    store = Store.at(tmp_path)
    match request.param:
        case "carried":
            child_run(tmp_path)
            return lineage_of_trial(store, CHILD)
        case "inherited":
            forked(tmp_path, CHILD, PARENT, 18, inherits=True).close()
            return lineage_of_trial(store, CHILD)
        case "invalidated":
            with EventLog.open(store, PARENT, writing=True) as log:
                write(log, [[Entry(invalidated(3, 2), 1, 3)]])
            return lineage_of_trial(store, PARENT, trial=3)
        case "rejected":
            return lineage_of_trial(store, PARENT, trial=1)
    return lineage_of_trial(store, PARENT)


def test_arrows_join_nodes_that_are_there_and_point_onwards(lineage: Lineage):
    graph = graph_of(lineage)
    nodes = {node.name: node for node in graph.nodes}
    assert len(nodes) == len(graph.nodes)
    for edge in graph.edges:
        source, target = nodes[edge.source], nodes[edge.target]
        onwards = KINDS.index(source.kind) < KINDS.index(target.kind)
        assert onwards or source.lane < target.lane or source.kind == target.kind == "run"
    reached = {edge.target for edge in graph.edges}
    first = {node.name for node in graph.nodes if node.kind == "file"}
    assert nodes.keys() - reached - first <= {f"run {PARENT}"}


def test_every_kind_of_node_is_on_it(lineage: Lineage):
    kinds = {node.kind for node in graph_of(lineage).nodes}
    assert kinds == set(KINDS) - (set() if lineage.is_recipe else {"recipe"})


def test_boxes_hold_their_texts_and_do_not_overlap(lineage: Lineage):
    root = ElementTree.fromstring(svg_of(graph_of(lineage)))
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    boxes = []
    for group in root.iter(f"{SVG}g"):
        (rect,) = group.iter(f"{SVG}rect")
        x, y, w, h = (float(rect.attrib[key]) for key in ("x", "y", "width", "height"))
        boxes.append((x, y, x + w, y + h))
        assert 0 <= x < x + w <= width
        assert 0 <= y < y + h <= height
        for text in group.iter(f"{SVG}text"):
            left, size = float(text.attrib["x"]), float(text.attrib["font-size"])
            assert left + len(text.text or "") * size * CHAR_EM <= x + w
            assert y < float(text.attrib["y"]) < y + h
    for number, (left, top, right, bottom) in enumerate(boxes):
        for x, y, end, low in boxes[number + 1 :]:
            assert end < left or right < x or low < top or bottom < y


def test_the_same_lineage_is_the_same_bytes(lineage: Lineage):
    assert svg_of(graph_of(lineage)) == svg_of(graph_of(lineage))
    assert dot_of(graph_of(lineage)) == dot_of(graph_of(lineage))


def test_the_graphviz_file_quotes_what_people_wrote(lineage: Lineage):
    awkward = 'a "quoted" \\ tag'
    trial = lineage.trial.model_copy(update={"tag": awkward})
    text = dot_of(graph_of(lineage.model_copy(update={"trial": trial})))
    assert r"a \"quoted\" \\ tag" in text
    strings = re.sub(r'"(?:[^"\\]|\\.)*"', "S", text)
    assert '"' not in strings
    assert strings.count("{") == strings.count("}")


def test_long_texts_are_cut_not_dropped(lineage: Lineage):
    trial = lineage.trial.model_copy(update={"tag": "tag" * 40, "why": "why " * 90})
    nodes = graph_of(lineage.model_copy(update={"trial": trial})).nodes
    asked = [node for node in nodes if node.kind in ("proposer", "trial")]
    texts = [line for node in asked for line in node.lines]
    assert max(map(len, texts)) <= LINE_CHARS
    assert any(line.startswith("tagtag") and line.endswith("…") for line in texts)
    assert any(line.startswith("why why") and line.endswith("…") for line in texts)
    assert "…" not in texts


def test_an_invalidated_trial_says_why(tmp_path: Path):
    parent_run(tmp_path)
    with EventLog.open(tmp_path, PARENT, writing=True) as log:
        write(log, [[Entry(invalidated(3, 2), 1, 3)]])
    graph = graph_of(lineage_of_trial(Store.at(tmp_path), PARENT, trial=3))
    (bad,) = [node for node in graph.nodes if node.bad]
    assert (bad.kind, bad.lines[-1]) == ("evaluation", "invalidated: a wrong driver")
