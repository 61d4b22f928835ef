"""A small streaming query of the same shape as the copy, for the classes that it loads.

Run by spark-submit with a working directory as its argument.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType


class TrialSource(DataSource):
    """One batch of one row."""

    @classmethod
    def name(cls) -> str:
        """Return the format name."""
        return "trial"

    def schema(self) -> str:
        """Return the columns."""
        return "topic string, records bigint"

    def streamReader(self, schema: StructType) -> TrialReader:
        """Return the reader."""
        return TrialReader()


class TrialReader(DataSourceStreamReader):
    """Plans one batch."""

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset before the batch."""
        return {"n": 0}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the offset after the batch."""
        return {"n": 1}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return one task."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Yield one row."""
        yield ("trial", 1)


def main(folder: Path) -> None:
    """Run the query once."""
    with SparkSession.builder.getOrCreate() as spark:
        spark.dataSource.register(TrialSource)
        frame = spark.readStream.format("trial").load()
        query = (
            frame.observe("receipts", F.sum("records").alias("records"))
            .writeStream.format("parquet")
            .option("checkpointLocation", str(folder / "checkpoint"))
            .option("path", str(folder / "rows"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
