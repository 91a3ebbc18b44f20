"""TODO face of native/forwarder."""
