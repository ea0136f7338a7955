"""Losses that see shapes and streams of patches, for PyTorch.

The module needs PyTorch, which the package does not install.
"""

try:
    import torch as _torch
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ImportError(
        "plimsoll.torch needs PyTorch, which is not installed; install it with `pip install torch`", name="torch"
    ) from error

if not hasattr(_torch.library, "custom_op"):
    raise ImportError(
        f"plimsoll.torch needs PyTorch 2.4 or later, but {_torch.__version__} is installed;"
        " install it with `pip install --upgrade torch`",
        name="torch",
    )

from ._boundary import BoundaryL1Loss
from ._composite import Component, CompositeLoss
from ._distances import BoundaryLoss, HausdorffDTLoss, LogHausdorffDTLoss, SurfaceDistanceLoss
from ._patches import Patches
from ._skeletons import SkeletonRecallLoss, SoftClDiceLoss

__all__ = [
    "BoundaryL1Loss",
    "BoundaryLoss",
    "Component",
    "CompositeLoss",
    "HausdorffDTLoss",
    "LogHausdorffDTLoss",
    "Patches",
    "SkeletonRecallLoss",
    "SoftClDiceLoss",
    "SurfaceDistanceLoss",
]
