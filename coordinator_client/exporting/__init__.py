"""Exporters of a consumer's metrics; each module needs the extra of its name.

    prometheus       kohort[prometheus]       ConsumerCollector, for a registry
    opentelemetry    kohort[opentelemetry]    ConsumerInstruments, for a meter

Both read `metrics_table.FIGURES` through `samples`, and only `metrics()` of a consumer.
"""
