//! Soft morphology as programs: skeletons, and losses that compare what becomes of probabilities and of a target.
//!
//! Volumes are images `[N, C, D, H, W]` of values from 0 to 1: probabilities p of some classes, and t, 1 where the label names
//! the class. Where the label is ignored both are 0. There are gradients by p alone.

use plimsoll_graph::ops::{
    BoxExtreme, ClDice, CrossErosion, Extreme, MeanDifference, OverlapSums, SkeletonStep, Union,
};
use plimsoll_graph::{GraphError, Program, TensorId};

/// The soft skeleton of clDice: what opening removes of a volume and of its first `iterations` erosions by a cross, joined as
/// if they were probabilities (Shit et al. 2021, "clDice"); as `monai.losses.cldice.soft_skel`.
///
/// # Errors
/// If the volume is no image.
pub fn soft_skeleton(
    program: &mut Program,
    volume: TensorId,
    iterations: usize,
) -> Result<TensorId, GraphError> {
    skeleton(program, volume, iterations + 1, Union::Probabilistic, |program, volume| {
        program.push_one(CrossErosion, &[volume])
    })
}

/// The skeleton of Lantuéjoul (1980): the union of what opening removes of a volume and of its erosions by a cube of 3³,
/// `terms` in all.
///
/// # Errors
/// If the volume is no image.
pub fn morphological_skeleton(
    program: &mut Program,
    volume: TensorId,
    terms: usize,
) -> Result<TensorId, GraphError> {
    skeleton(program, volume, terms, Union::Maximum, |program, volume| {
        program.push_one(BoxExtreme { radius: 1, extreme: Extreme::Min }, &[volume])
    })
}

fn skeleton(
    program: &mut Program,
    mut volume: TensorId,
    terms: usize,
    union: Union,
    erode: impl Fn(&mut Program, TensorId) -> Result<TensorId, GraphError>,
) -> Result<TensorId, GraphError> {
    let mut skeleton = None;
    for _ in 0..terms.max(1) {
        let eroded = erode(program, volume)?;
        let step = SkeletonStep { first: skeleton.is_none(), union };
        let operands: Vec<TensorId> = [volume, eroded].into_iter().chain(skeleton).collect();
        skeleton = Some(program.push_one(step, &operands)?);
        volume = eroded;
    }
    Ok(skeleton.unwrap_or(volume))
}

/// The clDice loss `[1]` of the skeletons of p and t; as `monai.losses.SoftclDiceLoss`.
///
/// # Errors
/// If the volumes do not fit.
pub fn cldice(
    program: &mut Program,
    (p, t): (TensorId, TensorId),
    iterations: usize,
    quotients: ClDice,
) -> Result<TensorId, GraphError> {
    let skeleton_of_t = soft_skeleton(program, t, iterations)?;
    let sensitivity = program.push_one(OverlapSums { by_channel: false }, &[skeleton_of_t, p])?;
    let skeleton_of_p = soft_skeleton(program, p, iterations)?;
    let precision = program.push_one(OverlapSums { by_channel: false }, &[skeleton_of_p, t])?;
    program.push_one(quotients, &[precision, sensitivity])
}

/// The mean difference `[1]` of the morphological skeletons of p and t, of `terms` erosions each.
///
/// # Errors
/// If the volumes and labels do not fit.
pub fn skeleton_difference(
    program: &mut Program,
    (p, t, labels): (TensorId, TensorId, TensorId),
    terms: usize,
    difference: MeanDifference,
) -> Result<TensorId, GraphError> {
    let of_t = morphological_skeleton(program, t, terms)?;
    let of_p = morphological_skeleton(program, p, terms)?;
    Ok(program.push(difference, &[of_p, of_t, labels])?[0])
}

/// The mean difference `[1]` of the erosions of p and t by a cube of 5³, and of the means of what they are below the
/// difference's threshold.
///
/// # Errors
/// If the volumes and labels do not fit.
pub fn erosion_difference(
    program: &mut Program,
    (p, t, labels): (TensorId, TensorId, TensorId),
    difference: MeanDifference,
) -> Result<TensorId, GraphError> {
    let erosion = BoxExtreme { radius: 2, extreme: Extreme::Min };
    let of_t = program.push_one(erosion, &[t])?;
    let of_p = program.push_one(erosion, &[p])?;
    Ok(program.push(difference, &[of_p, of_t, labels])?[0])
}
