"""What runs says which release it is, or that it was never installed."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError

import pytest

from onceover import release


def test_the_version_is_that_of_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "version", lambda name: {"onceover": "1.2.3"}[name])
    assert release.own_version() == "1.2.3"


def test_what_is_not_installed_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a folder is put on Python's path."""

    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(release, "version", missing)
    assert release.own_version() is None
