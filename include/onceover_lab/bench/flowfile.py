"""The flow file of a benchmark run. Pure: the same settings a user would write, and no more."""

from __future__ import annotations

import re

import yaml

from onceover_lab.bench.workloads import LANES, Contender, Workload


def flow_name(workload: Workload, contender: Contender, round_number: int) -> str:
    """Return a name of its own for each run, so that no state is ever met again."""
    return f"bench-{workload.name}-{contender.name}-{round_number}"


def flow_yaml(
    workload: Workload, contender: Contender, round_number: int, source_bootstrap: str, target_bootstrap: str
) -> str:
    """Return the text of the flow file. Everything that is not named keeps its default."""
    document = {
        "flow": flow_name(workload, contender, round_number),
        "source": {"alias": "source", "client": {"bootstrap.servers": source_bootstrap}},
        "target": {"alias": "target", "client": {"bootstrap.servers": target_bootstrap}},
        "topics": {"include": [re.escape(workload.topic)], "sync_configs": workload.sync_configs},
        "lanes": LANES,
        **contender.flow,
    }
    return yaml.safe_dump(document, sort_keys=False)
