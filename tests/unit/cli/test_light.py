"""Help, wrong usage and the parsing of a command load none of the libraries that its work needs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from onceover.cli.commands.connectors import DOWNGRADES
from onceover.cli.parser import COMMANDS
from onceover.cli.parsers import adopt, connectors, groups, partition, seed, status
from onceover.cli.parsing import build_parser
from onceover.groups.decide import Direction
from onceover.operate import repair
from onceover.seeding import plan as seeding
from onceover.seeding import seamsearch
from onceover.wiring.status import PATIENCE_S
from tests.support.commands.parsers import leaves

# Each takes longer to load than all parsers together.
HEAVY = (
    "airflow",
    "aiokafka",
    "asyncio",
    "confluent_kafka",
    "crc32c",
    "cramjam",
    "croniter",
    "great_expectations",
    "httpx",
    "kafka.protocol",
    "matplotlib",
    "numpy",
    "pandas",
    "psutil",
    "pyarrow",
    "pydantic",
    "pyspark",
    "rich",
    "ssl",
    "yaml",
)
_LOOKED = """
import atexit, sys
def look():
    sys.stderr.write("\\nloaded: " + " ".join(sys.modules))
atexit.register(look)
from onceover.cli import entry
sys.exit(entry.run())
"""


def loaded(*arguments: str) -> set[str]:
    """Run the command line in a process of its own; return which modules were loaded at its end."""
    ended = subprocess.run(
        [sys.executable, "-c", _LOOKED, *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert "Traceback" not in ended.stderr
    return set(ended.stderr.rsplit("loaded: ", 1)[1].split())


@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS)])
def test_help_loads_no_library(command: tuple[str, ...]) -> None:
    """Nor the module that does the work, which is where they come from."""
    found = loaded(*command, "--help")
    assert not found & {*HEAVY, *(f"onceover.cli.{name}" for name in COMMANDS)}


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("replicate",),
        ("status", "--nonsense"),
        ("groups", "plan", "flights-dr", "--direction", "sideways"),
        ("partition", "skip-to", "flights-dr", "flights.jfk:0", "many"),
    ],
)
def test_wrong_usage_loads_no_library(arguments: tuple[str, ...]) -> None:
    """What is wrong can be said at once."""
    assert not loaded(*arguments) & set(HEAVY)


@pytest.mark.parametrize(
    "typed",
    [
        "flow check flights-dr --explain flights.jfk --sample 3",
        "flow import mm2.properties",
        "topics apply flights-dr",
        "replicate flights-dr --until 10m",
        "stop flights-dr --wait 3",
        "status --patience 3",
        "partition skip-to flights-dr flights.jfk:3 12 --apply",
        "groups follow flights-dr --group billing",
        "seed plan flights-dr --from map",
        "adopt plan flights-dr --window 7",
        "translate flights-dr flights.jfk:3 12",
        "receipts rebuild flights-dr",
        "audit flights-dr --sample 3 --report x.html",
        "connectors downgrade flights --all --mode soft",
        "clusters up --feed",
        "demo --records 10000",
        "bench --workload lz4",
    ],
)
def test_parsing_loads_no_library(typed: str) -> None:
    """They come with the work; what is typed is in order until then."""
    parse = "from onceover.cli.parsing import build_parser; build_parser().parse_args(sys.argv[1:])"
    ended = subprocess.run(
        [sys.executable, "-c", f"import sys; {parse}; print(*sys.modules)", *typed.split()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert not set(ended.stdout.split()) & {*HEAVY, *(f"onceover.cli.{name}" for name in COMMANDS)}


def test_a_command_loads_its_own_work_only() -> None:
    """Whoever types one does not wait for the libraries of the others."""
    found = loaded("audit", "no-such-flow")
    assert "onceover.cli.commands.audit" in found
    assert not found & {
        "onceover.cli.commands.adopt",
        "onceover.cli.commands.clusters",
        "kafka.protocol",
        "httpx",
        "numpy",
    }


def test_every_parser_names_work_that_is_there() -> None:
    """It is found when it is run only; a wrong name would be found by the one who types the command."""
    parsers = list(leaves(build_parser()))
    assert len(parsers) > len(COMMANDS)
    for parser in parsers:
        assert callable(parser.get_default("work").load()), parser.prog


def test_what_is_offered_is_what_the_work_knows() -> None:
    """The parsers have their own list of it, because the work's takes libraries along."""
    assert list(groups.DIRECTIONS) == [str(direction) for direction in Direction]
    assert list(connectors.MODES) == list(DOWNGRADES)
    assert seed.MISSING == (seeding.REFUSE, seeding.EARLIEST, seeding.LATEST)
    assert (partition.RESUME, partition.SKIP, partition.RESEED) == (repair.RESUME, repair.SKIP, repair.RESEED)
    assert (status.PATIENCE_S, adopt.WINDOW) == (PATIENCE_S, seamsearch.DEFAULT_LIMIT)


def test_a_flow_file_is_checked_without_a_client() -> None:
    """What copies records and what asks brokers has no part in reading a file."""
    found = loaded("flow", "check", "no-such-flow")
    assert "onceover.cli.commands.flow" in found
    assert not found & {"kafka.protocol", "numpy", "pyarrow", "ssl"}
