"""Records as users' expressions see them, and those that cannot be used.

Rule: in expressions `key` and `value` are texts (UTF-8), all other columns are those of Spark's
kafka source. A record is bad if its expression gives nothing; the reason says why.
Must not know: what a pipeline computes.
"""

from typing import Final

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from pipelines.errors import WrongCall

BAD_COLUMNS: Final = ("topic", "partition", "offset", "value", "reason")
_SHOWN: Final = 80


def with_texts(records: DataFrame) -> DataFrame:
    """Return records with `key` and `value` as texts; the bytes stay in `raw_key`, `raw_value`."""
    return records.select(
        f.col("key").alias("raw_key"),
        f.col("value").alias("raw_value"),
        f.col("key").cast("string").alias("key"),
        f.col("value").cast("string").alias("value"),
        *(name for name in records.columns if name not in {"key", "value"}),
    )


def with_expression(frame: DataFrame, option: str, expression: str, name: str) -> DataFrame:
    """Add a column that an option's expression computes.

    Raises:
        WrongCall: the expression cannot be parsed, or uses columns that are not there.
    """
    try:
        return frame.withColumn(name, f.expr(expression))
    except (AnalysisException, ParseException) as error:
        first = str(error).strip().splitlines()[0]
        raise WrongCall(f"option {option!r}: {expression!r} is no expression: {first}") from error


def reason_without(name: str, what: str) -> Column:
    """Return why a column has nothing: its value is no JSON, or has not what is expected.

    Args:
        name: the column; where it has something, the reason is null.
        what: what the expression should give, such as `a number`.
    """
    shown = f.substring(f.coalesce("value", f.lit("null")), 1, _SHOWN)
    is_json = f.expr("try_parse_json(value)").isNotNull()
    return (
        f.when(f.col(name).isNotNull(), f.lit(None).cast("string"))
        .when(f.col("value").isNull(), f.lit("no value"))
        .when(~is_json, f.concat(f.lit("not JSON: "), shown))
        .otherwise(f.concat(f.lit(f"expected {what}, got "), shown))
    )


def bad_rows(frame: DataFrame) -> DataFrame:
    """Return the records that have a reason, as they are kept in the folder of bad records."""
    value = f.col("raw_value").alias("value")
    chosen = [value if name == "value" else f.col(name) for name in BAD_COLUMNS]
    return frame.where(f.col("reason").isNotNull()).select(*chosen)
