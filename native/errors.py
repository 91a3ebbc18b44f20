"""What a native client raises.

Rule: one class for what the caller can do about it; both transports raise the same. The message
says what, which, expected and got.
Must not know: where it was found out.
"""


class KledgerError(Exception):
    """Base of everything a native client raises."""


class TopicNotFound(KledgerError):
    """There is no such topic, and none is made by itself."""


class TopicExists(KledgerError):
    """There is a topic of that name already."""


class ConsumerBusy(KledgerError):
    """The subscription has a consumer that excludes this one, or is of another type."""


class ConsumerAssign(KledgerError):
    """The key ranges of this consumer overlap those of another one."""


class AlreadyClosed(KledgerError):
    """The client, producer, consumer or reader was closed."""


class Timeout(KledgerError, TimeoutError):
    """It did not happen within the time that was given."""


class InvalidArgument(KledgerError, ValueError):
    """An argument cannot be; trying again does not help."""


class NotInSequence(InvalidArgument):
    """The batch does not follow the last one of its producer, and was not stored."""


class SubscriptionNotFound(KledgerError):
    """The topic has no subscription of that name."""


class SubscriptionFenced(KledgerError):
    """The subscription's position is being reset: trying again soon will work."""


class TopicTerminated(KledgerError):
    """Nothing can be added to the topic any more."""


class NotAllowed(KledgerError):
    """The server refuses this kind of request."""


class Unavailable(KledgerError):
    """The server cannot be reached, or cannot do it now; trying again may help."""


class Full(KledgerError):
    """As much is under way as may be; nothing was sent."""


class Unreadable(KledgerError):
    """A stored batch is damaged, so that its records cannot be told apart.

    Attributes:
        id: names the whole entry; whoever acknowledges it does not get it again.
    """

    def __init__(self, message: str, id: object) -> None:  # noqa: A002 - as messages call it
        super().__init__(message)
        self.id = id
