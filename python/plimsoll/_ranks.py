"""Trainings by the processes that a launcher of MPI has started."""

from __future__ import annotations

import atexit
import sys

from . import _plimsoll
from ._call import as_flag
from ._errors import Error


def rank_of(ranks: object) -> int | None:
    """Return the rank of this process if a training joins the other processes of a launcher, else `None`.

    `ranks` is the argument of `train`: `None` joins them if there are any.
    """
    if ranks is not None and not as_flag(ranks, "ranks"):
        return None
    rank = _plimsoll.launched_rank()
    if rank is None:
        if ranks is not None:
            raise Error(
                "no launcher has started this process as one of several",
                "start the script with `mpiexec -n 4 python SCRIPT`, or leave ranks out",
            )
        return None
    _expect_no_other_mpi()
    # Without MPI's own end of a process, a launcher takes it for one that was killed.
    atexit.unregister(_close)
    atexit.register(_close)
    return rank


def _expect_no_other_mpi() -> None:
    """Refuse to join if `mpi4py` has initialised MPI, which a process does once, in the thread that communicates."""
    module = sys.modules.get("mpi4py.MPI")
    if module is not None and module.Is_initialized():
        raise Error(
            "mpi4py has initialised MPI in this process, which can be done once, and the ranks of a training need it",
            "set mpi4py.rc.initialize = False before `from mpi4py import MPI`, or pass ranks=False to train in this "
            "process alone",
        )


def _close() -> None:
    # The interpreter sets it for an exception that ends the script. The other ranks would wait for this one.
    _plimsoll.close_ranks(getattr(sys, "last_value", None) is not None)
