"""Programs: the clients that make the load, each a process of its own that prints one JSON line."""
