"""What a message handler (KIP-3) is written against: see docs/handlers.md.

A handler turns the records of a flow into zero, one or many records, between the source and the target
and inside the copy's own transaction: its output is on the target exactly once. Two forms, told apart by
the annotation of the first parameter:

* ``def handler(record: Record, **args) -> Iterable[Record]``: one record at a time;
* ``def handler(batch: pa.RecordBatch, **args) -> pa.RecordBatch``: columns of ``SCHEMA``, many at a time.

Either may be a class, made once for each task of a lane with the arguments, whose instances are called.
"""

from typing import TYPE_CHECKING, Any

from onceover.handlers.record import Headers, Record

if TYPE_CHECKING:
    from onceover.wire.batches.columns import SCHEMA

__all__ = ["SCHEMA", "Headers", "Record"]


def __getattr__(name: str) -> Any:
    # Arrow and NumPy take a quarter of a second to load, which commands that run no handler do not pay.
    if name == "SCHEMA":
        from onceover.wire.batches.columns import SCHEMA

        return SCHEMA
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
