"""TODO face of subscriptions/dispatch."""
