"""Claiming topics before they are taken in: the steps of ``state.records.ownership`` on real clusters.

Invariant: what ``settle`` lets through was claimed, and everybody could read the claim before the other flows
were looked at; until it is enrolled the claim stands.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from onceover.clock import now_ms
from onceover.lead.leader import Leader
from onceover.planning.plan import Refusal
from onceover.state import names
from onceover.state.records.ownership import Claim, ClaimAnswer, FlowId, Rival, decide, read_claims
from onceover.state.steps import Step, reached
from onceover.topics.refusals import claimed_elsewhere

# A rival that runs gives way within a fraction of a second; one that does not run, not at all.
_PATIENCE_S: Final = 2.0
_LOOK_AGAIN_S: Final = 0.1

# Given source topics with their targets, the rivals of each now.
Look = Callable[[Mapping[str, str]], Mapping[str, list[Rival]]]


@dataclass(frozen=True)
class Claims:
    """The claims of one flow's leader.

    Args:
        leader: of a run, or of an operator's change of progress.
        look: reads who else wants what; raises ``Retriable`` while another flow's state cannot be read.
    """

    leader: Leader
    look: Look

    def settle(self, wanted: Mapping[str, str]) -> list[Refusal]:
        """Claim topics and see whose they are; return those that are not this flow's, and why.

        Claims of topics that are not wanted any more are taken back.

        Args:
            wanted: source topics to enrol for the first time, with their targets.

        Raises:
            Fenced: a newer generation runs.
            Retriable: interrupted, or another flow's state cannot be read; plan anew.
        """
        old = read_claims(self.leader.state.values)
        at_ms = now_ms()
        records: dict[str, Mapping[str, object] | None] = {
            names.claim_key(target): Claim(source, target, at_ms).to_json()
            for source, target in wanted.items()
            if target not in old
        }
        records |= {names.claim_key(target): None for target in old.keys() - set(wanted.values())}
        if records:
            reached(Step.OWN_CLAIM)
            self.leader.put(records)
        if not wanted:
            return []
        theirs = self._decided(wanted)
        lost = [topic for topic, (answer, _) in theirs.items() if answer is ClaimAnswer.THEIRS]
        if lost:
            self.leader.put({names.claim_key(wanted[topic]): None for topic in lost})
        return [claimed_elsewhere(topic, flow.name) for topic, (_, flow) in theirs.items()]

    def withdraw(self) -> None:
        """Take all claims back: this run enrols nothing any more."""
        self.settle({})

    def _decided(self, wanted: Mapping[str, str]) -> dict[str, tuple[ClaimAnswer, FlowId]]:
        """Return what is not this flow's, once nothing is open or nobody answers any more."""
        until_s = time.monotonic() + _PATIENCE_S
        while True:
            reached(Step.OWN_LOOK)
            rivals = self.look(wanted)
            found = {topic: decide(self.leader.flow, rivals[topic]) for topic in wanted}
            waiting = any(answer is ClaimAnswer.WAIT for answer, _ in found.values())
            if not waiting or time.monotonic() >= until_s:
                return {topic: (answer, flow) for topic, (answer, flow) in found.items() if flow is not None}
            time.sleep(_LOOK_AGAIN_S)
