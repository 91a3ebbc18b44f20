"""The delays of a year of flights, computed by Spark from Kafka topics.

Rule: Spark's own ``kafka`` source and sink, unchanged, are the only access to the data; batch
and stream use the same aggregation. Must not know: which server it runs against, or what the result
is compared with.

Run it against any server: ``python -m pipelines.delays --bootstrap HOST:PORT --out FOLDER``.
"""

import argparse
import shutil
import threading
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType

from pipelines.flights import FLIGHTS_TOPIC

CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"
DELAYS_TOPIC = "delays"
WINDOWS_TOPIC = "delay-windows"
WINDOW = "1 day"
OFFSETS_PER_BATCH = 60_000
STREAM_TIMEOUT_S = 120

_TYPES = {"int": LongType(), "str": StringType(), "float": DoubleType()}
COLUMNS = {
    "flights": (
        "year:int month:int day:int dep_time:int sched_dep_time:int dep_delay:int arr_time:int "
        "sched_arr_time:int arr_delay:int carrier:str flight:int tailnum:str origin:str dest:str "
        "air_time:int distance:int hour:int minute:int time_hour:str row:int"
    ),
    "airlines": "carrier:str name:str row:int",
    "airports": "faa:str name:str lat:float lon:float alt:int tz:int dst:str tzone:str row:int",
    "planes": (
        "tailnum:str year:int type:str manufacturer:str model:str engines:int seats:int speed:int "
        "engine:str row:int"
    ),
    "weather": (
        "origin:str year:int month:int day:int hour:int temp:float dewp:float humid:float "
        "wind_dir:int wind_speed:float wind_gust:float precip:float pressure:float visib:float "
        "time_hour:str row:int"
    ),
}


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where the job leaves its Parquet files and its checkpoint."""

    folder: Path

    @property
    def rows(self) -> Path:
        """Every flight as it was read."""
        return self.folder / "flights.parquet"

    @property
    def delays(self) -> Path:
        """Delays per carrier and hour of the day."""
        return self.folder / "delays.parquet"

    @property
    def windows(self) -> Path:
        """Delays per carrier and event-time window, kept up to date by the stream."""
        return self.folder / "windows.parquet"

    @property
    def checkpoint(self) -> Path:
        """The stream's checkpoint."""
        return self.folder / "checkpoint"


@dataclass(frozen=True, slots=True)
class StreamRun:
    """What one run of the stream did: micro-batches finished and records read."""

    batches: int
    records: int


def spark_session(folder: Path) -> SparkSession:
    """Start Spark on this machine's cores with the Kafka connector from Maven."""
    session: SparkSession = (
        SparkSession.builder.master("local[*]")
        .appName("kledger-delays")
        .config("spark.jars.packages", CONNECTOR)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


def schema(table: str) -> StructType:
    """Return the schema of a table's JSON values."""
    pairs = (column.split(":") for column in COLUMNS[table].split())
    return StructType([StructField(name, _TYPES[kind]) for name, kind in pairs])


def parse(messages: DataFrame, table: str) -> DataFrame:
    """Turn Kafka messages into the table's columns, and ``event_time`` from the record."""
    value = f.from_json(f.col("value").cast("string"), schema(table)).alias("value")
    client = f.element_at(f.map_from_entries("headers"), "client").cast("string").alias("client")
    return messages.select(value, f.col("timestamp").alias("event_time"), client).select(
        "value.*", "event_time", "client"
    )


def read_table(spark: SparkSession, bootstrap: str, table: str) -> DataFrame:
    """Read a whole topic as a batch."""
    messages = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", table)
        .option("includeHeaders", "true")
        .load()
    )
    return parse(messages, table)


def delay_columns() -> list[Column]:
    """Return the aggregates that every result carries: counts, integer sums and means."""
    return [
        f.count("*").alias("flights"),
        f.count("dep_delay").alias("departed"),
        f.sum("dep_delay").alias("dep_delay_sum"),
        f.sum("arr_delay").alias("arr_delay_sum"),
        f.sum("distance").alias("distance_sum"),
        f.avg("dep_delay").alias("dep_delay_mean"),
        f.avg("arr_delay").alias("arr_delay_mean"),
    ]


def delays_per_carrier_and_hour(spark: SparkSession, bootstrap: str) -> DataFrame:
    """Join the flights with all four small tables and aggregate per carrier and hour."""
    flights = read_table(spark, bootstrap, FLIGHTS_TOPIC)
    airlines = read_table(spark, bootstrap, "airlines").select("carrier", "name")
    airports = read_table(spark, bootstrap, "airports").select(
        f.col("faa").alias("dest"), f.col("alt").alias("dest_alt")
    )
    planes = read_table(spark, bootstrap, "planes").select("tailnum", "seats")
    weather = read_table(spark, bootstrap, "weather").select("origin", "time_hour", "visib")
    return (
        flights.join(airlines, "carrier", "left")
        .join(airports, "dest", "left")
        .join(planes, "tailnum", "left")
        .join(weather, ["origin", "time_hour"], "left")
        .groupBy("carrier", "name", "hour")
        .agg(
            *delay_columns(),
            f.sum("seats").alias("seats_sum"),
            f.sum("dest_alt").alias("dest_alt_sum"),
            f.avg("visib").alias("visib_mean"),
        )
    )


def run_batch(spark: SparkSession, bootstrap: str, outputs: Outputs) -> None:
    """Write every flight and the delays to Parquet, and the delays to their Kafka topic."""
    read_table(spark, bootstrap, FLIGHTS_TOPIC).write.mode("overwrite").parquet(str(outputs.rows))
    delays_per_carrier_and_hour(spark, bootstrap).write.mode("overwrite").parquet(
        str(outputs.delays)
    )
    key = f.concat_ws("-", "carrier", "hour")
    write_topic(spark.read.parquet(str(outputs.delays)), key, bootstrap, DELAYS_TOPIC)


def start_stream(
    spark: SparkSession,
    bootstrap: str,
    outputs: Outputs,
    *,
    stop_after: int | None = None,
    batch_offsets: int = OFFSETS_PER_BATCH,
) -> tuple[StreamingQuery, threading.Event]:
    """Start the stream where its checkpoint says; the event is set after ``stop_after`` batches."""
    messages = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", FLIGHTS_TOPIC)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("maxOffsetsPerTrigger", batch_offsets)
        .load()
    )
    windows = (
        parse(messages, FLIGHTS_TOPIC)
        .groupBy(f.window("event_time", WINDOW).alias("window"), "carrier")
        .agg(*delay_columns())
        .select(f.col("window.start").alias("window_start"), "*")
        .drop("window")
    )
    enough = threading.Event()

    def keep(frame: DataFrame, batch: int) -> None:
        frame.write.mode("overwrite").parquet(str(outputs.windows))
        if stop_after is not None and batch + 1 >= stop_after:
            enough.set()

    query = (
        windows.writeStream.outputMode("complete")
        .option("checkpointLocation", str(outputs.checkpoint))
        .trigger(availableNow=True)
        .foreachBatch(keep)
        .start()
    )
    return query, enough


def run_stream(
    spark: SparkSession, bootstrap: str, outputs: Outputs, *, stop_after: int | None = None
) -> StreamRun:
    """Run the stream until all that is there is read, or stop it after some micro-batches."""
    query, enough = start_stream(spark, bootstrap, outputs, stop_after=stop_after)
    if stop_after is not None:
        if not enough.wait(STREAM_TIMEOUT_S):
            raise TimeoutError(f"no {stop_after} micro-batches within {STREAM_TIMEOUT_S} s")
        query.stop()
        return _run_of(query)
    return finish_stream(query)


def finish_stream(query: StreamingQuery) -> StreamRun:
    """Wait until a stream has read all that was there when it began."""
    if not query.awaitTermination(STREAM_TIMEOUT_S):
        raise TimeoutError(f"the stream did not end within {STREAM_TIMEOUT_S} s")
    return _run_of(query)


def _run_of(query: StreamingQuery) -> StreamRun:
    progress = query.recentProgress
    return StreamRun(len(progress), sum(step["numInputRows"] for step in progress))


def publish_windows(spark: SparkSession, bootstrap: str, outputs: Outputs) -> None:
    """Write the stream's result to its Kafka topic."""
    windows = spark.read.parquet(str(outputs.windows))
    key = f.concat_ws("-", "carrier", f.col("window_start").cast("date").cast("string"))
    write_topic(windows, key, bootstrap, WINDOWS_TOPIC)


def write_topic(frame: DataFrame, key: Column, bootstrap: str, topic: str) -> None:
    """Write rows as JSON messages through Spark's Kafka sink."""
    (
        frame.select(key.alias("key"), f.to_json(f.struct("*")).alias("value"))
        .write.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", topic)
        .save()
    )


def read_back(spark: SparkSession, bootstrap: str, topic: str, like: Path) -> DataFrame:
    """Read a result topic again, with the columns of the Parquet file it was made from."""
    columns = spark.read.parquet(str(like)).schema
    return (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .load()
        .select(f.from_json(f.col("value").cast("string"), columns).alias("value"))
        .select("value.*")
    )


def main() -> None:
    """Run batch and stream once against a server that holds the tables."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--bootstrap", required=True, help="HOST:PORT of a Kafka listener")
    parser.add_argument("--out", type=Path, required=True, help="folder for Parquet files")
    arguments = parser.parse_args()
    outputs = Outputs(arguments.out)
    shutil.rmtree(outputs.checkpoint, ignore_errors=True)
    spark = spark_session(arguments.out)
    try:
        run_batch(spark, arguments.bootstrap, outputs)
        run_stream(spark, arguments.bootstrap, outputs)
        publish_windows(spark, arguments.bootstrap, outputs)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
