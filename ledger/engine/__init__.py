"""Storage engines: `base` is their interface; each engine is a module."""
