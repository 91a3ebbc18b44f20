"""TODO face of gateway/configs."""
