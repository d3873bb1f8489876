"""librdkafka's share consumer as a member of a soak: NAME BOOTSTRAP GROUP TOPIC HISTORY SEED PAUSE_S.

SIGTERM: leave.
"""

import random
import signal
import sys
import time

import confluent_kafka
from confluent_kafka import KafkaException, ShareConsumer

from tests.soak_share.history import Writer, draw_type


def main(name: str, bootstrap: str, group: str, topic: str, path: str, seed: str, pause_s: str) -> None:
    """Poll, acknowledge and commit until SIGTERM."""
    draw, history = random.Random(int(seed)), Writer(path)
    leaving = False

    def leave(*_: object) -> None:
        nonlocal leaving
        leaving = True

    signal.signal(signal.SIGTERM, leave)
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "client.id": name,
        "share.acknowledgement.mode": "explicit",
        "max.poll.records": 200,
    }
    consumer = ShareConsumer(settings)
    consumer.subscribe([topic])
    while not leaving:
        try:
            _turn(consumer, history, draw)
            time.sleep(draw.uniform(0.0, float(pause_s)))
        except KafkaException as error:
            print(f"{name}: {error}", file=sys.stderr, flush=True)
    consumer.close()


def _turn(consumer: ShareConsumer, history: Writer, draw: random.Random) -> None:
    messages = [one for one in consumer.poll(1.0) if one.error() is None]
    if not messages:
        return
    typed: dict[int, dict[int, int]] = {}
    for message in messages:
        typed.setdefault(message.partition(), {})[message.offset()] = draw_type(draw)
    history.delivered(((one.partition(), one.offset(), one.delivery_count()) for one in messages), typed)
    types = confluent_kafka.AcknowledgeType
    for message in messages:
        kind = typed[message.partition()][message.offset()]
        consumer.acknowledge(message, (types.ACCEPT, types.RELEASE, types.REJECT)[kind - 1])
    outcomes = consumer.commit_sync(30.0)
    history.succeeded({place.partition: typed[place.partition] for place, error in outcomes.items() if error is None})


if __name__ == "__main__":
    main(*sys.argv[1:])
