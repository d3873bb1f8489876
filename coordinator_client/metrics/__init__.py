"""The consumer's metrics, and their push to brokers (KIP-714)."""
