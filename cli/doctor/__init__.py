"""`kohort doctor`: what is wrong, or about to be, between a consumer, its group, its topics and its brokers."""
