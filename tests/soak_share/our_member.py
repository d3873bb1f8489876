"""kohort's share consumer as a member of a soak's group: NAME BOOTSTRAP GROUP TOPIC HISTORY SEED PAUSE_S.

SIGTERM: leave.
"""

import random
import signal
import sys
import time

from kohort import KohortError, ShareConsumer, TopicPartition
from kohort.network.errors import WakeupError
from tests.soak_share.history import Writer, draw_type


def main(name: str, bootstrap: str, group: str, topic: str, path: str, seed: str, pause_s: str) -> None:
    """Poll, acknowledge and commit until SIGTERM."""
    draw, history = random.Random(int(seed)), Writer(path)
    leaving = False
    mode = draw.choice(("batch_optimized", "record_limit"))
    with ShareConsumer(
        bootstrap,
        group=group,
        client_id=name,
        acknowledgement_mode="explicit",
        acquire_mode=mode,  # type: ignore[arg-type]
        max_poll_records=200,
    ) as consumer:

        def leave(*_: object) -> None:
            nonlocal leaving
            leaving = True
            consumer.wakeup()

        signal.signal(signal.SIGTERM, leave)
        consumer.subscribe([topic])
        while not leaving:
            try:
                _turn(consumer, topic, history, draw)
                time.sleep(draw.uniform(0.0, float(pause_s)))
            except WakeupError:
                continue
            except KohortError as error:
                print(f"{name}: {error}", file=sys.stderr, flush=True)


def _turn(consumer: ShareConsumer, topic: str, history: Writer, draw: random.Random) -> None:
    batches = consumer.poll(1.0)
    typed: dict[int, dict[int, int]] = {}
    for batch in batches:
        for record in batch:
            typed.setdefault(batch.partition, {})[record.offset] = draw_type(draw)
    history.delivered(
        ((batch.partition, record.offset, batch.delivery_count) for batch in batches for record in batch), typed
    )
    for batch in batches:
        for record in batch:
            how = ("accept", "release", "reject")[typed[batch.partition][record.offset] - 1]
            consumer.acknowledge(record, how)
    if not batches:
        return
    failures = consumer.commit(30.0)
    history.succeeded(
        {
            partition: {
                offset: kind
                for offset, kind in acks.items()
                if offset not in failures.get(TopicPartition(topic, partition), {})
            }
            for partition, acks in typed.items()
        }
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
