"""Conformance: does a broker speak the group protocol as its KIPs and Apache Kafka say?

`checks` are data with one small function each, `run` plays them against an address at the socket level, a `Report` says
what was asked, expected and seen, frame by frame.
"""
