"""Spark: `format("kledger")` reads topics and writes to them.

    kledger.spark.register(spark)
    spark.read.format("kledger").option("servers", "127.0.0.1:9092").option("subscribe", "orders")

Rule: everything here is a client of a running server. Executors import `batches` and `gateway.wire`
and nothing of the server. Must not know: pipelines.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: "SparkSession") -> None:
    """Make `format("kledger")` known to a session; may be repeated.

    Executors need the package `kledger` too, in the same version.
    """
    from kledger.spark.data_source import KledgerDataSource

    spark.dataSource.register(KledgerDataSource)
