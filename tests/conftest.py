"""Marks that count coverage of behaviours, and the brokers that tests share."""
