"""WorkerIdentity: the place of a server among its workers: its broker id and the shared folder.

Rule: plain data, sent to the worker's process with its settings.
Must not know: processes, sockets.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

Address: TypeAlias = tuple[str, int]
"""Host and port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerIdentity:
    """One worker of a server.

    Attributes:
        index: from 0; its `node.id` is that of the settings plus this.
        count: workers that run now.
        made_with: workers that its folder was made with, at most `count`; what is divided by a
            remainder, such as the shards of coordinators, is divided among these for ever.
        folder: holds what the workers share, and in `worker-<index>` the store of each.
        bootstrap: addresses that all workers listen on: `kafka` is that of `server.kafka`, `native`
            that of `server.native`; others have the name of their listener.
    """

    index: int
    count: int
    made_with: int
    folder: str
    bootstrap: Mapping[str, Address]
