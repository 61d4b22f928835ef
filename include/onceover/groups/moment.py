"""Translation of committed offsets, as the moving of groups needs it: many questions as of one moment."""

from __future__ import annotations

from onceover.kafka.calls import CommittedOffset
from onceover.model import TopicPartition
from onceover.positions.translate import Translator
from onceover.state.records.enrolment import PlacedProgress
from onceover.wire.offsetlookup import Translation


class GroupMap:
    """A translator that answers each question once between two refreshes: most groups stand at the end.

    Args:
        translator: closed by its owner.
    """

    def __init__(self, translator: Translator) -> None:
        self._translator = translator
        self._answers: dict[tuple[bool, TopicPartition, int], Translation] = {}
        self._one_to_one: dict[TopicPartition, bool] = {}
        self._held: dict[TopicPartition, bool] = {}

    def holds(self, source: TopicPartition) -> bool:
        """Tell whether the map says anything about ``source``."""
        if source not in self._held:
            self._held[source] = self._translator.holds(source)
        return self._held[source]

    def refresh(self) -> None:
        """Bring it up to date with everything that is committed."""
        self._translator.refresh()
        self._answers.clear()
        self._one_to_one.clear()
        self._held.clear()

    def to_target(
        self, source: TopicPartition, offset: int, progress: CommittedOffset | None = None
    ) -> Translation:
        """Return the counterpart of a source offset in the partition of the same number.

        Args:
            progress: of the partition, as it was read since the refresh.
        """
        key = (True, source, offset)
        if key not in self._answers:
            self._answers[key] = self._translator.to_target(source, offset, progress=progress)
        return self._answers[key]

    def to_source(self, target: TopicPartition, offset: int) -> Translation:
        """Return the counterpart of a target offset."""
        key = (False, target, offset)
        if key not in self._answers:
            self._answers[key] = self._translator.to_source(target, offset)
        return self._answers[key]

    def copied_on(self, source: TopicPartition, offset: int) -> int | None:
        """Return up to where everything behind a source offset was copied, without a kept record."""
        return self._translator.copied_on(source, offset)

    def placed(self, target: TopicPartition) -> PlacedProgress | None:
        """Return where the flow began to write to a target partition the last time."""
        return self._translator.placed(target)

    def ids_between(self, target: TopicPartition) -> tuple[str, str]:
        """Return the ids of the topics that a target partition was copied between."""
        return self._translator.ids_between(target)

    def is_one_to_one(self, source: TopicPartition) -> bool:
        """Tell whether all that was copied from ``source`` is in one partition, which holds nothing else.

        What went to another topic, for dead letters, is not in the copy: none of its readers meets it.
        """
        if source not in self._one_to_one:
            own, *others = self._translator.targets_of(source)
            sources = self._translator.sources_of(own)
            self._one_to_one[source] = sources == [source] and all(tp.topic != own.topic for tp in others)
        return self._one_to_one[source]
