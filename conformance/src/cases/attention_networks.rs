//! Ops of attention U-Nets, MedNeXt and vision transformers: gates, learned slopes, positions and responses.

use plimsoll_graph::ops::{
    AddPositions, AddPositionsGrad, ChannelSum, GradNorm, PadFront, PadFrontGrad, Prelu, PreluGrad,
    ResponseNorm, ResponseNormGrad, UpsampleAligned, VoxelGate, VoxelGateGrad,
};
use plimsoll_graph::{DType, Kind, Shape};

use super::transformers::transformers;
use super::{EXTENTS, Writer};
use crate::Case;

/// Planes of zeroes in front, response normalisation, learned slopes, gates of voxels, embeddings of positions, and parts of transformers, each
/// with its gradient; interpolation with fixed corners.
pub fn attention_networks(precision: DType) -> Vec<Case> {
    let mut cases = padded(precision);
    cases.extend(responses(precision));
    cases.extend(slopes(precision));
    cases.extend(voxel_gates(precision));
    cases.extend(positions(precision));
    cases.extend(transformers(precision));
    cases.extend(aligned(precision));
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

/// Extents of which the last has several parts of voxels, each with a number of channels.
fn maps() -> impl Iterator<Item = (usize, [usize; 3])> {
    [16, 33, 5, 20, 1, 3].into_iter().zip(EXTENTS.into_iter().chain([[9, 45, 50]]))
}

fn slopes(precision: DType) -> Vec<Case> {
    let cases = maps().map(|(channels, extent)| {
        let mut w = Writer::new(precision);
        let (x, dz) = (w.features("x", 2, channels, extent), w.features("dz", 2, channels, extent));
        let slope = w.channels("slope", 1);
        let z = w.push(Prelu, &[x, slope])[0];
        w.program.mark_output(z, "z");
        let gradients = w.push(PreluGrad, &[dz, x, slope]);
        // The sums see what fills up blocks, too.
        let sums = [z, gradients[0]].map(|map| w.push(ChannelSum, &[map])[0]);
        w.result(GradNorm { loss: false }, &[sums[0], sums[1], gradients[1]]);
        for (id, name) in gradients.into_iter().zip(["dx", "dslope"]) {
            w.program.mark_output(id, name);
        }
        w.maps(format!("a slope for {channels}×{extent:?}, {precision:?}"))
    });
    cases.collect()
}

fn voxel_gates(precision: DType) -> Vec<Case> {
    let cases = maps().map(|(channels, extent)| {
        let mut w = Writer::new(precision);
        let (x, dz) = (w.features("x", 2, channels, extent), w.features("dz", 2, channels, extent));
        let s = w.features("s", 2, 1, extent);
        w.result(VoxelGate, &[x, s]);
        let ds = w.push(VoxelGateGrad, &[dz, x])[0];
        w.program.mark_output(ds, "ds");
        let sum = w.push(ChannelSum, &[ds])[0];
        w.result(GradNorm { loss: false }, &[sum]);
        w.maps(format!("gates of the voxels of {channels}×{extent:?}, {precision:?}"))
    });
    cases.collect()
}

fn positions(precision: DType) -> Vec<Case> {
    let cases = maps().map(|(channels, extent)| {
        let mut w = Writer::new(precision);
        let (x, dz) = (w.features("x", 3, channels, extent), w.features("dz", 3, channels, extent));
        let rows = Shape(vec![extent.iter().product(), channels]);
        let table = w.program.input("table", rows, Kind::Table);
        let z = w.push(AddPositions, &[x, table])[0];
        w.program.mark_output(z, "z");
        let sum = w.push(ChannelSum, &[z])[0];
        w.result(GradNorm { loss: false }, &[sum]);
        w.result(AddPositionsGrad, &[dz]);
        w.maps(format!("positions of {channels}×{extent:?}, {precision:?}"))
    });
    cases.collect()
}

fn aligned(precision: DType) -> Vec<Case> {
    let axes =
        [[true; 3], [false, true, true], [true; 3], [true, false, false], [false, true, false], [true; 3]];
    let cases = maps().zip(axes).map(|((channels, extent), axes)| {
        let mut w = Writer::new(precision);
        let x = w.features("x", 2, channels, extent);
        let z = w.push(UpsampleAligned { axes }, &[x])[0];
        w.program.mark_output(z, "z");
        // The sums see what fills up blocks, too.
        let sum = w.push(ChannelSum, &[z])[0];
        w.result(GradNorm { loss: false }, &[sum]);
        w.maps(format!("twice {channels}×{extent:?} with fixed corners along {axes:?}, {precision:?}"))
    });
    cases.collect()
}
