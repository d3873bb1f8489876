"""Implementation of `kohort assign`: events, their effect on a group, and charts."""
