//! Maps on coarser and finer grids, with their gradients, by themselves and added to another map.

use plimsoll_graph::DType;
use plimsoll_graph::ops::{Add, AvgPool, AvgPoolGrad, Subpixel, SubpixelGrad, Upsample2, Upsample2Grad};

use super::Writer;
use crate::Case;

/// Extents that windows fill and such that they do not.
pub fn resampled(precision: DType) -> Vec<Case> {
    let mut cases = Vec::new();
    for (channels, extent, window) in [
        (16, [4, 6, 8], [2, 2, 2]),
        (33, [3, 17, 5], [1, 2, 2]),
        (3, [5, 3, 31], [2, 1, 3]),
        (20, [1, 9, 17], [1, 4, 2]),
    ] {
        let mut w = Writer::new(precision);
        let x = w.features("x", 2, channels, extent);
        w.result(AvgPool { window }, &[x]);
        let coarse = [0, 1, 2].map(|axis| extent[axis] / window[axis]);
        let dy = w.features("dy", 2, channels, coarse);
        let grad = AvgPoolGrad { window, input: extent };
        w.result(grad, &[dy]);
        let new = w.push(grad, &[dy])[0];
        w.result(Add, &[x, new]);
        cases.push(w.maps(format!("windows {window:?} of {channels}×{extent:?}, {precision:?}")));
    }
    for (channels, coarse, axes) in [
        (16, [2, 3, 4], [true, true, true]),
        (33, [3, 17, 5], [false, true, true]),
        (3, [1, 1, 1], [true, true, true]),
        (20, [5, 3, 9], [true, false, false]),
        (15, [1, 20, 1], [false, true, false]),
    ] {
        let fine = [0, 1, 2].map(|axis| coarse[axis] * (1 + usize::from(axes[axis])));
        let mut w = Writer::new(precision);
        let x = w.features("x", 2, channels, coarse);
        let dy = w.features("dy", 2, channels, fine);
        w.result(Upsample2 { axes }, &[x]);
        w.result(Upsample2Grad { axes }, &[dy]);
        let new = w.push(Upsample2 { axes }, &[x])[0];
        w.result(Add, &[dy, new]);
        let parts = w.features("parts", 2, channels * Subpixel { axes }.parts(), coarse);
        w.result(Subpixel { axes }, &[parts]);
        w.result(SubpixelGrad { axes }, &[dy]);
        cases.push(w.maps(format!("twice {channels}×{coarse:?} along {axes:?}, {precision:?}")));
    }
    cases
}
