//! Learned vectors of positions that are interpolated to another grid of tokens.

use plimsoll_graph::Shape;
use plimsoll_nn::weights::{WeightError, WeightFile};

use super::upkern::shares;

/// Vectors of the positions of a grid of tokens, for a network with another grid.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AdaptedPositions {
    /// The shape in the file: one sample, tokens, channels.
    pub(super) stored: Shape,
    /// The grid in the file.
    pub(super) from: [usize; 3],
    /// The grid of the network.
    pub(super) to: [usize; 3],
}

/// A position of the network to which one of the file contributes along an axis.
#[derive(Clone, Copy)]
struct Share {
    to: usize,
    share: f32,
}

impl AdaptedPositions {
    /// Reads the vectors one by one and adds each to the neighbouring vectors of the network: trilinear interpolation between the
    /// centres of tokens, as nnU-Net does with `torch.nn.functional.interpolate`. Only the network's vectors are held.
    pub(super) fn read(
        &self,
        file: &mut WeightFile,
        name: &str,
        values: &mut [f32],
    ) -> Result<(), WeightError> {
        let channels = self.stored.dim(2).max(1);
        let ([_, from_height, from_width], [_, height, width]) = (self.from, self.to);
        let [along_depth, along_height, along_width] =
            std::array::from_fn(|axis| contributions(self.from[axis], self.to[axis]));
        values.fill(0.0);
        file.each_run(name, &self.stored, &mut |first, run| {
            let mut rest = run;
            let mut at = first;
            while !rest.is_empty() {
                // The part of the run that belongs to one vector.
                let (token, channel) = (at / channels, at % channels);
                let (part, behind) = rest.split_at(rest.len().min(channels - channel));
                let [z, y, x] = [
                    token / (from_height * from_width),
                    token / from_width % from_height,
                    token % from_width,
                ];
                for of_depth in &along_depth[z] {
                    for of_height in &along_height[y] {
                        for of_width in &along_width[x] {
                            let share = of_depth.share * of_height.share * of_width.share;
                            let to = (of_depth.to * height + of_height.to) * width + of_width.to;
                            let vector = values.iter_mut().skip(to * channels + channel);
                            vector.zip(part).for_each(|(value, weight)| *value += share * weight);
                        }
                    }
                }
                at += part.len();
                rest = behind;
            }
        })
    }
}

/// The positions to which each of `from` positions contributes along an axis.
fn contributions(from: usize, to: usize) -> Vec<Vec<Share>> {
    let mut all = vec![Vec::new(); from];
    for (to, shares) in shares(from, to).into_iter().enumerate() {
        for (contributions, share) in all.iter_mut().zip(shares) {
            if share > 0.0 {
                contributions.push(Share { to, share });
            }
        }
    }
    all
}
