"""TODO face of gateway/net."""
