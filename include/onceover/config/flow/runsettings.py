"""What a run keeps from its start to its end, whatever happens to the flow file meanwhile.

A lane's next Spark task opens the flow file again. Settings that decide *how* records are copied must not
change under a live generation: the driver reads them once and hands them to every task.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from onceover.config.codes import ConfigCode
from onceover.config.flow.flowfile import Flow
from onceover.errors import UsageError

VERSION: Final = 1
EXACTLY_ONCE: Final = "exactly_once"
AT_LEAST_ONCE: Final = "at_least_once"


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """The fixed settings of one run.

    Args:
        delivery: ``exactly_once`` or ``at_least_once``.
        naming: how topics are called on the target.
        handler: ``package.module:function``, or None.
        handler_args: its arguments as they stand in the flow file: ``${NAME}`` is not replaced, because
            this travels as a Spark option (G10). Whoever loads the handler reads the environment.
        on_bad_record: ``stop`` or ``dead_letter:<topic>``.
    """

    delivery: str = EXACTLY_ONCE
    naming: str = "identity"
    handler: str | None = None
    handler_args: Mapping[str, Any] = field(default_factory=dict)
    on_bad_record: str = "stop"

    @classmethod
    def of(cls, flow: Flow) -> RunSettings:
        """Return what ``flow`` says now."""
        return cls(
            delivery=flow.delivery,
            naming=flow.topics.naming,
            handler=flow.handler,
            handler_args=flow.handler_args,
            on_bad_record=flow.on_bad_record,
        )

    def to_text(self) -> str:
        """Return the one Spark option that carries them."""
        return json.dumps({"v": VERSION, **asdict(self)}, sort_keys=True)

    @classmethod
    def from_text(cls, text: str) -> RunSettings:
        """Read what ``to_text`` wrote.

        Raises:
            UsageError: written by another version: driver and worker do not run the same code.
        """
        value = json.loads(text)
        version = value.pop("v", None)
        if version != VERSION or value.keys() != cls.__dataclass_fields__.keys():
            raise UsageError(
                "the driver's settings are not those that this worker understands",
                code=ConfigCode.VERSION_MISMATCH,
                expected=f"run settings of version {VERSION}",
                seen=f"version {version} with {', '.join(sorted(value))}",
                resolve="give driver and executors the same version of Onceover",
            )
        return cls(**value)

    def changed(self, fresh: RunSettings) -> list[str]:
        """Return the keys that ``fresh`` has otherwise, as the flow file calls them."""
        keys = [name for name in self.__dataclass_fields__ if getattr(self, name) != getattr(fresh, name)]
        return sorted("topics.naming" if key == "naming" else key for key in keys)
