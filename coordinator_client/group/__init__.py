"""Group membership: the state machines of the classic protocol and of KIP-848, without I/O or clock."""
