//! Components made of soft morphology: skeletons and erosions of probabilities and of the target.
//!
//! With p the probabilities of the foreground classes and t their one-hot labels, both 0 where the label does not count.
//! There are gradients by p alone.

use plimsoll_graph::ops::{
    BoxExtreme, ClDice, CrossErosion, Extreme, MeanDifference, OverlapSums, SkeletonStep, SoftRecall, Union,
};
use plimsoll_graph::{GraphError, Op, TensorId};

use super::{HeadLogits, LossBuilder};

fn erosion(radius: usize) -> BoxExtreme {
    BoxExtreme { radius, extreme: Extreme::Min }
}

/// Returns the voxels that opening removes from a volume and from its erosions, `terms` volumes in all, joined.
fn skeleton(
    builder: &mut LossBuilder<'_>,
    mut volume: TensorId,
    terms: usize,
    erosion: &Op,
    union: Union,
) -> Result<TensorId, GraphError> {
    let mut skeleton = None;
    for _ in 0..terms {
        let eroded = builder.push(erosion.clone(), &[volume])?;
        let step = SkeletonStep { first: skeleton.is_none(), union };
        let operands: Vec<TensorId> = [volume, eroded].into_iter().chain(skeleton).collect();
        skeleton = Some(builder.push(step, &operands)?);
        volume = eroded;
    }
    Ok(skeleton.unwrap_or(volume))
}

/// clDice of the soft skeletons of p and t after `iterations` erosions by a cross, on volumes downsampled by `scale`.
pub(super) fn cldice(
    builder: &mut LossBuilder<'_>,
    head: HeadLogits,
    scale: usize,
    iterations: usize,
    quotients: ClDice,
) -> Result<TensorId, GraphError> {
    let (p, t, _) = builder.pair(head, scale)?;
    let sums = OverlapSums { by_channel: false };
    let mut shares = [p; 2];
    for (share, (of, inside)) in shares.iter_mut().zip([(p, t), (t, p)]) {
        let skeleton = skeleton(builder, of, iterations + 1, &CrossErosion.into(), Union::Probabilistic)?;
        *share = builder.push(sums, &[skeleton, inside])?;
    }
    builder.push(quotients, &shares)
}

/// The difference of the morphological skeletons of p and t, downsampled by `scale`.
pub(super) fn skeleton_difference(
    builder: &mut LossBuilder<'_>,
    head: HeadLogits,
    scale: usize,
    terms: usize,
    difference: MeanDifference,
) -> Result<TensorId, GraphError> {
    let (p, t, labels) = builder.pair(head, scale)?;
    let erosion = erosion(1).into();
    let of_p = skeleton(builder, p, terms, &erosion, Union::Maximum)?;
    let of_t = skeleton(builder, t, terms, &erosion, Union::Maximum)?;
    builder.push(difference, &[of_p, of_t, labels])
}

/// The difference of the erosions of p and t by 5³, downsampled by `scale`.
pub(super) fn erosion_difference(
    builder: &mut LossBuilder<'_>,
    head: HeadLogits,
    scale: usize,
    difference: MeanDifference,
) -> Result<TensorId, GraphError> {
    let (p, t, labels) = builder.pair(head, scale)?;
    let of_p = builder.push(erosion(2), &[p])?;
    let of_t = builder.push(erosion(2), &[t])?;
    builder.push(difference, &[of_p, of_t, labels])
}

/// The share that p misses of the target's skeleton dilated `radius` times, downsampled by `scale`.
pub(super) fn skeleton_recall(
    builder: &mut LossBuilder<'_>,
    head: HeadLogits,
    scale: usize,
    radius: usize,
    recall: SoftRecall,
) -> Result<TensorId, GraphError> {
    // The skeleton has no voxel whose label does not count.
    let (p, _) = builder.scaled(head, scale)?;
    let skeleton = builder.target_skeleton(head, scale, radius);
    let sums = builder.push(OverlapSums { by_channel: true }, &[skeleton, p])?;
    builder.push(recall, &[sums])
}
