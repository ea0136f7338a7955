//! Ops that have kernels for processors alone.

use plimsoll_graph::DType;
use plimsoll_graph::ops::{ChannelSum, GradNorm, PadFront, PadFrontGrad, ResponseNorm, ResponseNormGrad};

use super::{EXTENTS, Writer};
use crate::Case;

/// Planes of zeroes in front, and response normalisation, each with its gradient.
pub fn of_processors(precision: DType) -> Vec<Case> {
    let mut cases = padded(precision);
    cases.extend(responses(precision));
    cases
}

fn padded(precision: DType) -> Vec<Case> {
    let axes = [[true; 3], [false, true, true], [false, false, true], [true, false, false], [false; 3]];
    let mut cases = Vec::new();
    for (i, (extent, axes)) in EXTENTS.into_iter().zip(axes).enumerate() {
        let channels = [16, 33, 5, 20, 1][i];
        let op = PadFront { axes };
        let longer = [0, 1, 2].map(|axis| extent[axis] + op.planes()[axis]);
        let mut w = Writer::new(precision);
        let x = w.features("x", 2, channels, extent);
        w.result(op, &[x]);
        let dy = w.features("dy", 2, channels, longer);
        w.result(PadFrontGrad { axes }, &[dy]);
        cases.push(w.maps(format!("planes in front of {channels}×{extent:?}, {precision:?}")));
    }
    cases
}

fn responses(precision: DType) -> Vec<Case> {
    let mut cases = Vec::new();
    // The last has several parts of voxels.
    for (i, extent) in EXTENTS.into_iter().chain([[9, 45, 50]]).enumerate() {
        let channels = [16, 33, 5, 20, 1, 3][i];
        let mut w = Writer::new(precision);
        let (x, dz) = (w.features("x", 2, channels, extent), w.features("dz", 2, channels, extent));
        let (scale, shift) = (w.channels("scale", channels), w.channels("shift", channels));
        let epsilon = 1e-6;
        let z = w.push(ResponseNorm { epsilon }, &[x, scale, shift])[0];
        w.program.mark_output(z, "z");
        // The sums see what fills up blocks, too.
        let sums = w.push(ChannelSum, &[z])[0];
        let gradients = w.push(ResponseNormGrad { epsilon }, &[dz, x, scale]);
        w.result(GradNorm { loss: false }, &[sums, gradients[1], gradients[2]]);
        for (id, name) in gradients.into_iter().zip(["dx", "dscale", "dshift"]) {
            w.program.mark_output(id, name);
        }
        cases.push(w.maps(format!("responses of {channels}×{extent:?}, {precision:?}")));
    }
    cases
}
