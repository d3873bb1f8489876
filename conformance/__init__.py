"""Checks that a broker implements the group protocol as the KIPs and Apache Kafka define it.

`checks` are data with one small function each. `run` runs them against an address at the socket level. A `Report` has
the requests, expectations and observations, frame by frame.
"""
