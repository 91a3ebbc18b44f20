"""Engines: where a store keeps its entries and rows. `base` is the seam, every engine a module."""
