"""TODO face of native/rpc."""
