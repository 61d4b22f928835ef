"""Of the library that describes Kafka's messages (kafka-python) only these are loaded, not its clients.

Its packages load all of its clients, 0.2 s of CPU in every command, driver and worker, whatever is wanted of
them. Here they are modules that are filled when somebody asks them for more than their submodules: a
handler that has a client of that library finds it as usual.
"""

from __future__ import annotations

import sys
import threading
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Final

# The second is where its logins are, which are used here, and its connections.
_PACKAGES: Final = ("kafka", "kafka.net")
_filling: Final = threading.RLock()
_filled: Final[set[str]] = set()


class _Unfilled(ModuleType):
    """A package, as it is before its own code has run."""

    def __getattr__(self, name: str) -> Any:
        # Python's own attributes are asked for by import machinery, and are there or not.
        if name.startswith("__"):
            raise AttributeError(name)
        with _filling:
            if self.__name__ not in _filled:
                _filled.add(self.__name__)
                spec = self.__spec__
                if spec is not None and spec.loader is not None:
                    spec.loader.exec_module(self)
        try:
            return self.__dict__[name]
        except KeyError:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}") from None


def without_clients() -> None:
    """Let submodules of the library be imported without its clients; nothing where it is loaded already."""
    if _PACKAGES[0] in sys.modules:
        return
    for name in _PACKAGES:
        spec = find_spec(name)
        if spec is None:
            return
        made = _Unfilled(name)
        made.__spec__, made.__loader__, made.__file__ = spec, spec.loader, spec.origin
        made.__package__, made.__path__ = name, list(spec.submodule_search_locations or ())
        sys.modules[name] = made
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, made)
