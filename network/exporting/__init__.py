"""Exporters of any client's metrics. Those of a client are in its `exporting`; each module needs the extra of its name.

    prometheus       kohort[prometheus]       ClientCollector, for a registry
    opentelemetry    kohort[opentelemetry]    ClientInstruments, for a meter

Both read a table of metrics through `samples`, and only `metrics()` of a client.
"""
