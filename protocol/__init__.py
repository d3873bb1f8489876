"""Bytes <-> values: Kafka's wire, declared once. construct declares, `kohort.fastpath._codec` runs. No I/O, no clock."""
