"""Exporters of a producer's metrics; each module needs the extra of its name.

prometheus       kohort[prometheus]       ProducerCollector, for a registry
opentelemetry    kohort[opentelemetry]    ProducerInstruments, for a meter
"""
