"""TODO face of gateway/quotas."""
