"""The base of all models of configuration files."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Closed(BaseModel):
    """A model that knows its keys: unknown ones are faults, and nothing changes once it is loaded."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
