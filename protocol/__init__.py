"""Kafka's wire protocol as values. Messages are declared once and encoded by `fastpath._codec`. No I/O, no clock."""
