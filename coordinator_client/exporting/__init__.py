"""Exporters of a consumer's metrics, and spans; each module needs the extra of its name.

prometheus       kohort[prometheus]       ConsumerCollector, for a registry
opentelemetry    kohort[opentelemetry]    ConsumerInstruments, for a meter
spans            kohort[opentelemetry]    ConsumerSpans, for a tracer
"""
