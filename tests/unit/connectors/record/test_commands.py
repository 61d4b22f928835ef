"""Commands in messages: what a person copies does what was meant, whatever a connector is called."""

from __future__ import annotations

import shlex

import pytest

from onceover.cli.parsing import build_parser
from onceover.connectors.record.commands import connector_words, rollback_command


@pytest.mark.parametrize("name", ["orders", "-orders", "--all", "my orders; ls", "it's", "$HOME"])
def test_command_means_this_connector(name: str) -> None:
    """No shell and no parser takes a name for anything else."""
    words = shlex.split(rollback_command("flights", name))
    parsed = build_parser().parse_args(words[1:])
    assert (parsed.action, parsed.connect, parsed.connector) == ("rollback", "flights", [name])
    assert parsed.apply


def test_several_names_stay_in_order() -> None:
    """They are done in it."""
    words = ["connectors", "plan", "flights", *connector_words(["b", "-a", "c"])]
    assert build_parser().parse_args(words).connector == ["b", "-a", "c"]
