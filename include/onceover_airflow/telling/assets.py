"""The assets that stand for something proven about a flow, on which other DAGs are scheduled. Pure.

Invariant: none is taken for a topic. ``kafka://`` names topics: whatever else had such an address would be a
dataset that nobody else knows in a catalogue of lineage. Of ``x-`` addresses Airflow's providers make none.
"""

from __future__ import annotations


def proven_uri(alias: str, what: str) -> str:
    """Return the address of such an asset.

    Args:
        alias: of the cluster that it is about.
        what: the flow's name, followed by ``.<kind>`` where it is not the copy; flow names hold no dot.
    """
    return f"x-onceover://{alias}/{what}"
