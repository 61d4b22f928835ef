"""docs/audit.md says what a PASS means: each sentence of the contract names its test, which is there."""

from __future__ import annotations

import re
from pathlib import Path

PROJECT = Path(__file__).parents[3]
CONTRACT = (
    (PROJECT / "docs" / "audit.md").read_text().split("## What a PASS says\n", 1)[1].split("\n## ", 1)[0]
)
ROWS = [line for line in CONTRACT.splitlines() if line.startswith("| ") and not line.startswith("|---")]


def test_every_sentence_of_the_contract_has_a_test_that_exists() -> None:
    """In the last column of each row, by name."""
    sentences = [row for row in ROWS if not row.endswith("| test |")]
    named = {row: re.findall(r"`(test_[a-z0-9_]+)`", row) for row in sentences}
    assert len(sentences) > 10
    assert [row for row, tests in named.items() if not tests] == []
    files = [
        *(PROJECT / "tests/unit/audit").rglob("test_*.py"),
        *(PROJECT / "tests/integration/audits").glob("test_*.py"),
    ]
    known = set(
        re.findall(r"^def (test_[a-z0-9_]+)", "\n".join(path.read_text() for path in files), re.MULTILINE)
    )
    assert {test for tests in named.values() for test in tests} - known == set()
