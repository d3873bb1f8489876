"""The push of a client's metrics to brokers (KIP-714)."""
