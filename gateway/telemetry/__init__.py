"""TODO face of gateway/telemetry."""
