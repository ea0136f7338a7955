//! The label with the most weight, for label maps.
//!
//! A sample lies among eight voxels. Interpolating each label's indicator (1 where a voxel has the label, else 0) linearly
//! and taking the label whose value is the greatest is the arg max of the interpolated one-hot encoding, which is never made
//! here: the weights of the eight voxels are summed by label. This smooths the staircase that taking the nearest voxel makes
//! of a rotated border.

use crate::VoxelMap;
use crate::pull::sample::{Sampler, for_each_sample, nearest_step};
use crate::pull::tables::{Interpolation, Tables};
use crate::pull::{Outside, PullError, SourceBlock, fill_rows, reads_source};

/// Weights that differ by less than this are as great. batchgeneratorsv2 compares them as f16 of a thousandfold, whose steps at
/// one half are a quarter of a thousandth.
const TIE: f32 = 1.0 / 4096.0;

/// Fills `out`, of `out_shape`, with the label that has the most weight among the voxels around the source index that `map`
/// gives: the arg max of the linearly interpolated one-hot encoding. Among labels with equal weights it is the label of the nearest
/// voxel, or the lowest if that has less. Where all samples lie on the centres of voxels, labels are copied.
///
/// # Errors
/// Returns an error if `out` does not have the shape, the block lacks voxels that are needed (take it from
/// [`VoxelMap::source_box`]), or coordinates are not finite.
pub fn pull_labels(
    source: &SourceBlock<'_, u8>,
    map: &VoxelMap,
    out_shape: [usize; 3],
    outside: Outside<u8>,
    out: &mut [u8],
) -> Result<(), PullError> {
    if !reads_source(source, map, out_shape, 0, &outside, out.len())? {
        fill_rows(out_shape, [0..0, 0..0, 0..0], outside, out, |_, _, _| {});
        return Ok(());
    }
    let whole =
        Tables::new(source, map, out_shape, &outside, Interpolation::Linear).filter(Tables::are_whole);
    match whole {
        Some(tables) => fill_rows(out_shape, tables.inside.clone(), outside, out, |d, h, row| {
            tables.gather_row(source.voxels, d, h, row);
        }),
        None => for_each_sample(source, map, out_shape, outside, out, &MostWeight(source)),
    }
    Ok(())
}

/// The label with the most weight at clamped coordinates.
pub(super) struct MostWeight<'a>(pub(super) &'a SourceBlock<'a, u8>);

impl Sampler<u8> for MostWeight<'_> {
    #[inline(always)]
    fn sample(&self, at: [f64; 3]) -> u8 {
        let ([depth, height, width], fractions) = self.0.cell(at);
        let labels: [u8; 8] = std::array::from_fn(|corner| {
            self.0.voxels[depth[corner >> 2] + height[corner >> 1 & 1] + width[corner & 1]]
        });
        // Within an object, which is nearly everywhere.
        if labels == [labels[0]; 8] {
            return labels[0];
        }
        let (start, [plane, line, _]) = (self.0.region.start, self.0.strides());
        let [d, h, w] = std::array::from_fn(|axis| nearest_step(at[axis]) - start[axis]);
        most_weight(labels, fractions, self.0.voxels[d * plane + h * line + w])
    }
}

/// The label with the most weight among the corners of a cell, at these fractions from the first to the last along each axis.
fn most_weight(labels: [u8; 8], fractions: [f32; 3], nearest: u8) -> u8 {
    let along = fractions.map(|fraction| [1.0 - fraction, fraction]);
    let weights: [f32; 8] = std::array::from_fn(|corner| {
        along[0][corner >> 2] * along[1][corner >> 1 & 1] * along[2][corner & 1]
    });
    let score = |label: u8| -> f32 {
        labels.iter().zip(&weights).filter(|(other, _)| **other == label).map(|(_, weight)| weight).sum()
    };
    let most = labels.into_iter().map(score).fold(0.0, f32::max);
    let is_most = |label: u8| score(label) > most - TIE;
    if is_most(nearest) {
        return nearest;
    }
    labels.into_iter().filter(|label| is_most(*label)).min().unwrap_or(nearest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn many_small_weights_of_one_label_outweigh_the_nearest_voxel() {
        // Six of eight corners are 3; the sample is a little nearer to the corner of 1.
        let labels = [1, 3, 3, 3, 3, 3, 3, 2];
        assert_eq!(most_weight(labels, [0.4; 3], 1), 3);
        assert_eq!(most_weight(labels, [0.05; 3], 1), 1);
    }

    #[test]
    fn labels_of_equal_weight_give_the_nearest() {
        let labels = [0, 0, 0, 0, 7, 7, 7, 7];
        assert_eq!(most_weight(labels, [0.5, 0.1, 0.2], 7), 7);
        assert_eq!(most_weight(labels, [0.5, 0.1, 0.2], 0), 0);
        assert_eq!(most_weight(labels, [0.49, 0.1, 0.2], 0), 0);
        assert_eq!(most_weight(labels, [0.51, 0.1, 0.2], 7), 7);
    }

    proptest! {
        #[test]
        fn the_label_has_the_greatest_value_of_the_interpolated_indicators(
            labels in prop::array::uniform8(0u8..4),
            fractions in prop::array::uniform3(0.0f32..1.0),
        ) {
            let nearest = labels[fractions.iter().fold(0, |corner, fraction| corner << 1 | usize::from(*fraction >= 0.5))];
            let found = most_weight(labels, fractions, nearest);
            let value = |label: u8| -> f64 {
                (0..8).filter(|corner| labels[*corner] == label).map(|corner| {
                    (0..3).map(|axis| {
                        let fraction = f64::from(fractions[axis]);
                        if corner >> (2 - axis) & 1 == 1 { fraction } else { 1.0 - fraction }
                    }).product::<f64>()
                }).sum()
            };
            let most = (0..4).map(value).fold(0.0, f64::max);
            prop_assert!(value(found) > most - 2.5 * f64::from(TIE), "{} of {most}", value(found));
        }
    }
}
