"""Real clients against a running server: each peer from its registry, pinned."""
