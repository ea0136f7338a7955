//! Ops that have kernels for processors alone. A plan refuses a network with one of them.

use plimsoll_graph::ops::{
    AddPositions, AddPositionsGrad, ChannelScale, ChannelScaleGrad, DepthToSpace, DepthToSpaceGrad, PadFront,
    PadFrontGrad, Prelu, PreluGrad, ResponseNorm, ResponseNormGrad, RotaryAttention, RotaryAttentionGrad,
    SwiGlu, SwiGluGrad, UpsampleAligned, VoxelGate, VoxelGateGrad,
};
use plimsoll_plan::Unsupported;

use crate::lower::{Context, Lower, Work};

/// The refusal of an op.
fn refused(cx: &Context<'_>) -> Unsupported {
    cx.unsupported("it has kernels for processors alone")
}

macro_rules! refuse {
    ($($op:ident),+) => {
        $(impl Lower for $op {
            fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
                Err(refused(cx))
            }
        })+
    };
}

refuse!(
    AddPositions,
    AddPositionsGrad,
    ChannelScale,
    ChannelScaleGrad,
    DepthToSpace,
    DepthToSpaceGrad,
    PadFront,
    PadFrontGrad,
    Prelu,
    PreluGrad,
    ResponseNorm,
    ResponseNormGrad,
    RotaryAttention,
    RotaryAttentionGrad,
    SwiGlu,
    SwiGluGrad,
    UpsampleAligned,
    VoxelGate,
    VoxelGateGrad
);
