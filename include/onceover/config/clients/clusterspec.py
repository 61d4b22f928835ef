"""How a file of ours says where a cluster is, and who we are there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator

from onceover.config import values
from onceover.config.closed import Closed


class ClusterSpec(Closed):
    """One side of a flow: a name for people, and exactly one way to reach the cluster.

    ``client_file`` is absolute once loaded; ``client`` still holds its ``${NAME}`` references.
    """

    alias: Annotated[str, BeforeValidator(values.alias)]
    client: Annotated[dict[str, Any] | None, BeforeValidator(values.optional(values.mapping))] = None
    connection: Annotated[str | None, BeforeValidator(values.optional(values.connection_id))] = None
    client_file: Annotated[Path | None, BeforeValidator(values.optional(values.text))] = None

    @property
    def origin(self) -> str:
        """Which of ``client``, ``connection`` and ``client_file`` describes the client."""
        named = ("client", self.client), ("connection", self.connection), ("client_file", self.client_file)
        return next(name for name, value in named if value is not None)
