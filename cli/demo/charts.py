"""The pictures of the report, as SVG by matplotlib. Colours of INK are the page's own variables, for its dark mode."""

from io import StringIO
from typing import TYPE_CHECKING

from kohort.cli.demo.ledger import GroupHistory

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's palette for colour-blind readers, on light and on dark.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8a7f00", "#7f7f7f")
INK = {"soft": "#697387", "good": "#0b7a4c", "bad": "#b3261f", "undone": "#8a3ffd"}
MARKS = {"started": (">", "good", 0.0), "killed": ("X", "bad", 0.0), "checkpoint": ("|", "good", 0.42)}
FONT_SIZE = 8
NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))


def group_charts(history: GroupHistory) -> str:
    """Ownership by member, and the records that are not read and not in a checkpoint, over one axis of seconds."""
    import matplotlib
    from matplotlib.figure import Figure

    settings = {"svg.fonttype": "none", "svg.hashsalt": "kohort", "font.size": FONT_SIZE}
    settings |= dict.fromkeys(("text.color", "axes.edgecolor", "xtick.color", "ytick.color"), INK["soft"])
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=(10.4, 3.6 + 0.6 * len(history.members)), layout="constrained")
        owners, lag = figure.subplots(2, 1, sharex=True, height_ratios=(0.6 * len(history.members), 2.6))
        _draw_owners(owners, history)
        _draw_lag(lag, history)
        for axes in (owners, lag):
            axes.spines[["top", "right", "left"]].set_visible(False)
            axes.patch.set_visible(False)
        out = StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata=NO_METADATA)
    svg = out.getvalue()
    for name, colour in INK.items():
        svg = svg.replace(colour, f"var(--{name})")
    return svg[svg.index("<svg") :]


def _draw_owners(axes: "Axes", history: GroupHistory) -> None:
    """One lane a member, one bar a partition it owned; kills, starts, resets and checkpoints where they fell."""
    lanes, small = {name: place for place, name in enumerate(history.members)}, FONT_SIZE - 1
    for span in history.spans:
        lane, at_s, stop_s = lanes[span.member], history.at_s(span.start_ms), history.at_s(span.stop_ms)
        if not span.partitions:
            axes.barh(lane, max(stop_s - at_s, 0.1), 0.9, at_s, color=INK["undone"], alpha=0.3)
            continue
        height = 0.7 / len(span.partitions)
        for place, partition in enumerate(span.partitions):
            top = lane - 0.35 + (place + 0.5) * height
            axes.barh(top, stop_s - at_s, 0.85 * height, at_s, color=COLOURS[partition % len(COLOURS)])
            if stop_s - at_s > 0.5:
                axes.text(at_s + 0.1, top, f"{partition}", va="center", color="white", fontsize=small)
        if stop_s - at_s > 2:
            axes.text(at_s, lane - 0.38, f"generation {span.generation}", fontsize=small)
    for one in history.events:
        if one.kind in MARKS:
            mark, ink, below = MARKS[one.kind]
            axes.plot(history.at_s(one.at_ms), lanes[one.member] + below, mark, color=INK[ink], clip_on=False)
    axes.set_yticks(list(lanes.values()), list(lanes))
    axes.invert_yaxis()


def _draw_lag(axes: "Axes", history: GroupHistory) -> None:
    """Partition upon partition, and as a line the records that no checkpoint has yet."""
    seconds = [history.at_s(at_ms) for at_ms, _, _ in history.samples]
    stacks = [[lag[partition] for _, lag, _ in history.samples] for partition in history.ends]
    axes.stackplot(seconds, stacks, colors=[COLOURS[partition % len(COLOURS)] for partition in history.ends])
    axes.plot(seconds, [unsaved for _, _, unsaved in history.samples], color=INK["undone"])
    for one in history.events:
        at_s = history.at_s(one.at_ms)
        if one.kind == "killed" or (one.kind == "started" and at_s > 1):
            colour, side = (INK["bad"], {"ha": "right"}) if one.kind == "killed" else (INK["soft"], {"rotation": 20})
            axes.axvline(at_s, color=colour, linestyle="--", linewidth=1)
            axes.text(at_s, history.total, f"{one.member} {one.kind}", color=colour, **side)
    axes.set_ylabel("records", color=INK["soft"])
    axes.set_xlabel("seconds", color=INK["soft"])
    axes.yaxis.set_major_formatter("{x:,.0f}")
