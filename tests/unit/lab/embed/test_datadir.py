"""Formatting a data directory without Java: what the storage tool writes is there, whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceover_lab.embed.datadir import format_as_kept, is_formatted, keep


def formatted_by_the_tool(folder: Path, first_metadata: bytes) -> Path:
    folder.mkdir()
    (folder / "bootstrap.checkpoint").write_bytes(first_metadata)
    (folder / "meta.properties").write_text(
        "#\n#Sun\nnode.id=1\ndirectory.id=x\nversion=1\ncluster.id=theirs\n"
    )
    return folder


def properties(data: Path) -> dict[str, str]:
    lines = (data / "meta.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


def test_what_the_tool_wrote_once_formats_every_later_node(tmp_path: Path) -> None:
    """The same first metadata and the same keys, under identities of their own."""
    jars = tmp_path / "jars"
    jars.mkdir()
    theirs = formatted_by_the_tool(tmp_path / "theirs", b"features")
    keep(theirs, jars)
    keep(formatted_by_the_tool(tmp_path / "later", b"other"), jars)
    nodes = [tmp_path / "home" / f"node-{number}" / "data" for number in (1, 2)]

    made = [format_as_kept(node, jars, cluster_id="ours", node_id=n) for n, node in enumerate(nodes, 1)]

    assert made == [True, True]
    assert [is_formatted(node) for node in nodes] == [True, True]
    for number, node in enumerate(nodes, 1):
        assert sorted(path.name for path in node.iterdir()) == sorted(path.name for path in theirs.iterdir())
        assert (node / "bootstrap.checkpoint").read_bytes() == b"features"
        # All below ONCEOVER_HOME is its owner's alone; the jars' folder is read by whoever shares it.
        assert (node / "bootstrap.checkpoint").stat().st_mode & 0o777 == 0o600
        assert properties(node).keys() == properties(theirs).keys()
        assert (properties(node)["cluster.id"], properties(node)["node.id"]) == ("ours", str(number))
    assert len({properties(node)["directory.id"] for node in nodes}) == 2


def test_without_anything_kept_the_tool_is_left_to_do_it(tmp_path: Path) -> None:
    """Nothing is written that it would take for its own."""
    data = tmp_path / "data"
    assert not format_as_kept(data, tmp_path, cluster_id="ours", node_id=1)
    assert not is_formatted(data) and not data.exists()


def test_a_directory_is_formatted_last_of_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed in between, it is formatted anew."""
    jars, data = tmp_path / "jars", tmp_path / "data"
    jars.mkdir()
    keep(formatted_by_the_tool(tmp_path / "theirs", b"features"), jars)
    monkeypatch.setattr(Path, "write_text", killed)
    with pytest.raises(KeyboardInterrupt):
        format_as_kept(data, jars, cluster_id="ours", node_id=1)
    assert not is_formatted(data)
    monkeypatch.undo()
    assert format_as_kept(data, jars, cluster_id="ours", node_id=1)
    assert is_formatted(data)


def killed(*_: object, **__: object) -> None:
    raise KeyboardInterrupt
