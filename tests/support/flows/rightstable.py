"""The table of rights in docs/operations.md, read as rights: what it says must be enough."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tests.support.flows.grants import CLUSTER, CLUSTER_NAME, GROUP, TOPIC, TRANSACTIONAL_ID, Right

_DOCS: Final = Path(__file__).parents[3] / "docs" / "operations.md"
_HEAD: Final = "| command | cluster | resource | operations |"
_OPERATION: Final = re.compile(r"[A-Z_]{4,}")
_CODE: Final = re.compile(r"`([^`]+)`")
# How a resource is written: what kind it is, and whether a name is a prefix.
_NAMED: Final = {
    "topics with prefix": (TOPIC, True),
    "topic": (TOPIC, False),
    "group": (GROUP, False),
    "groups with prefix": (GROUP, True),
    "transactional ids with prefix": (TRANSACTIONAL_ID, True),
}
_OF_THE_FLOW: Final = {"topics of the flow": TOPIC, "groups of the flow": GROUP, "the group named": GROUP}
_WITH_ACLS: Final = "sync_acls"


def command_rights(command: str, flow: str, *, acls: bool = False) -> tuple[list[Right], list[Right]]:
    """Return the rights on source and target that ``command`` takes: `seed plan --from map` takes what
    `seed plan` takes, and more.

    Topics and groups of the flow begin with its name here.

    Args:
        acls: the flow syncs ACLs.
    """
    sides: dict[str, list[Right]] = {"source": [], "target": []}
    for commands, cluster, resource, operations in _rows():
        if _WITH_ACLS in resource and not acls:
            continue
        if any(f"{command} ".startswith(f"{named} ") for named in _CODE.findall(commands)):
            sides[cluster].append(_right(resource, operations, flow))
    if not any(sides.values()):
        raise LookupError(f"{_DOCS.name} has no rights of `{command}`")
    return sides["source"], sides["target"]


def _rows() -> list[list[str]]:
    table = _DOCS.read_text().split(_HEAD)[1].split("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def _right(resource: str, operations: str, flow: str) -> Right:
    wanted = " ".join(_OPERATION.findall(operations))
    if resource in _OF_THE_FLOW:
        return _OF_THE_FLOW[resource], flow, True, wanted
    if resource == "all groups":
        return GROUP, "*", False, wanted
    if resource.startswith("cluster"):
        return CLUSTER, CLUSTER_NAME, False, wanted
    words, name, _ = resource.split("`")
    kind, is_prefix = _NAMED[words.strip()]
    return kind, name.replace("<flow>", flow), is_prefix, wanted
