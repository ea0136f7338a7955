"""Exceptions of the package."""

from __future__ import annotations


class Error(Exception):
    """An operation that failed.

    Attributes
    ----------
    remedy : str or None
        A way to continue.
    """

    def __init__(self, message: str, remedy: str | None = None) -> None:
        super().__init__(message if remedy is None else f"{message}; {remedy}")
        self.remedy = remedy


class OverLimit(Error, MemoryError):
    """A request for memory that exceeds what its budget has left.

    Attributes
    ----------
    needed : int
        The requested bytes.
    available : int
        The bytes that the budget has left.
    limit : int
        The budget's limit in bytes.
    holders : list of (str, int)
        The largest holders and their bytes, the largest first.
    """

    def __init__(
        self,
        message: str,
        remedy: str | None,
        needed: int,
        available: int,
        limit: int,
        holders: list[tuple[str, int]],
    ) -> None:
        super().__init__(message, remedy)
        self.needed = needed
        self.available = available
        self.limit = limit
        self.holders = holders


class InternalError(Error):
    """A fault of Plimsoll itself."""

    def __init__(self) -> None:
        super().__init__("Plimsoll failed because of a fault of its own", "report it with the arguments of the call")
