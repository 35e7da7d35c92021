"""Where stream definitions are kept."""

from typing import Protocol

from headrace.model import StreamDefinition


class Definitions(Protocol):
    """Durable definitions of streams, one `stream.json` each. Calls block on the disk."""

    def load(self) -> list[StreamDefinition]:
        """Every definition, by name; ids are drawn from 1 in that order.

        Raises:
            DefinitionError: a file is damaged, or a folder holds data without a definition.
        """
        ...

    def save(self, definition: StreamDefinition) -> None:
        """Replaces the definition; on return it survives power loss.

        Before that either the old one or the new one does.

        Raises:
            LostWritesError: a sync failed; nothing more may be written.
            UnavailableError: the disk refused otherwise; the old definition stands.
        """
        ...
