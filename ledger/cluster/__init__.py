"""A storage engine without a disk: an object store for entries, a database for their order.

Nothing of it is imported by a server that has a data folder.
"""
