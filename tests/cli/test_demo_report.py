"""The report and its pictures, from an invented run; what a reader would check by eye is checked on the text."""

import re
from collections.abc import Iterable
from html.parser import HTMLParser

from kohort.cli.demo import charts, report
from kohort.cli.demo.flights import Aircraft, Totals
from kohort.cli.demo.ledger import DemoEntry, GroupHistory, TimelineSpan
from kohort.cli.demo.outcome import DemoOutcome, TopicReading
from kohort.cli.demo.producers import chunks

T0 = 1_795_262_000_000
NAMES = {"UA": "United Air Lines Inc.", "B6": "JetBlue & Sons <Airways>"}


def happenings() -> tuple[DemoEntry, ...]:
    reported = [
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
        DemoEntry(who, kind, gen, parts, causes.get(kind, ""), at_ms=T0 + at)
        for at, who, kind, gen, parts in sorted(reported, key=lambda one: one[0])
    )


def history(ends: dict[int, int], happened: Iterable[DemoEntry]) -> GroupHistory:
    made = GroupHistory(ends)
    for partition, end in ends.items():
        if partition == 2:
            made.add(DemoEntry("ben", "read", 1, (2,), start=0, stop=60))
            made.add(DemoEntry("cleo", "read", 2, (2,), start=40, stop=end))
        else:
            made.add(DemoEntry("ada", "read", 1, (partition,), start=0, stop=end))
    for entry in happened:
        made.add(entry)
    for n, left in enumerate((600, 500, 400, 400, 300, 0)):
        made.samples.append((T0 + 400 + n * 2500, dict.fromkeys(ends, left // 6), left))
    return made


def outcome() -> DemoOutcome:
    totals = {
        Aircraft("UA", "N14228"): Totals(100, 98, 97, 2, 140_000, 512),
        Aircraft("UA", "N24211"): Totals(50, 50, 50, 0, 70_000, -20),
        Aircraft("B6", "N804JB"): Totals(60, 59, 59, 1, 90_000, 77),
        Aircraft("B6", ""): Totals(4, 0, 0, 4, 0, 0),
    }
    records = sum(one.events for one in totals.values())
    ends = {p: records // 6 + (p < records % 6) for p in range(6)}
    return DemoOutcome(
        broker="Apache Kafka 4.3.1",
        topic="flights",
        written=chunks(records, ("java", "librdkafka")),
        written_s=12.8,
        committed=ends,
        saved=ends,
        checkpoint=7,
        history=history(ends, happenings()),
        dataset=totals,
        group=TopicReading("group", totals, 11.9, 0.9),
        spark=(TopicReading("kafka_rdd", dict(totals), 4.2, 3.9),),
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
    assert [place for place in seen.loads if not place.startswith("#")] == []
    assert "@import" not in text
    assert set(re.findall(r"https?://[^\"]+", text)) == {"http://www.w3.org/1999/xlink", "http://www.w3.org/2000/svg"}
    assert all(place.startswith("#") for place in re.findall(r"url\(([^)]+)\)", text))
    assert text.count("<svg") == 1


def test_the_page_says_the_verdict_and_the_second_readings() -> None:
    text = report.page(outcome(), NAMES)
    assert "All totals are equal" in text
    assert "NOT equal" not in text
    assert "Read twice: 20 records" in text
    assert "<td>2</td><td>40 to 59</td><td>20</td><td>cleo</td>" in text
    assert "JetBlue &amp; Sons &lt;Airways&gt;" in text
    assert "<td>librdkafka</td><td>lz4</td>" in text


def test_one_wrong_total_turns_the_verdict_and_marks_its_carrier() -> None:
    good = outcome()
    wrong = dict(good.dataset)
    wrong[Aircraft("B6", "N804JB")] = wrong[Aircraft("B6", "N804JB")].plus(Totals(miles=1))
    bad = good._replace(spark=(good.spark[0]._replace(totals=wrong),))
    assert not bad.equal
    assert [holds for _, holds in bad.claims] == [True, True, True, False, True]
    text = report.page(bad, NAMES)
    assert "The totals are NOT equal" in text
    marks = dict(re.findall(r"<tr><td>([^<]+)</td>(?:<td>[^<]*</td>)+<td><span class=\"(yes|no)\">", text))
    assert marks == {"United Air Lines Inc.": "yes", "JetBlue &amp; Sons &lt;Airways&gt;": "no", "all carriers": "no"}


def test_offsets_that_disagree_turn_the_verdict() -> None:
    good = outcome()
    ends = dict(good.history.ends)
    short = {**ends, 3: ends[3] - 1}
    assert good.equal
    assert not good._replace(committed=short).equal
    assert not good._replace(history=history(short, happenings()), committed=short).equal
    assert not good._replace(saved=short).equal
    nobody_went_back = (one for one in happenings() if one.kind != "went_back")
    assert not good._replace(history=history(ends, nobody_went_back)).equal
    twice = good.dataset | {Aircraft("B6", ""): Totals(8, 0, 0, 8, 0, 0)}
    assert not good._replace(group=good.group._replace(totals=twice)).equal


def test_spans_follow_ownership_through_a_kill_and_an_eager_rebalance() -> None:
    reported = outcome().history.spans
    assert [s for s in reported if s.member == "ben"] == [TimelineSpan("ben", T0 + 920, T0 + 3100, 1, (2, 3))]
    assert [s for s in reported if s.member == "ada" and s.partitions] == [
        TimelineSpan("ada", T0 + 900, T0 + 4200, 1, (0, 1)),
        TimelineSpan("ada", T0 + 9000, T0 + 12800, 2, (0, 1)),
    ]
    early, late = (
        history(dict.fromkeys(range(6), 106), (one for one in happenings() if one.at_ms <= T0 + until))
        for until in (4250, 9015)
    )
    owners = [{one.name: one.partitions for one in made.members.values()} for made in (early, late)]
    assert owners == [
        {"ada": (), "ben": (), "cleo": (), "dora": ()},
        {"ada": (0, 1), "ben": (), "cleo": (2, 3), "dora": (4, 5)},
    ]


def test_every_partition_has_its_own_bar_where_it_was_owned_and_its_own_lag() -> None:
    picture = charts.group_charts(outcome().history)
    for partition in range(6):
        assert picture.count(f"fill: {charts.COLOURS[partition]}") == 3  # two members had it, and it has one lag
    for text in ("ben killed", "dora started", "ben started"):
        assert picture.count(f">{text}<") == 1
    assert picture.count(">generation 2<") == 3
    assert ">ada started<" not in picture  # those of the beginning need no line


def test_colours_of_the_pictures_follow_the_page() -> None:
    picture = charts.group_charts(outcome().history)
    assert [colour for colour in charts.INK.values() if colour in picture] == []
    assert all(f"var(--{name})" in picture for name in charts.INK)


def test_resets_say_why_and_to_where() -> None:
    assert [s for s in outcome().history.spans if not s.partitions] == [
        TimelineSpan("ada", T0 + 4200, T0 + 9100, 2),
        TimelineSpan("cleo", T0 + 4250, T0 + 9120, 2),
    ]
    page = report.page(outcome(), NAMES)
    assert "<td>9.1 s</td><td>ada</td><td>went_back</td><td>2</td><td></td><td>to checkpoint 4</td>" in page
    assert "<td>9.0 s</td><td>cleo</td><td>assigned</td><td>2</td><td>2, 3</td><td></td>" in page
