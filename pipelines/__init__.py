"""Spark jobs over Kafka topics, and the demonstration that checks them.

Rule: everything here is a client of a running server; only the demonstration starts one, through
``kledger.testing``. Must not know: any package below the public names.
"""
