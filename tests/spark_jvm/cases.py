"""The reads, as data. Options are those of Spark's own Kafka source; `$name` is a topic of world.py.

A case says how many rows both connectors give; or what each of them says, where both refuse; or, with `reason`, in what
they differ. docs/spark.md has the differences as a table, made from here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

ABSENT = "(absent)"  # the value of an option that is left out


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`count`: rows of Spark's connector, None if it refuses, saying `theirs`; `ours`: what kohort says if it refuses.

    `pieces`: Spark partitions, where they are counted, and `our_pieces` where kohort makes another number of them.
    `stream`: an available-now stream into Parquet.
    """

    name: str
    options: Mapping[str, str]
    count: int | None = None
    theirs: str = ""
    ours: str = ""
    why: str = ""
    select: tuple[str, ...] = ()
    where: str = ""
    schema: str = ""
    stream: bool = False
    pieces: int | None = None
    our_pieces: int | None = None


def _reads() -> Iterator[Case]:
    yield from _what()
    yield from _offsets()
    yield from _times()
    yield from _records()
    yield from _transactions()
    yield from _loss()
    yield from _pieces()
    yield from _queries()
    yield from _settings()
    yield from _streams()
    yield from _mistakes()


def _what() -> Iterator[Case]:
    yield Case(name="one topic", options={"subscribe": "$plain"}, count=30)
    yield Case(name="two topics, spaces between", options={"subscribe": " $plain , $half"}, count=42)
    yield Case(name="a topic named twice", options={"subscribe": "$plain,$plain"}, count=30)
    yield Case(name="a pattern", options={"subscribePattern": r"${prefix}\.pat_.*"}, count=12)
    yield Case(name="a pattern matches anywhere in a name", options={"subscribePattern": r"\.pat_"}, count=12)
    yield Case(name="a pattern from end to end", options={"subscribePattern": r"^${prefix}\.pat_...-t$$"}, count=12)
    yield Case(name="a pattern that no topic has", options={"subscribePattern": "no-such"}, count=0)
    yield Case(name="partitions assigned", options={"assign": '{"$plain":[0,2]}'}, count=20)
    yield Case(name="partitions of two topics", options={"assign": '{"$plain":[1],"$half":[1]}'}, count=22)
    yield Case(name="an empty topic", options={"subscribe": "$empty"}, count=0)
    yield Case(name="a topic with two empty partitions", options={"subscribe": "$half"}, count=12)
    yield Case(name="option names in any case", options={"SUBSCRIBE": "$plain", "INCLUDEHEADERS": "TRUE"}, count=30)


def _offsets() -> Iterator[Case]:
    at = {"subscribe": "$plain"}
    yield Case(
        name="earliest to latest, in words",
        count=30,
        options={**at, "startingOffsets": "EARLIEST", "endingOffsets": "latest"},
    )
    yield Case(name="starts in JSON", count=14, options={**at, "startingOffsets": '{"$plain":{"0":4,"1":9,"2":3}}'})
    yield Case(name="ends in JSON", count=8, options={**at, "endingOffsets": '{"$plain":{"0":1,"1":0,"2":7}}'})
    yield Case(
        name="-2 and -1 in JSON",
        count=22,
        options={
            **at,
            "startingOffsets": '{"$plain":{"0":-2,"1":-2,"2":8}}',
            "endingOffsets": '{"$plain":{"0":-1,"1":-1,"2":-1}}',
        },
    )
    yield Case(
        name="starts and ends alike",
        count=0,
        options={
            **at,
            "startingOffsets": '{"$plain":{"0":4,"1":4,"2":4}}',
            "endingOffsets": '{"$plain":{"0":4,"1":4,"2":4}}',
        },
    )
    yield Case(
        name="offsets of two topics",
        count=15,
        options={
            "subscribe": "$plain,$half",
            "startingOffsets": '{"$plain":{"0":5,"1":5,"2":10},"$half":{"0":0,"1":7,"2":0}}',
        },
    )
    yield Case(
        name="offsets for assigned partitions",
        count=6,
        options={"assign": '{"$plain":[1]}', "startingOffsets": '{"$plain":{"1":4}}'},
    )


def _times() -> Iterator[Case]:
    at = {"subscribe": "$plain"}
    strategy = "startingOffsetsByTimestampStrategy"
    yield Case(name="startingTimestamp", count=20, options={**at, "startingTimestamp": "1700000010000"})
    yield Case(name="endingTimestamp", count=10, options={**at, "endingTimestamp": "1700000010000"})
    yield Case(
        name="a stretch of time",
        count=3,
        options={**at, "startingTimestamp": "1700000021000", "endingTimestamp": "1700000024000"},
    )
    yield Case(name="a time before the first record", count=30, options={**at, "startingTimestamp": "1"})
    yield Case(name="an end after the last record", count=30, options={**at, "endingTimestamp": "1800000000000"})
    yield Case(
        name="a start after the last record, strategy latest",
        count=0,
        options={**at, "startingTimestamp": "1800000000000", strategy: "latest"},
    )
    yield Case(
        name="times by partition",
        count=26,
        options={
            **at,
            "startingOffsetsByTimestamp": '{"$plain":{"0":1700000006000,"1":1700000000000,"2":1700000008000}}',
            "endingOffsetsByTimestamp": '{"$plain":{"0":1800000000000,"1":1800000000000,"2":1800000000000}}',
        },
    )
    yield Case(
        name="times by partition, one too late, strategy latest",
        count=18,
        options={
            **at,
            strategy: "LATEST",
            "startingOffsetsByTimestamp": '{"$plain":{"0":1700000006000,"1":1800000000000,"2":0}}',
        },
    )
    yield Case(
        name="a time wins over times, and times over offsets",
        count=20,
        options={
            **at,
            "startingTimestamp": "1700000010000",
            "startingOffsets": "earliest",
            "startingOffsetsByTimestamp": '{"$plain":{"0":0,"1":0,"2":0}}',
        },
    )
    yield Case(
        name="times over offsets at the end",
        count=10,
        options={
            **at,
            "endingOffsets": "latest",
            "endingOffsetsByTimestamp": '{"$plain":{"0":1700000010000,"1":1700000010000,"2":1700000010000}}',
        },
    )
    yield Case(
        name="times that go back and forth",
        count=16,
        options={"subscribe": "$times", "startingTimestamp": "1700000006000"},
    )
    yield Case(name="times of a broker that stamps", options={"subscribe": "$appended"}, count=5)
    yield Case(
        name="times of a broker that stamps, from one",
        count=5,
        options={"subscribe": "$appended", "startingTimestamp": "1700000010000"},
    )


def _records() -> Iterator[Case]:
    headers = {"includeHeaders": "true"}
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        yield Case(name=f"codec {codec}, headers", options={"subscribe": f"$codec_{codec}", **headers}, count=60)
    yield Case(name="headers left out", options={"subscribe": "$headers", "includeHeaders": "false"}, count=4)
    yield Case(name="odd headers", options={"subscribe": "$headers", **headers}, count=4)
    yield Case(name="a log with gaps by compaction, from its start", options={"subscribe": "$compacted"}, count=10)
    yield Case(
        name="a log with gaps by compaction, from inside a gap",
        count=9,
        options={"subscribe": "$compacted", "startingOffsets": '{"$compacted":{"0":12}}'},
    )
    yield Case(
        name="an end inside a gap",
        count=2,
        options={"subscribe": "$compacted", "endingOffsets": '{"$compacted":{"0":25}}'},
    )
    yield Case(name="records of megabytes", options={"subscribe": "$large"}, count=4)
    yield Case(
        name="records larger than a fetch may be",
        count=4,
        options={"subscribe": "$large", "kafka.max.partition.fetch.bytes": "1000"},
    )


def _transactions() -> Iterator[Case]:
    committed = {"kafka.isolation.level": "read_committed"}
    yield Case(name="transactions, uncommitted", options={"subscribe": "$txn"}, count=61)
    yield Case(name="transactions, committed", options={"subscribe": "$txn", **committed}, count=32)
    yield Case(
        name="a range that begins and ends within transactions",
        count=6,
        options={
            "subscribe": "$txn",
            **committed,
            "startingOffsets": '{"$txn":{"0":2,"1":1}}',
            "endingOffsets": '{"$txn":{"0":9,"1":13}}',
        },
    )
    yield Case(
        name="a range of nothing but an aborted run",
        count=0,
        options={
            "assign": '{"$txn":[1]}',
            **committed,
            "startingOffsets": '{"$txn":{"1":36}}',
        },
    )
    yield Case(name="an open transaction, uncommitted", options={"subscribe": "$open"}, count=14)
    yield Case(name="an open transaction, committed: up to it", options={"subscribe": "$open", **committed}, count=6)


def _loss() -> Iterator[Case]:
    before = {"subscribe": "$deleted", "startingOffsets": '{"$deleted":{"0":2,"1":2}}'}
    beyond = {
        "subscribe": "$plain",
        "endingOffsets": '{"$plain":{"0":10,"1":99,"2":10}}',
        "kafkaConsumer.pollTimeoutMs": "2000",
    }
    yield Case(name="after retention, from the earliest", options={"subscribe": "$deleted"}, count=33)
    yield Case(name="a log that retention has emptied", options={"subscribe": "$gone"}, count=0)
    yield Case(
        name="lost records are an error",
        options=before,
        theirs="[Ss]ome data may have been lost",
        ours=r"DataLossError: .*topic=$deleted, partition=0, offset=2",
    )
    yield Case(name="lost records, allowed", options={**before, "failOnDataLoss": "false"}, count=31)
    yield Case(
        name="an end beyond the log is an error",
        options=beyond,
        theirs=r"KafkaIllegalStateException|data may have been lost|TimeoutException",
        ours=r"DataLossError: .*topic=$plain, partition=1, offset=99",
    )
    yield Case(name="an end beyond the log, allowed", options={**beyond, "failOnDataLoss": "false"}, count=30)
    yield Case(
        name="a start beyond the log is an error",
        theirs="data may have been lost|KafkaIllegalState|assertion",
        options={"subscribe": "$plain", "startingOffsets": '{"$plain":{"0":5,"1":99,"2":5}}'},
        ours=r"DataLossError: .*topic=$plain, partition=1, offset=99",
    )


def _pieces() -> Iterator[Case]:
    many = {"subscribe": "$many"}
    few = ("partition", "offset", "length(value) AS size")
    yield Case(name="minPartitions", options={**many, "minPartitions": "8"}, count=3000, select=few, pieces=8)
    yield Case(
        name="minPartitions below what there is",
        options={**many, "minPartitions": "1"},
        count=3000,
        select=few,
        pieces=2,
    )
    yield Case(
        name="minPartitions that cannot be even",
        options={**many, "minPartitions": "5"},
        count=3000,
        select=few,
        pieces=6,
        our_pieces=5,
        why="Spark's connector cuts every partition of the topic alike",
    )
    yield Case(
        name="maxRecordsPerPartition",
        options={**many, "maxRecordsPerPartition": "400"},
        count=3000,
        select=few,
        pieces=2,
        our_pieces=8,
        why="the connector of Spark 4.0 lacks the option and reads 1,500 records a partition",
    )
    yield Case(name="more partitions than records", options={"subscribe": "$pat_one", "minPartitions": "9"}, count=4)


def _queries() -> Iterator[Case]:
    many = {"subscribe": "$many"}
    yield Case(name="one column", options=many, count=3000, select=("value",))
    yield Case(name="no columns", options=many, count=1, select=("count(*)",))
    yield Case(
        name="columns in another order",
        options={"subscribe": "$headers", "includeHeaders": "true"},
        count=4,
        select=("headers", "offset", "key"),
    )
    yield Case(name="sizes added up", options=many, count=1, select=("sum(length(value))", "max(offset)"))
    yield Case(name="one partition of many", options=many, count=1500, where="partition = 1")
    yield Case(name="a stretch of offsets", options=many, count=200, where="offset >= 100 AND offset < 200")
    yield Case(
        name="a stretch of times, as a filter",
        count=11,
        select=("offset", "timestamp"),
        options={"subscribe": "$plain"},
        where="timestamp BETWEEN '2023-11-14T22:13:30Z' AND '2023-11-14T22:13:40Z'",
    )
    yield Case(name="nothing passes a filter", options=many, count=0, where="partition = 9 OR topic = 'other'")
    yield Case(
        name="filters that are not about places",
        options={"subscribe": "$plain"},
        count=6,
        where="key IS NULL AND offset >= 0",
    )


def _settings() -> Iterator[Case]:
    at = {"subscribe": "$many"}
    few = ("partition", "offset")
    yield Case(
        name="small polls and fetches",
        count=3000,
        select=few,
        options={
            **at,
            "kafka.max.poll.records": "17",
            "kafka.max.partition.fetch.bytes": "2000",
            "kafka.fetch.max.bytes": "3000",
        },
    )
    yield Case(name="a group of one's own", options={**at, "kafka.group.id": "$many-group"}, count=3000, select=few)
    yield Case(name="a prefix for groups", options={**at, "groupIdPrefix": "mine"}, count=3000, select=few)
    yield Case(
        name="settings of Spark's client",
        count=3000,
        select=few,
        options={
            **at,
            "kafkaConsumer.pollTimeoutMs": "5000",
            "fetchOffset.numRetries": "2",
            "fetchOffset.retryIntervalMs": "5",
        },
    )


def _streams() -> Iterator[Case]:
    earliest = {"startingOffsets": "earliest"}
    yield Case(name="a stream from the earliest", options={"subscribe": "$plain", **earliest}, count=30, stream=True)
    yield Case(name="a stream from the latest", options={"subscribe": "$plain"}, count=0, stream=True)
    yield Case(
        name="a stream from offsets",
        count=14,
        stream=True,
        options={"subscribe": "$plain", "startingOffsets": '{"$plain":{"0":4,"1":9,"2":3}}'},
    )
    yield Case(
        name="a stream from a time",
        count=20,
        stream=True,
        options={"subscribe": "$plain", "startingTimestamp": "1700000010000"},
    )
    yield Case(
        name="a stream of a pattern",
        count=12,
        stream=True,
        options={"subscribePattern": r"${prefix}\.pat_.*", **earliest},
    )
    yield Case(
        name="a stream in small batches",
        count=30,
        stream=True,
        options={"subscribe": "$plain", **earliest, "maxOffsetsPerTrigger": "11"},
    )
    yield Case(
        name="a stream of committed records, with headers",
        count=32,
        stream=True,
        options={
            "subscribe": "$txn",
            **earliest,
            "kafka.isolation.level": "read_committed",
            "includeHeaders": "true",
        },
    )
    yield Case(
        name="an end for a stream",
        stream=True,
        theirs="ending ?offset",
        ours="OptionError: endingOffsets",
        options={"subscribe": "$plain", "endingOffsets": "latest"},
    )


def _mistakes() -> Iterator[Case]:
    at = {"subscribe": "$plain"}

    def wrong(name: str, options: Mapping[str, str], theirs: str, ours: str, schema: str = "") -> Case:
        return Case(name=name, options=options, theirs=theirs, ours=ours, schema=schema)

    yield wrong(
        "no brokers",
        {**at, "kafka.bootstrap.servers": ABSENT},
        "kafka.bootstrap.servers",
        "OptionError: .*kafka.bootstrap.servers",
    )
    yield wrong("nothing to read", {}, "One of the following options must be specified", "OptionError: .*subscribe")
    yield wrong(
        "subscribe and assign", {**at, "assign": '{"$plain":[0]}'}, "Only one of the following", "OptionError: "
    )
    yield wrong("no topic named", {"subscribe": " , "}, "No topics to subscribe", "OptionError: no topic is named")
    yield wrong("assign is not JSON", {"assign": "$plain"}, "assign|JSON|json", "OptionError: .*option=assign")
    yield wrong(
        "latest as the start of a batch",
        {**at, "startingOffsets": "latest"},
        "starting offset can't be latest",
        "OptionError: .*startingOffsets",
    )
    yield wrong(
        "earliest as an end", {**at, "endingOffsets": "earliest"}, "[eE]nding ?offset", "OptionError: .*endingOffsets"
    )
    yield wrong(
        "-1 as the start of a batch",
        {**at, "startingOffsets": '{"$plain":{"0":-1,"1":0,"2":0}}'},
        "latest",
        "OptionError: .*startingOffsets",
    )
    yield wrong(
        "-3 as an offset",
        {**at, "startingOffsets": '{"$plain":{"0":-3,"1":0,"2":0}}'},
        ".",
        "OptionError: .*startingOffsets",
    )
    yield wrong(
        "an unknown word",
        {**at, "startingOffsets": "earlist"},
        ".",
        "OptionError: .*did you mean 'earliest'",
    )
    yield wrong(
        "a partition without an offset",
        {**at, "startingOffsets": '{"$plain":{"0":0,"1":0}}'},
        "don't match what are assigned",
        r"PlanError: .*topic=$plain, partition=2",
    )
    yield wrong(
        "an offset without a partition",
        {**at, "startingOffsets": '{"$plain":{"0":0,"1":0,"2":0,"3":0}}'},
        "don't match what are assigned",
        r"PlanError: .*topic=$plain, partition=3",
    )
    yield wrong(
        "a start behind its end",
        {
            **at,
            "startingOffsets": '{"$plain":{"0":5,"1":0,"2":0}}',
            "endingOffsets": '{"$plain":{"0":4,"1":9,"2":9}}',
        },
        ".",
        r"PlanError: .*topic=$plain, partition=0, start=5, stop=4",
    )
    yield wrong(
        "a time after the last record",
        {**at, "startingTimestamp": "1800000000000"},
        "No offset matched",
        r"PlanError: no record has this timestamp.*topic=$plain, partition=\d",
    )
    yield wrong(
        "an unknown strategy",
        {
            **at,
            "startingTimestamp": "1",
            "startingOffsetsByTimestampStrategy": "first",
        },
        "No value found for 'FIRST'",
        "OptionError: startingOffsetsByTimestampStrategy",
    )
    yield wrong(
        "an invalid time",
        {**at, "startingTimestamp": "yesterday"},
        "Expected a single long value",
        "OptionError: .*startingTimestamp",
    )
    yield wrong("no partitions at all", {**at, "minPartitions": "0"}, "minPartitions", "OptionError: minPartitions")
    yield wrong(
        "an invalid number", {**at, "maxRecordsPerPartition": "many"}, ".", "OptionError: maxRecordsPerPartition"
    )
    yield wrong("neither true nor false", {**at, "failOnDataLoss": "maybe"}, ".", "OptionError: failOnDataLoss")
    for name, value in (
        ("auto.offset.reset", "earliest"),
        ("enable.auto.commit", "true"),
        ("key.deserializer", "x"),
        ("value.deserializer", "x"),
    ):
        yield wrong(
            f"kafka.{name}",
            {**at, f"kafka.{name}": value},
            f"kafka.{name}|Kafka option '{name}'",
            f"OptionError: .*kafka.{name}",
        )
    yield wrong(
        "an unknown topic",
        {"subscribe": "${prefix}.nowhere"},
        "UnknownTopicOrPartition",
        r"UnknownTopic: .*${prefix}\.nowhere",
    )
    yield Case(
        name="a missing partition",
        options={"assign": '{"$plain":[0,7]}'},
        count=10,
        ours=r"PlanError: no such partition .*topic=$plain, partition=7",
        why="Spark's connector reads the other partition, without an error",
    )
    yield wrong("another schema", at, "schema", "OptionError: the schema of this source is fixed", "value STRING")
    yield wrong(
        "no broker at the address",
        {
            **at,
            "kafka.bootstrap.servers": "127.0.0.1:1",
            "kafka.default.api.timeout.ms": "3000",
            "kafka.request.timeout.ms": "2000",
        },
        "TimeoutException|Timed out",
        r"(ConnectionFailed|OperationTimeout).*127\.0\.0\.1:1",
    )
    yield Case(
        name="a misspelt option",
        options={**at, "startingOffset": "earliest"},
        count=30,
        ours="OptionError: unknown option .*did you mean 'startingOffsets'",
        why="Spark's connector ignores it",
    )
    yield Case(
        name="a misspelt setting",
        options={**at, "kafka.isolation.levell": "read_committed"},
        count=30,
        ours="isolation.level",
        why="Spark's connector ignores it",
    )


CASES = tuple(_reads())
