"""Memory limits inside a Python process."""

from __future__ import annotations

import threading
import weakref
from typing import NamedTuple

from . import _plimsoll


class Holder(NamedTuple):
    """The memory of one holder.

    Attributes
    ----------
    name : str
        The holder.
    now : int
        Reserved bytes.
    peak : int
        The largest number of bytes ever reserved at a time.
    """

    name: str
    now: int
    peak: int


_budgets: weakref.WeakSet[Budget] = weakref.WeakSet()
# A set of weak references must not change while it is listed.
_budgets_lock = threading.Lock()


class Budget:
    """A limit of the working memory of Plimsoll in this process.

    Functions reserve their working memory before they allocate it, and raise `OverLimit` if the budget has too little
    left. Arrays of the caller and returned arrays are not counted.

    Parameters
    ----------
    limit : str or int
        The limit: bytes, or a text such as ``"2GiB"`` or ``"800MB"``.
    """

    def __init__(self, limit: str | int) -> None:
        self._ledger = _plimsoll.Budget(_bytes(limit))
        _remember(self)

    @classmethod
    def process(cls, limit: str | int) -> Budget:
        """Return a budget of what a limit of the whole process leaves beside the memory that it holds now.

        Pages of mapped files that are in memory, as of a ``numpy.memmap``, count as held.

        Parameters
        ----------
        limit : str or int
            The limit of the process.

        Raises
        ------
        Error
            If the process holds more than the limit already.
        """
        budget = cls.__new__(cls)
        budget._ledger = _plimsoll.Budget(_bytes(limit), of_process=True)
        _remember(budget)
        return budget

    @property
    def limit(self) -> int:
        """The limit in bytes."""
        return self._ledger.limit

    @property
    def used(self) -> int:
        """The bytes that are reserved now."""
        return self._ledger.used

    @property
    def available(self) -> int:
        """The bytes that can still be reserved."""
        return self._ledger.free

    @property
    def peak(self) -> int:
        """The largest number of bytes that were reserved at a time."""
        return self._ledger.peak

    def holders(self) -> list[Holder]:
        """Return the holders, the largest first."""
        return [Holder(*holder) for holder in self._ledger.holders()]

    def __repr__(self) -> str:
        return f"Budget(limit={self.limit}, used={self.used}, peak={self.peak})"


def memory() -> list[Holder]:
    """Return all holders of memory that Plimsoll has reserved in this process, the largest first.

    Calls without a budget are counted too.
    """
    holders = [Holder(*holder) for holder in _plimsoll.unlimited_holders()]
    with _budgets_lock:
        budgets = list(_budgets)
    for budget in budgets:
        holders.extend(budget.holders())
    return sorted(holders, key=lambda holder: -holder.now)


def _remember(budget: Budget) -> None:
    """Let `memory` list a budget for as long as it exists."""
    with _budgets_lock:
        _budgets.add(budget)


def _bytes(limit: str | int, name: str = "limit") -> int:
    if isinstance(limit, bool) or not isinstance(limit, (str, int)):
        raise TypeError(f"{name} must be a number of bytes or a text such as '2GiB', not {type(limit).__name__}")
    if isinstance(limit, str):
        try:
            return _plimsoll.parse_bytes(limit)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    if limit < 0:
        raise ValueError(f"{name} is {limit} bytes; a limit must not be negative")
    return limit
