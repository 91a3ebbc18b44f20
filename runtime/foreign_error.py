"""What messages say about an error of code that is not ours, such as a strategy or a filter.

Rule: its text is short, and making it raises nothing, though it is made by the same code.
Must not know: whose code it is.
"""

ERROR_LENGTH_MAX = 500
"""Characters of such an error that a message repeats."""


def shown(error: BaseException) -> str:
    """Return class and text of an error of code that is not ours."""
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - its text is made by the same code
        text = type(error).__name__
    return text[:ERROR_LENGTH_MAX]
