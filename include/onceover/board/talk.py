"""What the page's server and the process that asks the clusters call things between them. Pure."""

from __future__ import annotations

from typing import Final

# In the answer about Connections, by name: what hands it to a process, or why there is nothing to hand over.
GIVEN: Final = "given"
MISSING: Final = "missing"
