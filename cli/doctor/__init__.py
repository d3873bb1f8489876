"""`kohort doctor`: finds problems of a consumer, its group, its topics and its brokers."""
