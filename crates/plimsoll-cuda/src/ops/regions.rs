//! Losses of regions, which have no kernels here.

use plimsoll_graph::ops::{RegionCounts, RegionLossGrad, RegionStats};
use plimsoll_plan::Unsupported;

use crate::lower::{Context, Lower, Work};

/// What a user reads who trains on regions on a GPU.
fn refused(cx: &Context<'_>) -> Unsupported {
    cx.unsupported("classes that overlap are trained on the processor alone: give --device cpu")
}

impl Lower for RegionStats {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        Err(refused(cx))
    }
}

impl Lower for RegionLossGrad {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        Err(refused(cx))
    }
}

impl Lower for RegionCounts {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        Err(refused(cx))
    }
}
