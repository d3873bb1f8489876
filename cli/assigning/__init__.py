"""What `kohort assign` is made of: events, what they do to a group, and pictures of it."""
