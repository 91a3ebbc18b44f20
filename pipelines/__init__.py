"""Spark jobs over Kafka topics: pipelines, and a demonstration whose results are checked.

Rule: everything here is a client of a running server; only the demonstration starts one, through
``kledger.testing``. Each pipeline is a module with ``NAME``, ``OPTIONS`` and
``run(spark, options)``, and a command (``pipelines.command``). Must not know: any package below
the public names; of ``kledger.spark``, pipelines also use its client and its lookup of offsets.
"""
