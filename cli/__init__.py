"""The `kohort` command."""
