"""The long run as one HTML page: findings, faults with targets and times, and the resources of every process."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #1b1f24 }
h1, h2 { line-height: 1.2 } h2 { margin-top: 2.5rem }
table { border-collapse: collapse; margin: 1rem 0 } td, th { padding: .25rem .8rem .25rem 0; text-align: left;
  vertical-align: top; border-bottom: 1px solid #d8dee4 } td.n { text-align: right; font-variant-numeric: tabular-nums }
.good { color: #1a7f37 } .bad { color: #b42318 } img { max-width: 100% } .soft { color: #57606a }
details { margin: .5rem 0 }
"""
_MEASURES = (("resident_mib", "resident memory, MiB"), ("threads", "threads"), ("descriptors", "descriptors"))


def page(turns: Sequence[Mapping[str, Any]], command: str, machine: str) -> str:
    """HTML that fetches nothing. `turns`: as they are kept."""
    hours = sum(turn["seconds"] for turn in turns) / 3600
    findings = [text for turn in turns for text in turn["findings"]]
    verdict = "nothing was found" if not findings else f"{len(findings)} findings"
    head = (
        f"<h1>A long run: {hours:.2f} hours, {verdict}</h1>"
        f"<p class=soft>{escape(command)} · {escape(machine)}</p>"
        "<p>On three brokers, at once and from one seed: a group of ours and other clients, in which two of ours and "
        "one other stay to the end while others come, go, are killed and frozen; a consistent region of three; a Spark "
        "stream. Brokers are killed, frozen and restarted one after the other. The region and Spark read a log of "
        "transactions, of which a third is aborted.</p>"
    )
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><title>A long run</title>"
        f"<style>{_STYLE}</style>{head}{''.join(_turn(turn) for turn in turns)}</html>\n"
    )


def _turn(turn: Mapping[str, Any]) -> str:
    good = not turn["findings"]
    verdict = (
        "<span class=good>nothing found</span>" if good else f"<span class=bad>{len(turn['findings'])} found</span>"
    )
    picture = base64.b64encode(draw(turn)).decode()
    return (
        f"<h2>Seed {turn['seed']}, {turn['seconds'] / 60:.0f} minutes: {verdict}</h2>"
        f"{_list(turn['findings'], 'bad')}"
        f"<table><tr><th>what<th>came to</tr>{''.join(_part(name, turn[name]) for name in PARTS)}</table>"
        "<h3>What processes held</h3>"
        "<p class=soft>Each when it was warm (the second fifth of its life) and at its end (the last fifth): the "
        "median of memory, the least of threads and descriptors.</p>"
        f"{_growth(turn['growth'])}"
        f'<img alt="memory, threads and descriptors over time" src="data:image/png;base64,{picture}">'
        f"<details><summary>What was done: {len(turn['faults'])} faults</summary><table>"
        + "".join(
            f"<tr><td class=n>{at_s:.0f} s<td>{escape(what)}<td>{escape(whom)}</tr>"
            for at_s, what, whom in turn["faults"]
        )
        + f"</table></details><details><summary>About other clients: {len(turn['about_others'])}</summary>"
        f"{_list(turn['about_others'], 'soft')}</details>"
    )


PARTS = {
    "group": "A mixed group: one owner each, in order, nothing lost, commits by owners only and in time",
    "region": "A region: each record of the log took effect once",
    "spark": "A Spark stream: each record of the log is a row once",
    "ledger": "The log's transactions",
}


def _part(name: str, facts: Mapping[str, Any]) -> str:
    reported = ", ".join(f"{escape(str(label))}: {escape(_shown(value))}" for label, value in facts.items())
    return f"<tr><td>{PARTS[name]}<td>{reported or 'nothing: it did not come to its end'}</tr>"


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{count} {name}" for name, count in value.items()) or "none"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _growth(lives: Sequence[Mapping[str, Any]]) -> str:
    if not lives:
        return "<p>No process lived long enough to be warm.</p>"
    head = "<tr><th>process<th>hours<th>memory, MiB<th>threads<th>descriptors<th></tr>"
    return f"<table>{head}{''.join(map(_grown, lives))}</table>"


def _grown(one: Mapping[str, Any]) -> str:
    cells = "".join(f"<td class=n>{one[name][0]:,} → {one[name][1]:,}" for name, _title in _MEASURES)
    verdict = f"<span class=bad>{escape(', '.join(one['grew']))}</span>" if one["grew"] else ""
    return f"<tr><td>{escape(one['who'])}<td class=n>{one['hours']:.2f}{cells}<td>{verdict}</tr>"


def _list(lines: Sequence[str], kind: str) -> str:
    return "".join(f"<p class={kind}>{escape(line)}</p>" for line in lines)


def draw(turn: Mapping[str, Any]) -> bytes:
    """A PNG: what each process held over time; a grey line where a broker fell."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    lives: dict[tuple[str, int], list[Sequence[Any]]] = {}
    for sample in turn["samples"]:
        lives.setdefault((sample[1], sample[2]), []).append(sample)
    names = sorted({who for who, _pid in lives})
    colours = {who: pyplot.get_cmap("tab10")(index % 10) for index, who in enumerate(names)}
    figure, axes = pyplot.subplots(len(_MEASURES), 1, figsize=(11, 9), sharex=True, layout="constrained")
    for number, (_name, title) in enumerate(_MEASURES):
        for at_s, _what, whom in turn["faults"]:
            if whom.startswith("broker"):
                axes[number].axvline(at_s / 60, color="0.88", linewidth=1, zorder=0)
        seen = set()
        for (who, _pid), life in lives.items():
            label = None if who in seen else who
            seen.add(who)
            minutes, held = [one[0] / 60 for one in life], [one[3 + number] for one in life]
            axes[number].plot(minutes, held, color=colours[who], linewidth=1.2, label=label)
        axes[number].set_title(title, loc="left", fontsize=10)
        axes[number].set_ylim(bottom=0)
        axes[number].yaxis.get_major_locator().set_params(integer=True)
        axes[number].spines[["top", "right"]].set_visible(False)
    axes[-1].set_xlabel("minutes; grey: a broker is killed, frozen or restarted")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=110)
    pyplot.close(figure)
    return buffer.getvalue()
