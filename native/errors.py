"""The errors that a native client raises.

Rule: one class for each reaction of the caller; both transports raise the same. The message names
the subject, the expected and the actual value.
Must not know: the code that raises them.
"""


class KledgerError(Exception):
    """Base of everything a native client raises."""


class TopicNotFound(KledgerError):
    """There is no such topic, and it is not created automatically."""


class TopicExists(KledgerError):
    """A topic of that name exists already."""


class NamespaceNotFound(TopicNotFound):
    """There is no such namespace, and it is not created automatically."""


class ConsumerBusy(KledgerError):
    """The subscription has a consumer that excludes this one, or is of another type."""


class ConsumerAssign(KledgerError):
    """The key ranges of this consumer overlap those of another one."""


class AlreadyClosed(KledgerError):
    """The client, producer, consumer or reader was closed."""


class Timeout(KledgerError, TimeoutError):
    """The operation did not finish within its time limit."""


class InvalidArgument(KledgerError, ValueError):
    """An argument is wrong; a retry does not help."""


class NotInSequence(InvalidArgument):
    """The batch does not follow the last one of its producer, and was not stored."""


class SubscriptionNotFound(KledgerError):
    """The topic has no subscription of that name."""


class SubscriptionFenced(KledgerError):
    """The position of the subscription is being reset; a retry soon will work."""


class TopicTerminated(KledgerError):
    """The topic accepts no more messages."""


class NotAllowed(KledgerError):
    """The server refuses this kind of request."""


class CompactionRunning(NotAllowed):
    """The topic is being compacted; a retry when that has ended will work."""


class OffloadInProgress(NotAllowed):
    """The topic is being offloaded; a retry when that has ended will work."""


class NamespaceExists(NotAllowed):
    """A namespace of that name exists already."""


class Unavailable(KledgerError):
    """The server cannot be reached, or cannot serve the request now; a retry may help."""


class NotLeaderForPartition(Unavailable):
    """Another broker of the cluster leads the partition; a lookup says which."""


class Full(KledgerError):
    """A limit is reached, such as a producer's of pending messages; nothing was sent or added."""


class IllegalState(KledgerError):
    """A subscriber or publisher is closed, or does not own the channel; nothing has changed."""


class SubscriberDisconnected(IllegalState):
    """The group does not have this subscriber, or no longer; its client joins it again."""


class SubscriberGroupDestroyed(IllegalState):
    """There is no such subscriber group, or no longer."""


class IllegalArgument(InvalidArgument):
    """A position, a time or an option of a named topic is wrong; nothing has changed."""


class FunctionFailed(KledgerError):
    """The filter or the converter of a group has failed for an element, which is left out."""


class TopicFull(Full):
    """A named topic has as many unconsumed bytes as it may have; nothing was published."""


class Unreadable(KledgerError):
    """A stored batch is damaged, and its records cannot be decoded.

    Attributes:
        id: of the whole entry; once it is acknowledged, the entry is not redelivered.
    """

    def __init__(self, message: str, id: object) -> None:  # noqa: A002 - as messages call it
        super().__init__(message)
        self.id = id
