"""The report and its pictures, from an invented run; what a reader would check by eye is checked on the text."""

import dataclasses
import re
from html.parser import HTMLParser

import pytest

from kohort.cli.demo import charts, report
from kohort.cli.demo.filling import Filled, chunks
from kohort.cli.demo.ledger import Happening, LedgerSlice
from kohort.cli.demo.outcome import DemoOutcome, DemoSample, SparkReading
from kohort.cli.demo.tally import Aircraft, Totals
from kohort.cli.demo.timeline import DemoReset, TimelineSpan, owners, resets, spans

T0 = 1_795_262_000_000
NAMES = {"UA": "United Air Lines Inc.", "B6": "JetBlue & Sons <Airways>"}


def happenings() -> tuple[Happening, ...]:
    told = [
        (0, "ada", "started", -1, ()),
        (0, "ben", "started", -1, ()),
        (50, "cleo", "started", -1, ()),
        (900, "ada", "assigned", 1, (0, 1)),
        (920, "ben", "assigned", 1, (2, 3)),
        (940, "cleo", "assigned", 1, (4, 5)),
        (3100, "ben", "killed", -1, ()),
        (3600, "dora", "started", -1, ()),
        (4200, "ada", "revoked", 1, (0, 1)),
        (4250, "cleo", "revoked", 1, (4, 5)),
        (4200, "ada", "undone", -1, ()),
        (4250, "cleo", "undone", -1, ()),
        (5000, "ben", "started", -1, ()),
        (9000, "ada", "assigned", 2, (0, 1)),
        (9010, "cleo", "assigned", 2, (2, 3)),
        (9015, "dora", "assigned", 2, (4, 5)),
        (9100, "ada", "went_back", 2, ()),
        (9120, "cleo", "went_back", 2, ()),
        (10000, "ada", "checkpoint", 2, ()),
        (12800, "ada", "left", 2, ()),
        (12850, "cleo", "left", 2, ()),
        (12900, "dora", "left", 2, ()),
    ]
    causes = {"undone": "partitions moved", "went_back": "to checkpoint 4", "checkpoint": "checkpoint 5 is complete"}
    return tuple(
        Happening(i, T0 + at, who, kind, gen, parts, causes.get(kind, ""))
        for i, (at, who, kind, gen, parts) in enumerate(sorted(told, key=lambda one: one[0]))
    )


def outcome() -> DemoOutcome:
    totals = {
        Aircraft("UA", "N14228"): Totals(100, 98, 97, 2, 140_000, 512),
        Aircraft("UA", "N24211"): Totals(50, 50, 50, 0, 70_000, -20),
        Aircraft("B6", "N804JB"): Totals(60, 59, 59, 1, 90_000, 77),
        Aircraft("B6", ""): Totals(4, 0, 0, 4, 0, 0),
    }
    records = sum(one.events for one in totals.values())
    ends = {p: records // 6 + (p < records % 6) for p in range(6)}
    lag = [sum(ends.values()) - n for n in (0, 0, 90, 180, 200, 200, 210, 400, records)]
    samples = [
        DemoSample(T0 + 400 + i * 1500, {p: int(left / 6) for p in range(6)}, left) for i, left in enumerate(lag)
    ]
    slices = (
        LedgerSlice(1, T0 + 1000, "ben", 1, "flights", 2, 0, 60, False),
        LedgerSlice(2, T0 + 9100, "cleo", 2, "flights", 2, 40, 60, True),
        LedgerSlice(3, T0 + 9100, "cleo", 2, "flights", 2, 60, 106, False),
    )
    return DemoOutcome(
        title="kohort demo",
        broker="Apache Kafka 4.3.1",
        topic="flights",
        filled=Filled(chunks(records, ("java", "librdkafka")), 12.8),
        ends=ends,
        committed=ends,
        saved=ends,
        checkpoint=7,
        happenings=happenings(),
        slices=slices,
        samples=tuple(samples),
        reread=20,
        dataset=totals,
        group=SparkReading("group", records, 11.9, 0.9, totals),
        spark=(SparkReading("kafka_rdd", records, 4.2, 3.9, dict(totals)),),
    )


class Outline(HTMLParser):
    """The resources that the page would load; True if its tags close."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.void = {"meta", "br"}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data")]
        if tag not in self.void:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_loads_nothing() -> None:
    text = report.page(outcome(), NAMES)
    seen = Outline()
    seen.feed(text)
    assert seen.open == []
    assert seen.loads == []
    assert not re.search(r"https?://|@import|url\(", text)
    assert text.count("<svg") == 3


def test_the_page_says_the_verdict_and_the_second_readings() -> None:
    text = report.page(outcome(), NAMES)
    assert "All totals are equal" in text
    assert "NOT equal" not in text
    assert "Read twice: 20 records" in text
    assert "<td>2</td><td>40 to 59</td><td>20</td><td>cleo</td>" in text
    assert "JetBlue &amp; Sons &lt;Airways&gt;" in text


def test_one_wrong_total_turns_the_verdict_and_marks_its_carrier() -> None:
    good = outcome()
    wrong = dict(good.dataset)
    wrong[Aircraft("B6", "N804JB")] = wrong[Aircraft("B6", "N804JB")].plus(Totals(miles=1))
    bad = dataclasses.replace(good, spark=(dataclasses.replace(good.spark[0], totals=wrong),))
    assert not bad.equal
    assert [claim.holds for claim in bad.claims] == [True, True, True, False, True]
    text = report.page(bad, NAMES)
    assert "The totals are NOT equal" in text
    marks = dict(re.findall(r"<tr><td>([^<]+)</td>(?:<td>[^<]*</td>)+<td class=\"(yes|no)\">", text))
    assert marks == {"United Air Lines Inc.": "yes", "JetBlue &amp; Sons &lt;Airways&gt;": "no", "all carriers": "no"}


def test_offsets_that_disagree_turn_the_verdict() -> None:
    good = outcome()
    short = {**good.ends, 3: good.ends[3] - 1}
    assert good.equal
    assert not dataclasses.replace(good, committed=short).equal
    assert not dataclasses.replace(good, ends=short, committed=short).equal
    assert not dataclasses.replace(good, saved=short).equal
    nobody_went_back = tuple(one for one in good.happenings if one.kind != "went_back")
    assert not dataclasses.replace(good, happenings=nobody_went_back).equal
    twice = dataclasses.replace(good.group, records=good.group.records + 20)
    assert not dataclasses.replace(good, group=twice).equal


def test_spans_follow_ownership_through_a_kill_and_an_eager_rebalance() -> None:
    told = spans(happenings(), T0 + 13_000)
    assert [s for s in told if s.member == "ben"] == [TimelineSpan("ben", 1, (2, 3), T0 + 920, T0 + 3100, "killed")]
    assert [s for s in told if s.member == "ada"] == [
        TimelineSpan("ada", 1, (0, 1), T0 + 900, T0 + 4200, "revoked"),
        TimelineSpan("ada", 2, (0, 1), T0 + 9000, T0 + 12800, "left"),
    ]
    early, late = ([one for one in happenings() if one.at_ms <= T0 + until] for until in (4250, 9015))
    assert owners(early) == {"ada": (), "cleo": (), "dora": ()}
    assert owners(late) == {"ada": (0, 1), "ben": (), "cleo": (2, 3), "dora": (4, 5)}


def test_a_cooperative_revocation_keeps_the_rest() -> None:
    told = [
        Happening(1, 10, "ada", "assigned", 1, (0, 1, 2), ""),
        Happening(2, 20, "ada", "revoked", 1, (2,), ""),
        Happening(3, 30, "ada", "assigned", 2, (0, 1), ""),
    ]
    assert spans(told, 40) == [
        TimelineSpan("ada", 1, (0, 1, 2), 10, 20, "revoked"),
        TimelineSpan("ada", 1, (0, 1), 20, 30, "assigned"),
        TimelineSpan("ada", 2, (0, 1), 30, 40, "open"),
    ]


def test_every_partition_has_its_own_bar_where_it_was_owned() -> None:
    axis = charts.Axis(T0, T0 + 13_000)
    picture = charts.timeline(["ada", "ben", "cleo", "dora"], spans(happenings(), T0 + 13_000), happenings(), axis)
    for partition, times in {0: 2, 1: 2, 2: 2, 3: 2, 4: 2, 5: 2}.items():
        assert picture.count(f'fill="{charts.colour(partition)}"') == times
    assert picture.count("SIGKILL") == 1


def test_resets_are_bands_that_say_why_and_to_where() -> None:
    assert resets(happenings()) == [
        DemoReset("ada", T0 + 4200, T0 + 9100, "partitions moved", "to checkpoint 4"),
        DemoReset("cleo", T0 + 4250, T0 + 9120, "partitions moved", "to checkpoint 4"),
    ]
    axis = charts.Axis(T0, T0 + 13_000)
    picture = charts.timeline(["ada", "ben", "cleo", "dora"], spans(happenings(), T0 + 13_000), happenings(), axis)
    assert picture.count('class="reset"') == 2
    assert "ada: partitions moved; back to checkpoint 4 after 4.90 s" in picture
    assert picture.count('class="saved"') == 1
    assert "ben is back" in charts.lag(outcome().samples, happenings(), axis)


def test_a_reset_that_a_kill_cut_short_ends_there() -> None:
    told = [
        Happening(1, 10, "ada", "undone", 1, (), "why"),
        Happening(2, 20, "ada", "undone", 1, (), "again"),
        Happening(3, 30, "ada", "killed", -1, (), ""),
        Happening(4, 40, "ben", "undone", 1, (), "open"),
    ]
    assert resets(told) == [DemoReset("ada", 10, 30, "why", "")]


@pytest.mark.parametrize(("highest", "step"), [(1, 1), (9, 2), (40, 10), (1_001_615, 500_000), (2_400_000, 500_000)])
def test_lag_is_cut_into_round_steps(highest: int, step: int) -> None:
    picture = charts.lag([DemoSample(0, {0: highest}), DemoSample(1000, {0: 0})], (), charts.Axis(0, 1000))
    # The axis is labelled in records, thousands or millions, the lowest label being none.
    labels = re.findall(r'text-anchor="end">([^<]+)<', picture)
    assert labels[0] == "0"
    assert labels[1] == (f"{step / 1000:g} k" if step >= 1000 else str(step))
    assert len(labels) <= 6
