"""A consumer's figures for others to collect, by their own libraries: each module needs the extra of its name.

    prometheus       kohort[prometheus]       ConsumerCollector, for a registry
    opentelemetry    kohort[opentelemetry]    ConsumerInstruments, for a meter

Both read `metrics_table.FIGURES` through `samples`, and nothing else of a consumer than `metrics()`.
"""
