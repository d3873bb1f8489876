"""Pictures as SVG text: no library, nothing fetched, colours from the page's own variables so that dark mode works."""

from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise

from kohort.cli.demo.ledger import Happening
from kohort.cli.demo.outcome import DemoSample
from kohort.cli.demo.timeline import DemoReset, TimelineSpan, resets

WIDTH, LEFT, RIGHT = 1040, 96, 16
LANE, GAP, LABEL = 54, 14, 150
# Okabe and Ito's palette: told apart by people who see colours differently, on light and on dark.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8a7f00", "#7f7f7f")


def colour(partition: int) -> str:
    return COLOURS[partition % len(COLOURS)]


class Axis:
    """Milliseconds to pixels, from `start_ms` on."""

    def __init__(self, start_ms: int, stop_ms: int) -> None:
        self.start_ms = start_ms
        self.stop_ms = max(stop_ms, start_ms + 1)

    def x(self, at_ms: float) -> float:
        share = (min(max(at_ms, self.start_ms), self.stop_ms) - self.start_ms) / (self.stop_ms - self.start_ms)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def ticks_s(self) -> list[int]:
        whole_s = (self.stop_ms - self.start_ms) / 1000
        step = next(step for step in (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 3600) if whole_s / step <= 12)
        return list(range(0, int(whole_s) + 1, step))


def timeline(lanes: Sequence[str], spans: Sequence[TimelineSpan], happenings: Sequence[Happening], axis: Axis) -> str:
    """One lane a member, one thin bar a partition it owned; kills, rebalances, resets and checkpoints as they fell."""
    top = 26
    bottom = top + len(lanes) * (LANE + GAP)
    at = {member: top + index * (LANE + GAP) for index, member in enumerate(lanes)}
    parts = [_grid(axis, top, bottom)]
    for member in lanes:
        y = at[member]
        parts.append(f'<rect class="lane" x="{LEFT}" y="{y}" width="{WIDTH - LEFT - RIGHT}" height="{LANE}" rx="6"/>')
        parts.append(
            f'<text class="name" x="{LEFT - 12}" y="{y + LANE / 2 + 5}" text-anchor="end">{escape(member)}</text>'
        )
    for span in spans:
        parts.append(_span(span, at[span.member], axis))
    for previous, following in _waits(spans, lanes):
        x, width = axis.x(previous.stop_ms), axis.x(following.start_ms) - axis.x(previous.stop_ms)
        label = "waiting for the group" if width > 150 else ""
        y = at[previous.member]
        parts.append(f'<rect class="wait" x="{x:.1f}" y="{y + 6}" width="{width:.1f}" height="{LANE - 12}"/>')
        parts.append(
            f'<text class="soft" x="{x + width / 2:.1f}" y="{y + LANE / 2 + 4}" text-anchor="middle">{label}</text>'
        )
    undone = [reset for reset in resets(happenings) if reset.member in at]
    parts += [_reset(reset, at[reset.member], axis) for reset in undone]
    parts += _where_to(undone, top, axis)
    for one in happenings:
        if one.member not in at:
            continue
        if one.kind in ("started", "killed"):
            parts.append(_flag(one, at[one.member], axis))
        elif one.kind == "checkpoint":
            x = axis.x(one.at_ms)
            y = at[one.member] + LANE - 6
            parts.append(f'<path class="saved" d="M{x:.1f} {y} v6"><title>{escape(one.cause)}</title></path>')
    return _svg(bottom + 24, parts, "Who owned which partition, and when; where the region went back")


def _reset(reset: DemoReset, y: float, axis: Axis) -> str:
    x, stop = axis.x(reset.start_ms), axis.x(reset.stop_ms)
    width = max(stop - x, 3.0)
    seconds = (reset.stop_ms - reset.start_ms) / 1000
    where = f" {reset.where}" if reset.where else ""
    told = f"<title>{escape(reset.member)}: {escape(reset.why)}; back{escape(where)} after {seconds:.2f} s</title>"
    return f'<rect class="reset" x="{x:.1f}" y="{y}" width="{width:.1f}" height="{LANE}" rx="3">{told}</rect>'


def _where_to(resets_: Sequence[DemoReset], top: float, axis: Axis) -> list[str]:
    """Above the lanes, once for resets that lie close together: where the region went back to."""
    parts, free_at = [], 0.0
    for reset in sorted(resets_, key=lambda one: one.start_ms):
        x = axis.x(reset.start_ms)
        if reset.where and x >= free_at:
            parts.append(f'<text class="undone" x="{x:.1f}" y="{top - 8}">back {escape(reset.where)}</text>')
            free_at = x + LABEL
    return parts


def _span(span: TimelineSpan, y: float, axis: Axis) -> str:
    x, stop = axis.x(span.start_ms), axis.x(span.stop_ms)
    width = max(stop - x, 1.5)
    seconds = (span.stop_ms - span.start_ms) / 1000
    owned = ", ".join(str(partition) for partition in span.partitions)
    bars = [
        f"<g><title>{escape(span.member)}: partitions {owned}, generation {span.generation}, {seconds:.1f} s</title>"
    ]
    pitch = (LANE - 20) / max(len(span.partitions), 1)
    height = max(min(pitch - 2, 13), 3)
    for index, partition in enumerate(span.partitions):
        top = y + 17 + index * pitch + (pitch - height) / 2
        bars.append(
            f'<rect x="{x:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" rx="2" '
            f'fill="{colour(partition)}"/>'
        )
        if width > 16 and height >= 10:
            bars.append(f'<text class="chip" x="{x + 5:.1f}" y="{top + height - 2.8:.1f}">{partition}</text>')
    if width > 70:
        bars.append(f'<text class="soft" x="{x + 1:.1f}" y="{y + 13}">generation {span.generation}</text>')
    return "".join(bars) + "</g>"


def _waits(spans: Sequence[TimelineSpan], lanes: Sequence[str]) -> list[tuple[TimelineSpan, TimelineSpan]]:
    """Neighbouring spans of a member with a hole between: it had given up its partitions and had no others yet."""
    found = []
    for member in lanes:
        mine = [span for span in spans if span.member == member]
        found += [(one, two) for one, two in pairwise(mine) if two.start_ms > one.stop_ms]
    return found


def _flag(one: Happening, y: float, axis: Axis) -> str:
    x = axis.x(one.at_ms)
    if one.kind == "started":
        return f'<path class="start" d="M{x:.1f} {y + 4} v{LANE - 8} m0 {-(LANE - 8) / 2} l-6 -5 v10 z"/>'
    arm = 7
    middle = y + LANE / 2
    cross = f"M{x - arm:.1f} {middle - arm} l{2 * arm} {2 * arm} m0 {-2 * arm} l{-2 * arm} {2 * arm}"
    return f'<path class="kill" d="{cross}"/><text class="killed" x="{x + 6:.1f}" y="{y + 13}">SIGKILL</text>'


def lag(samples: Sequence[DemoSample], happenings: Sequence[Happening], axis: Axis) -> str:
    """Records not yet on the ledger, partition upon partition; and as a line those that no checkpoint has yet."""
    top, height = 40, 210
    bottom = top + height
    partitions = sorted({partition for sample in samples for partition in sample.lag})
    highest = max((sum(sample.lag.values()) for sample in samples), default=0) or 1
    step = _round_step(highest)

    def y(value: float) -> float:
        return bottom - value / highest * (height - 8)

    parts = [_grid(axis, top, bottom)]
    for value in range(0, highest + 1, step):
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>')
        parts.append(
            f'<text class="soft" x="{LEFT - 10}" y="{y(value) + 4:.1f}" text-anchor="end">{_short(value)}</text>'
        )
    base = [0.0] * len(samples)
    for partition in partitions:
        upper = [below + sample.lag.get(partition, 0) for below, sample in zip(base, samples, strict=True)]
        there = [f"{axis.x(s.at_ms):.1f},{y(v):.1f}" for s, v in zip(samples, upper, strict=True)]
        back = [f"{axis.x(s.at_ms):.1f},{y(v):.1f}" for s, v in zip(reversed(samples), reversed(base), strict=True)]
        parts.append(
            f'<polygon class="area" fill="{colour(partition)}" points="{" ".join(there + back)}">'
            f"<title>partition {partition}</title></polygon>"
        )
        base = upper
    unsaved = " ".join(f"{axis.x(sample.at_ms):.1f},{y(min(sample.unsaved, highest)):.1f}" for sample in samples)
    parts.append(f'<polyline class="unsaved" points="{unsaved}"><title>not in a checkpoint yet</title></polyline>')
    for one in happenings:
        if one.kind == "killed":
            x = axis.x(one.at_ms)
            parts.append(f'<line class="kill" x1="{x:.1f}" x2="{x:.1f}" y1="{top - 30}" y2="{bottom}"/>')
            parts.append(
                f'<text class="killed" x="{x - 6:.1f}" y="{top - 20}" text-anchor="end">'
                f"{escape(one.member)} killed</text>"
            )
        elif one.kind == "started" and one.at_ms > axis.start_ms + 1000:
            x = axis.x(one.at_ms)
            parts.append(f'<line class="come" x1="{x:.1f}" x2="{x:.1f}" y1="{top - 30}" y2="{bottom}"/>')
            came = "is back" if any(h.kind == "killed" and h.member == one.member for h in happenings) else "joins"
            row = top - (6 if came == "is back" else 20)  # two may come close together
            parts.append(f'<text class="soft" x="{x + 6:.1f}" y="{row}">{escape(one.member)} {came}</text>')
    return _svg(bottom + 24, parts, "Records not yet read, over time")


def bars(values: Mapping[str, float], unit: str) -> str:
    """Horizontal bars, longest first scale."""
    highest = max(values.values(), default=0) or 1
    left, row = 190, 34
    parts = []
    for index, (name, value) in enumerate(values.items()):
        y = 6 + index * row
        width = value / highest * (WIDTH - left - 190)
        parts.append(f'<text class="name" x="{left - 12}" y="{y + 17}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<rect class="bar" x="{left}" y="{y}" width="{width:.1f}" height="24" rx="4"/>')
        parts.append(f'<text class="value" x="{left + width + 10:.1f}" y="{y + 17}">{value:,.0f} {escape(unit)}</text>')
    return _svg(12 + row * len(values), parts, "Throughput")


def _grid(axis: Axis, top: float, bottom: float) -> str:
    lines = []
    for second in axis.ticks_s():
        x = axis.x(axis.start_ms + second * 1000)
        lines.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}"/>')
        lines.append(f'<text class="soft" x="{x:.1f}" y="{bottom + 17}" text-anchor="middle">{second} s</text>')
    return "".join(lines)


def _svg(height: float, parts: Sequence[str], label: str) -> str:
    head = f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(label)}">'
    return head + "".join(parts) + "</svg>"


def _round_step(highest: float) -> int:
    """A step of 1, 2 or 5 times a power of ten that cuts `highest` into at most five."""
    size = 1
    while True:
        for factor in (1, 2, 5):
            if highest / (size * factor) <= 5:
                return size * factor
        size *= 10


def _short(value: int) -> str:
    if value >= 1_000_000:
        return f"{value / 1_000_000:g} M"
    return f"{value / 1000:g} k" if value >= 1000 else str(value)
