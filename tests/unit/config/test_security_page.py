"""docs/security.md: its examples are flow files in order, and what it grants is what a flow needs."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from onceover.config.flow.load import load_flow
from onceover.config.flow.sides import resolve_clients
from tests.support.flows.grants import CLUSTER, CLUSTER_NAME, Right, source_rights, target_rights
from tests.support.flows.grants import GROUP as OF_GROUP
from tests.support.flows.grants import TOPIC as OF_TOPIC
from tests.support.flows.grants import TRANSACTIONAL_ID as OF_ID

PAGE: Final = (Path(__file__).parents[3] / "docs" / "security.md").read_text()
FLOWS: Final = re.findall(r"^```yaml\n(flow: (\S+)\n.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
ENVIRON: Final = dict.fromkeys(re.findall(r"\$\{(\w+)\}", "".join(text for text, _ in FLOWS)), "a secret")
_RESOURCES: Final = {
    "--topic": OF_TOPIC,
    "--group": OF_GROUP,
    "--transactional-id": OF_ID,
    "--cluster": CLUSTER,
}


@pytest.mark.parametrize(("text", "name"), FLOWS, ids=[name for _, name in FLOWS])
def test_each_example_is_a_flow_file_in_order(text: str, name: str, tmp_path: Path) -> None:
    """With the client file beside it: nothing in them is unknown, missing, or contradicts itself."""
    for file, content in re.findall(
        r"^`(\S+)` beside.*?^```properties\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL
    ):
        (tmp_path / file).write_text(content)
        (tmp_path / file).chmod(0o600)
    path = tmp_path / f"{name}.yaml"
    path.write_text(text)
    source, target = resolve_clients(load_flow(path, environ=ENVIRON), ENVIRON)
    assert (source.alias, target.alias) == ("east", "west")
    assert "a secret" not in repr((source.redacted(), target.redacted()))


def test_there_is_one_of_each_login() -> None:
    """Of those that the reference of keys names."""
    found = set(re.findall(r"sasl\.mechanism: (\S+)", PAGE))
    assert found == {"SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"}
    assert "security.protocol: SSL\n" in PAGE


@pytest.mark.parametrize("side", ["east", "west"])
def test_what_is_granted_is_what_a_flow_needs(side: str) -> None:
    """As the flow has it that runs in tests/integration/guarded/test_acls.py."""
    granted = [granted_by(line) for line in re.findall(rf"^\${side} (.*)$", PAGE, re.MULTILINE)]
    # ALTER on the cluster is for flows that sync ACLs.
    needed = source_rights("orders") if side == "east" else target_rights("orders")
    assert granted == [(*right[:3], right[3].removesuffix(" ALTER")) for right in needed]


def granted_by(line: str) -> Right:
    """Return what a line of kafka-acls.sh grants."""
    words = line.split()
    operations = [_kafkas(after) for word, after in pairwise(words) if word == "--operation"]
    option = next(word for word in words if word in _RESOURCES)
    name = CLUSTER_NAME if option == "--cluster" else words[words.index(option) + 1]
    return _RESOURCES[option], name, "prefixed" in words, " ".join(operations)


def _kafkas(operation: str) -> str:
    """Return the protocol's name of an operation, as DESCRIBE_CONFIGS of DescribeConfigs."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", operation).upper()
