"""The errors of named topics.

Rule: one class for each reaction of the caller. The message names the subject, the expected and the
actual value.
Must not know: the code that raises them.
"""


class NamedTopicError(Exception):
    """Base of everything that this package raises."""


class NamedTopicNotFound(NamedTopicError):
    """The topic was not created, or is no named topic."""


class GroupDestroyed(NamedTopicError):
    """There is no such subscriber group, or no longer."""


class UnknownSubscriber(NamedTopicError):
    """The group has no such subscriber; it may join again."""


class NotOwner(NamedTopicError):
    """The subscriber does not own a channel that it names; nothing has changed."""


class FunctionNotAllowed(NamedTopicError):
    """The server no longer allows a function that the group has."""


class FunctionsUnavailable(NamedTopicError):
    """The functions of a group cannot be called now; a retry may help."""


class WrongArgument(NamedTopicError):
    """A value is wrong; nothing has changed."""


class CapacityReached(NamedTopicError):
    """The topic has as many unconsumed bytes as it may have; nothing was published."""
