"""``onceover metrics``: what Prometheus scrapes."""

from __future__ import annotations

from typing import Final

from onceover.cli import numbers
from onceover.cli.parser import Subparsers, Work, add_command, end
from onceover.cli.parsers.status import PATIENCE_S

# As `metrics.fromstatus` and docs/metrics.md have it.
MAX_PARTITIONS: Final = 2_000
_EXAMPLES: Final = f"""examples:
  onceover metrics                              all flows of the flows directory, at http://127.0.0.1:9464/metrics
  onceover metrics flights-dr --interval 30s    one flow, looked at every half minute
  onceover metrics --once --output DIR/onceover.prom    one look, for node_exporter's textfile collector
  onceover metrics --otlp http://127.0.0.1:4318 also to an OpenTelemetry collector, at each interval

Runs until Ctrl-C or SIGTERM. Every flow is looked at in a thread of its own; a scrape is answered at once
with what was seen last, and waits for no cluster. Whoever can reach the port can read it.
Of a flow with more than {MAX_PARTITIONS:,} partitions (--partitions) only those have series of their own that
are stopped or not copied. docs/metrics.md lists the metrics, the alerts and the dashboard.
"""


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = add_command(subparsers, "metrics", "tell Prometheus how the flows are", _EXAMPLES)
    parser.add_argument("flow", nargs="*", metavar="FLOW", help="names or paths (default: all flows)")
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen at (default: this machine alone)"
    )
    parser.add_argument(
        "--port", type=numbers.whole("port", 0, 65_535), default=9464, help="0: any free one (default: 9464)"
    )
    parser.add_argument(
        "--interval",
        type=numbers.duration("interval"),
        default=15.0,
        metavar="DURATION",
        help="from the end of a look at a flow to the next (default: 15s)",
    )
    parser.add_argument(
        "--patience",
        type=numbers.seconds("patience", 0.1, 3600),
        default=PATIENCE_S,
        metavar="SECONDS",
        help=f"how long a cluster may leave us without an answer (default: {PATIENCE_S:.0f})",
    )
    parser.add_argument(
        "--partitions",
        type=numbers.whole("number of partitions", 0, 100_000),
        default=MAX_PARTITIONS,
        metavar="COUNT",
        help=f"of a flow, and topics, with series of their own (default: {MAX_PARTITIONS})",
    )
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--once", action="store_true", help="look once, print the metrics, end")
    parser.add_argument(
        "--output", metavar="FILE", help="with --once: replace a file by them, in one step, instead"
    )
    ways.add_argument(
        "--otlp", metavar="URL", help="also send them to an OpenTelemetry collector (http://host:4318)"
    )
    end(parser, Work("metrics"))
