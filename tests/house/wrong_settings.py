"""A mistake on each line of a function. A type checker that misses one reports its comment as unnecessary."""

from kohort import Admin, AsyncConsumer, Consumer, Producer, ShareConsumer, Transform


def mistakes() -> None:
    Consumer("a:1", sesion_timeout_ms=1)  # type: ignore
    Consumer("a:1", group="g", isolation_level="read_comitted")  # type: ignore
    Consumer("a:1", protocol="clasic")  # type: ignore
    Consumer("a:1", fetch_min_bytes="1")  # type: ignore
    Consumer("a:1", linger_ms=5)  # type: ignore
    AsyncConsumer("a:1", heartbeat_interval=3000)  # type: ignore
    Producer("a:1", compression="zstdd")  # type: ignore
    Producer("a:1", acks="all", batch_size=1)  # type: ignore
    Producer("a:1", sasl_mechanism="SCRAM-SHA-265")  # type: ignore
    Admin("a:1", default_api_timeout=5)  # type: ignore
    ShareConsumer("a:1", group="g", acquire_mode="all")  # type: ignore
    Transform("a:1", group="g", name="n", topics=[], handler=print, producer={"linger": 5})  # type: ignore
