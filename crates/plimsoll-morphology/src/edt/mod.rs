//! The exact Euclidean distance transform.
//!
//! The squared distance is separable: the minimum of (distance along the width)² in each row, then the minimum of that
//! plus (distance along the height)², then of that plus (distance along the depth)². The first two passes run slice by
//! slice in a buffer that stays in the cache; the third runs in place, one height at a time. The mask is thus read once
//! and the result written twice, no intermediate volume is held, and rows known to be zero or infinite are written
//! once.

mod buffers;
mod envelope;
mod job;
mod labels;
mod passes;
mod row;
mod scratch;
mod states;
mod store;
mod tile;

use std::ops::Range;

use buffers::Buffers;
use job::Job;
use passes::{Unit, Work};
use scratch::Worker;

pub use job::{Distance, EdtOptions};
pub use store::NO_FEATURE;

use plimsoll_parallel::{Parts, Phase, Pool};

use crate::grid::{check_length, check_numbered, voxels};
use crate::rows::Rows;
use crate::simd::Instructions;
use crate::voxels::{VoxelRows, Voxels};
use crate::{Label, MorphologyError};

/// The bytes of scratch that [`edt`] needs: a slice or a plane and some rows per thread, and one byte for every
/// 128 voxels of a row. 0 for a shape that is too large to address or has no voxels.
pub fn scratch_bytes(shape: [usize; 3], options: &EdtOptions, threads: usize) -> usize {
    bytes(shape, options, threads, false)
}

/// The bytes of scratch that [`edt_with_features`] needs.
pub fn scratch_bytes_with_features(shape: [usize; 3], options: &EdtOptions, threads: usize) -> usize {
    bytes(shape, options, threads, true)
}

fn bytes(shape: [usize; 3], options: &EdtOptions, threads: usize, features: bool) -> usize {
    match (voxels(shape), Job::new(shape, [1.0; 3], options, features, threads)) {
        (Ok(1..), Ok(job)) => scratch::bytes(&job),
        _ => 0,
    }
}

/// Exact distances in `shape` (depth, height, width) with voxels `spacing` mm apart, written to `out`, in mm or mm².
///
/// The distance is infinite if the volume has no voxel to measure to. Squared distances are exact where the spacing is
/// the same along all axes and they are below 2²⁴ steps²; otherwise, and after taking the root, the relative error is a
/// few 2⁻²⁴. `scratch` has at least [`scratch_bytes`]; its contents do not matter. The result does not depend on
/// `threads`. Nothing is allocated except by starting threads other than the calling one.
///
/// After T. Hirata, "A unified linear-time algorithm for computing distance maps" (1996), and P. Felzenszwalb and D.
/// Huttenlocher, "Distance transforms of sampled functions" (2012), for the separation into axes.
///
/// # Errors
/// Returns an error if a length does not fit the shape, the spacing is not positive and finite or takes distances over the volume out of the
/// range of `f32`, the scratch is too small or there are no threads.
pub fn edt<L: Label>(
    mask: &[L],
    shape: [usize; 3],
    spacing: [f64; 3],
    options: &EdtOptions,
    out: &mut [f32],
    scratch: &mut [u8],
    threads: usize,
) -> Result<(), MorphologyError> {
    check_length("the mask", mask.len(), shape)?;
    check_length("the buffer of distances", out.len(), shape)?;
    let job = Job::new(shape, spacing, options, false, threads)?;
    run(Instructions::widest(), &mask, &job, out, &mut [], scratch)
}

/// Does the same as [`edt`], or with `features` as [`edt_with_features`], for a mask in any layout, of which nothing is copied.
///
/// # Errors
/// Returns the errors of [`edt`], or of [`edt_with_features`].
pub fn edt_of_voxels(
    mask: &impl Voxels,
    spacing: [f64; 3],
    options: &EdtOptions,
    out: &mut [f32],
    features: Option<&mut [u32]>,
    scratch: &mut [u8],
    threads: usize,
) -> Result<(), MorphologyError> {
    let shape = mask.shape();
    check_length("the buffer of distances", out.len(), shape)?;
    if let Some(features) = &features {
        check_length("the buffer of features", features.len(), shape)?;
        check_numbered(shape)?;
    }
    let job = Job::new(shape, spacing, options, features.is_some(), threads)?;
    let rows = VoxelRows(mask);
    run(Instructions::widest(), &rows, &job, out, features.unwrap_or_default(), scratch)
}

/// Does the same as [`edt`], and also writes the number of the voxel that each distance is measured to (the feature transform) to
/// `features`: `(z · height + y) · width + x`, or [`NO_FEATURE`] where there is none. Ties are broken
/// deterministically. A background voxel whose distance is 0 by definition is its own.
///
/// # Errors
/// Returns the errors of [`edt`], and an error if there are more voxels than 32 bits can number.
pub fn edt_with_features<L: Label>(
    mask: &[L],
    shape: [usize; 3],
    spacing: [f64; 3],
    options: &EdtOptions,
    out: &mut [f32],
    features: &mut [u32],
    scratch: &mut [u8],
    threads: usize,
) -> Result<(), MorphologyError> {
    check_length("the mask", mask.len(), shape)?;
    check_length("the buffer of distances", out.len(), shape)?;
    check_length("the buffer of features", features.len(), shape)?;
    check_numbered(shape)?;
    let job = Job::new(shape, spacing, options, true, threads)?;
    run(Instructions::widest(), &mask, &job, out, features, scratch)
}

fn run(
    instructions: Instructions,
    mask: &dyn Rows,
    job: &Job,
    out: &mut [f32],
    features: &mut [u32],
    scratch: &mut [u8],
) -> Result<(), MorphologyError> {
    if out.is_empty() {
        return Ok(());
    }
    let needed = scratch::bytes(job);
    if scratch.len() < needed {
        return Err(MorphologyError::Scratch { found: scratch.len(), needed });
    }
    let out = Parts::new(out);
    let features = Parts::new(features);
    let (shared, rest) = scratch::shared(job, scratch);
    let states = Parts::new(shared.states);
    let axes = shared.axes;
    let data = Buffers { job, mask, instructions, axes, out: &out, features: &features, states: &states };
    let [depth, height, _] = job.shape;
    let tiles = job.tiles();
    // The last pass: all tiles at a height. Adjacent rows share cache lines, so several form a portion.
    let whole_rows = job.tiles_at_once == tiles;
    let last = match whole_rows {
        true => Phase { units: height, grain: (height / job.threads / 8).clamp(1, 16) },
        false => Phase { units: height * tiles, grain: 1 },
    };
    let phases = [Phase { units: depth, grain: 1 }, last];
    let work = |worker: &mut Worker<'_>, phase: usize, units: Range<usize>| {
        for unit in units {
            let unit = match phase {
                0 => Unit::Slice(unit),
                _ if whole_rows => Unit::Plane(unit, 0..tiles),
                _ => Unit::Plane(unit / tiles, unit % tiles..unit % tiles + 1),
            };
            instructions.run(Work { data, worker: &mut *worker, unit });
        }
    };
    let mut workers = scratch::workers(job, rest);
    match (job.threads, workers.next()) {
        // A list of workers would be an allocation.
        (1, Some(mut own)) => Pool::single().run_phases(std::slice::from_mut(&mut own), phases, work),
        (threads, own) => {
            let mut workers: Vec<_> = own.into_iter().chain(workers).collect();
            Pool::or_single(threads).run_phases(&mut workers, phases, work);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instruction_set_gives_the_same_bits() {
        let shape = [9, 37, 83];
        let mut state = 1u32;
        let mask: Vec<u8> = (0..shape.iter().product())
            .map(|at: usize| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                u8::from(state >> 28 == 0) + (at / 400 % 3) as u8
            })
            .collect();
        for distance in [Distance::ToBackground, Distance::ToOtherLabel, Distance::Signed] {
            let options = EdtOptions { distance, squared: false };
            let job = Job::new(shape, [2.5, 0.7, 0.7], &options, true, 2).unwrap();
            let results: Vec<_> = Instructions::available()
                .map(|instructions| {
                    let mut scratch = vec![0; scratch::bytes(&job)];
                    let mut out = vec![0.0; mask.len()];
                    let mut features = vec![0; mask.len()];
                    run(instructions, &&mask[..], &job, &mut out, &mut features, &mut scratch).unwrap();
                    (out, features)
                })
                .collect();
            assert!(results.windows(2).all(|pair| pair[0] == pair[1]), "{distance:?}");
        }
    }
}
