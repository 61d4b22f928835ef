"""The commands that messages name, complete and ready for a shell. Pure.

Invariant: what stands between backticks in a message is a whole command that can be pasted, or the one
option that is added to it; tests take them out of the messages and run them.
"""

from __future__ import annotations

import re
import shlex
from typing import Final, NamedTuple

from onceover.model import TopicPartition

# Between backticks, from the program's name on: a backtick before it may be somebody's. What `command`
# has quoted for a shell may hold some itself.
_QUOTED: Final = re.compile(r"`((?:onceover|make|kafka-[a-z-]+\.sh) (?:[^`'\"]|'[^']*'|\"[^\"]*\")+)`")
_HOW = "prints the plan, `--apply` does it"


class AdvicePart(NamedTuple):
    """A piece of what a message says has to be done; ``is_command`` where it can be pasted as it is."""

    text: str
    is_command: bool


def split_advice(text: str) -> list[AdvicePart]:
    """Return the pieces of a ``resolve`` in their order: prose, and the commands that it names.

    A command is what stands between backticks, begins with a program of ours or Kafka's, and is nothing but
    words to a shell: whoever pastes it has no more run than that. Everything else stays as it was written.
    """
    parts, done = [], 0
    for found in _QUOTED.finditer(text):
        if _is_command(found[1]):
            parts += [AdvicePart(text[done : found.start()], False), AdvicePart(found[1], True)]
            done = found.end()
    return [part for part in (*parts, AdvicePart(text[done:], False)) if part.text]


def _is_command(text: str) -> bool:
    try:
        return shlex.join(shlex.split(text)) == text
    except ValueError:
        return False


def command(*words: str) -> str:
    """Return ``onceover`` with these words, quoted for a shell, between backticks."""
    return f"`{shlex.join(['onceover', *words])}`"


def resume(flow: str, source: TopicPartition) -> str:
    """Return how a running flow is asked to look at a stopped partition again."""
    return f"{_partition('resume', flow, source)} has it looked at again ({_HOW})"


def skip_to(flow: str, source: TopicPartition, offset: int, purpose: str) -> str:
    """Return how a partition goes on at ``offset``.

    Args:
        purpose: what that means, as an infinitive.
    """
    return f"{_partition('skip-to', flow, source, str(offset))} to {purpose} ({_HOW})"


def reseed(flow: str, source: TopicPartition) -> str:
    """Return how a partition is copied from its start."""
    return f"{_partition('reseed', flow, source)} copies it from its start ({_HOW})"


def replicate(flow: str) -> str:
    """Return how a flow is started."""
    return command("replicate", flow)


def seed_plan(flow: str, origin: str, *options: str) -> str:
    """Return how to see what seeding would write."""
    return command("seed", "plan", flow, "--from", origin, *options)


def seed_apply(flow: str, origin: str, *options: str) -> str:
    """Return how a flow is seeded."""
    return command("seed", "apply", flow, "--from", origin, *options)


def lead_back(back: str, flow: str) -> str:
    """Return how ``back`` begins behind what ``flow`` had copied when it was promoted, as *reverse* does.

    From the second journey on it has progress there, of the one before.
    """
    return seed_apply(back, f"promoted:{flow}", "--replace")


def _partition(action: str, flow: str, source: TopicPartition, *more: str) -> str:
    return command("partition", action, flow, str(source), *more)
