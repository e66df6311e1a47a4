"""A lineage graph as SVG: a column per kind of node, a lane per search, arrows from left to right.

Written directly: the same graph gives the same bytes, and the text stays text.
"""

from dataclasses import dataclass
from html import escape

from tasks.lineage.graph import KINDS, Edge, Graph, Kind, Node

FONT = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
TITLE_PX, LINE_PX = 13, 12
CHAR_EM = 0.56
"""Mean width of a character; generous, for the viewer's font may be wider than ours."""
LINE_HEIGHT, PADDING = 16, 10
COLUMN_GAP, ROW_GAP, LANE_GAP, MARGIN = 46, 34, 56, 28
HEADER = 104
"""Above the first lane: title, subtitle and the columns' names."""

HEADINGS: dict[Kind, str] = {
    "file": "files",
    "signature": "signature",
    "run": "run",
    "round": "round",
    "proposer": "rule or LLM call",
    "trial": "trial",
    "evaluation": "evaluation",
    "recipe": "recipe",
}
COLOURS: dict[Kind, tuple[str, str]] = {
    "file": ("#F4F4F4", "#7F7F7F"),
    "signature": ("#EEF3FA", "#4A78A8"),
    "run": ("#FFF6E0", "#C58A00"),
    "round": ("#FFF6E0", "#C58A00"),
    "proposer": ("#FBEFF6", "#A8588A"),
    "trial": ("#E9F3FB", "#0072B2"),
    "evaluation": ("#E9F3FB", "#0072B2"),
    "recipe": ("#E3F5EE", "#009E73"),
}
"""Fill and border."""
BAD = ("#FDEDE4", "#D55E00")
INK, FAINT, ARROW = "#222222", "#777777", "#8A8A8A"


@dataclass(frozen=True, slots=True)
class Box:
    """A node where it is drawn, in px."""

    node: Node
    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        """Height of its middle."""
        return self.y + self.height / 2

    @property
    def centre(self) -> float:
        """Where its middle is from left to right."""
        return self.x + self.width / 2


def svg_of(graph: Graph) -> str:
    """The graph as an SVG document, ending in a newline."""
    boxes = _placed(graph)
    names = {box.node.name: box for box in boxes}
    bottom = max(box.y + box.height for box in boxes)
    texts = (_text_width(graph.title, 18), _text_width(graph.subtitle, LINE_PX))
    width = max(*(box.x + box.width for box in boxes), *(MARGIN + text for text in texts))
    low = any(edge.dashed for edge in graph.edges)
    wide, high = f"{width + MARGIN:.0f}", f"{bottom + MARGIN + (26 if low else 0):.0f}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}"'
            f' viewBox="0 0 {wide} {high}" font-family="{FONT}">',
            '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7"'
            f' markerHeight="7" orient="auto"><path d="M0 1 L9 5 L0 9 z" fill="{ARROW}"/></marker>'
            "</defs>",
            '<rect width="100%" height="100%" fill="white"/>',
            _text(MARGIN, 38, graph.title, 18, INK, bold=True),
            _text(MARGIN, 58, graph.subtitle, LINE_PX, FAINT),
            *_headings(boxes),
            *(_arrow(edge, names, bottom) for edge in graph.edges),
            *(_box(box) for box in boxes),
            "</svg>",
            "",
        ]
    )


def _placed(graph: Graph) -> list[Box]:
    """Columns as wide as their widest node; within a lane each column is centred."""
    kinds = [kind for kind in KINDS if any(node.kind == kind for node in graph.nodes)]
    left: dict[Kind, float] = {}
    x = float(MARGIN)
    for kind in kinds:
        left[kind] = x
        x += _column_width(graph, kind) + COLUMN_GAP
    boxes = []
    y = float(HEADER)
    for lane in sorted({node.lane for node in graph.nodes}):
        mine = [node for node in graph.nodes if node.lane == lane]
        columns = {kind: [node for node in mine if node.kind == kind] for kind in kinds}
        height = max(_stack_height(nodes) for nodes in columns.values())
        for kind, nodes in columns.items():
            top = y + (height - _stack_height(nodes)) / 2
            for node in nodes:
                width = _column_width(graph, kind)
                boxes.append(Box(node, left[kind], top, width, _height(node)))
                top += _height(node) + ROW_GAP
        y += height + LANE_GAP
    return boxes


def _column_width(graph: Graph, kind: Kind) -> float:
    texts = [
        max(
            _text_width(node.title, TITLE_PX) * 1.08, *(_text_width(t, LINE_PX) for t in node.lines)
        )
        for node in graph.nodes
        if node.kind == kind
    ]
    return max(*texts, _text_width(HEADINGS[kind], TITLE_PX)) + 2 * PADDING


def _height(node: Node) -> float:
    return 2 * PADDING + LINE_HEIGHT * (1 + len(node.lines)) - 2


def _stack_height(nodes: list[Node]) -> float:
    return sum(_height(node) for node in nodes) + ROW_GAP * max(0, len(nodes) - 1)


def _text_width(text: str, px: float) -> float:
    return len(text) * px * CHAR_EM


def _headings(boxes: list[Box]) -> list[str]:
    columns = {box.node.kind: box for box in boxes}
    return [
        _text(box.x, HEADER - 16, HEADINGS[kind], TITLE_PX, COLOURS[kind][1], bold=True)
        for kind, box in columns.items()
    ]


def _box(box: Box) -> str:
    fill, border = BAD if box.node.bad else COLOURS[box.node.kind]
    thick = 2.4 if box.node.kind == "recipe" else 1.3
    parts = [
        f'<g><title>{escape(box.node.name)}</title><rect x="{box.x:.1f}" y="{box.y:.1f}"'
        f' width="{box.width:.1f}" height="{box.height:.1f}" rx="7" fill="{fill}"'
        f' stroke="{border}" stroke-width="{thick}"/>'
    ]
    x, y = box.x + PADDING, box.y + PADDING + 11
    parts.append(_text(x, y, box.node.title, TITLE_PX, INK, bold=True))
    for line in box.node.lines:
        y += LINE_HEIGHT
        parts.append(_text(x, y, line, LINE_PX, INK))
    return "".join([*parts, "</g>"])


def _arrow(edge: Edge, boxes: dict[str, Box], bottom: float) -> str:
    source, target = boxes[edge.source], boxes[edge.target]
    if edge.dashed:
        return _around(edge, source, target, bottom)
    if source.node.kind == target.node.kind:
        path, where = _down(source, target)
    elif source.node.lane != target.node.lane:
        path, where = _down_left(source, target)
    else:
        path, where = _across(source, target)
    return _line(path) + _label(edge, *where)


def _across(source: Box, target: Box) -> tuple[str, tuple[float, float]]:
    """From a right side to a left side, leaving and arriving level."""
    x, end = source.x + source.width, target.x
    bend = max(20.0, (end - x) / 2)
    path = (
        f"M{x:.1f} {source.middle:.1f} C{x + bend:.1f} {source.middle:.1f}"
        f" {end - bend:.1f} {target.middle:.1f} {end - 1:.1f} {target.middle:.1f}"
    )
    return path, ((x + end) / 2, (source.middle + target.middle) / 2 - 6)


def _down(source: Box, target: Box) -> tuple[str, tuple[float, float]]:
    """Within a column, from a lower edge to an upper one."""
    start, end = source.y + source.height, target.y
    path = f"M{source.centre:.1f} {start:.1f} L{source.centre:.1f} {end - 1:.1f}"
    return path, (source.centre + 8, (start + end) / 2 + 4)


def _down_left(source: Box, target: Box) -> tuple[str, tuple[float, float]]:
    """From a lane to the one below."""
    start, end = source.y + source.height, target.y
    bend = (end - start) / 2
    path = (
        f"M{source.centre:.1f} {start:.1f} C{source.centre:.1f} {start + bend:.1f}"
        f" {target.centre:.1f} {end - bend:.1f} {target.centre:.1f} {end - 1:.1f}"
    )
    return path, ((source.centre + target.centre) / 2 + 8, (start + end) / 2 + 14)


def _around(edge: Edge, source: Box, target: Box, bottom: float) -> str:
    """Below everything between the two."""
    low, round_ = bottom + 22, 10
    path = (
        f"M{source.centre:.1f} {source.y + source.height:.1f} V{low - round_:.1f}"
        f" q0 {round_} {round_} {round_} H{target.centre - round_:.1f}"
        f" q{round_} 0 {round_} -{round_} V{target.y + target.height + 1:.1f}"
    )
    return _line(path, dashed=True) + _label(edge, source.centre + 18, low - 6)


def _line(path: str, *, dashed: bool = False) -> str:
    dashes = ' stroke-dasharray="6 4"' if dashed else ""
    return (
        f'<path d="{path}" fill="none" stroke="{ARROW}" stroke-width="1.5"{dashes}'
        ' marker-end="url(#tip)"/>'
    )


def _label(edge: Edge, x: float, y: float) -> str:
    return _text(x, y, edge.label, LINE_PX - 1, FAINT) if edge.label else ""


def _text(x: float, y: float, text: str, px: float, colour: str, *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{px}" fill="{colour}"{weight}>'
        f"{escape(text)}</text>"
    )
