"""A small streaming query of the same shape as the copy, for the classes that it loads.

Run by spark-submit with a working directory as its argument.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F


def rows(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return a row for each."""
    for each in numbers:
        yield pa.RecordBatch.from_pydict({"topic": ["trial"] * each.num_rows, "records": [1] * each.num_rows})


def main(folder: Path) -> None:
    """Run the query once."""
    with SparkSession.builder.getOrCreate() as spark:
        # As what wakes the Python workers does.
        spark.sparkContext.parallelize(range(1), 1).count()
        source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1)
        frame = source.option("numPartitions", 1).load().select("value")
        query = (
            frame.mapInArrow(rows, "topic string, records bigint")
            .observe("receipts", F.sum("records").alias("records"))
            .writeStream.format("parquet")
            .option("checkpointLocation", str(folder / "checkpoint"))
            .option("path", str(folder / "rows"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
