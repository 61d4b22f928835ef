"""What stands for something proven is no topic."""

from __future__ import annotations

import pytest
from airflow.providers.openlineage.utils.utils import translate_airflow_asset
from airflow.sdk import Asset

from onceover_airflow.telling.assets import proven_uri


@pytest.mark.parametrize("what", ["flights", "flights.audit"])
def test_no_dataset_is_made_of_what_is_proven(what: str) -> None:
    """It would join with nothing. A topic's asset is one (``test_naming``)."""
    asset = Asset(proven_uri("west", what))
    assert asset.uri == f"x-onceover://west/{what}"
    assert translate_airflow_asset(asset, None) is None
