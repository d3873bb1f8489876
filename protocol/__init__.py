"""Bytes <-> values: Kafka's wire, declared once. construct declares, `fastpath._codec` runs. No I/O, no clock."""
