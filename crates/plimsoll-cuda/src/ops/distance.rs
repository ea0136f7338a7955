//! Distances to what is predicted.

use bytemuck::{Pod, Zeroable};
use plimsoll_graph::ops::PredictedDistance;
use plimsoll_plan::Unsupported;

use super::loss::ignored;
use crate::lower::{Context, Lower, Work, start_or_null};

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct DistanceParameters {
    probabilities: u64,
    labels: u64,
    from: u64,
    to: u64,
    extent: [u32; 3],
    axis: u32,
    classes: u32,
    ignore: u32,
    count: u32,
    spacing: f32,
    is_last: u32,
    is_signed: u32,
}

/// Returns `true` if squared distances along an axis are within the range of f32, three of them added up.
fn is_in_range(length: usize, spacing: f64) -> bool {
    let [least, most] = [1, length.max(1)].map(|steps| (spacing * steps as f64).powi(2));
    spacing > 0.0 && least >= f64::from(f32::MIN_POSITIVE) && most <= f64::from(f32::MAX) / 4.0
}

impl Lower for PredictedDistance {
    fn lower(&self, cx: &Context<'_>) -> Result<Work, Unsupported> {
        let (probabilities, labels, y) = (cx.input(0), cx.input(1), cx.output(0));
        let shape = &probabilities.info.shape;
        let extent = shape.spatial();
        if !(0..3).all(|axis| is_in_range(extent[axis], self.spacing[axis])) {
            let why = format!("squared distances on {extent:?} voxels of {:?} are beyond f32", self.spacing);
            return Err(cx.unsupported(why));
        }
        let count = cx.elements(y)?;
        let mut work = Work::new(cx);
        let scratch = work.take::<f32>(count as usize)?;
        let all = DistanceParameters {
            probabilities: probabilities.address(),
            labels: labels.address(),
            extent: cx.axes(extent)?,
            classes: cx.count(&[shape.channels() + 1])?,
            ignore: ignored(self.ignore),
            count,
            is_signed: self.signed.into(),
            ..DistanceParameters::zeroed()
        };
        // Along the width into the result, along the height into scratch, along the depth back.
        for (axis, from, to) in [(2, None, y.at), (1, Some(y.at), scratch), (0, Some(scratch), y.at)] {
            let parameters = DistanceParameters {
                from: start_or_null(from),
                to: to.address,
                axis: axis as u32,
                spacing: self.spacing[axis] as f32,
                is_last: (axis == 0).into(),
                ..all
            };
            let reads = from.map_or(vec![probabilities.at, labels.at], |from| vec![from]);
            work.each("distance_along", count, &parameters, &reads, &[to]);
        }
        Ok(work)
    }
}
