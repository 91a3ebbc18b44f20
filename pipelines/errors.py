"""How a pipeline fails: by a wrong call, or while it runs.

Rule: the message is for the user; it says what, which, expected and got.
"""


class WrongCall(ValueError):
    """The options are wrong; nothing was read or written. Exit code 2."""


class PipelineFailed(RuntimeError):
    """The run failed; what was written is whole, and the next run goes on. Exit code 1."""
