//! Grey morphology, and what losses make of it.

use plimsoll_graph::ops::{
    Add, BoxExtreme, BoxExtremeGrad, ClDice, ClDiceGrad, Counted, CrossErosion, CrossErosionGrad, Extreme,
    Fill, MeanDifference, MeanDifferenceGrad, OneHot, OverlapSums, OverlapSumsGrad, SkeletonStep,
    SkeletonStepGrad, SoftRecall, SoftRecallGrad, Union,
};
use plimsoll_graph::{DType, Kind, Shape};

use super::{EXTENTS, Writer};
use crate::Case;

/// Grey morphology of noise, and of its erosion, whose windows have many equal values; with what losses make of it.
pub fn morphology() -> Vec<Case> {
    let more = [[1, 1, 1], [17, 17, 17], [9, 70, 33], [1, 65, 16], [3, 4, 2]];
    let mut cases = Vec::new();
    for (i, extent) in EXTENTS.into_iter().chain(more).enumerate() {
        for flat in [false, true] {
            let channels = 1 + i % 2;
            let mut w = Writer::new(DType::F32);
            let mut x = w.image("x", 2, channels, extent);
            if flat {
                x = w.push(BoxExtreme { radius: 1, extreme: Extreme::Min }, &[x])[0];
            }
            let g = w.image("g", 2, channels, extent);
            let known = w.image("known", 2, channels, extent);
            for (accumulate, radius, extreme) in [
                (false, 1, Extreme::Max),
                (true, 1, Extreme::Min),
                (true, 2, Extreme::Max),
                (false, 2, Extreme::Min),
            ] {
                let of = BoxExtreme { radius, extreme };
                w.result(of, &[x]);
                let grad = BoxExtremeGrad { of, factor: -0.5 };
                if accumulate {
                    let new = w.push(grad, &[g, x])[0];
                    w.result(Add, &[known, new]);
                } else {
                    w.result(grad, &[g, x]);
                }
            }
            w.result(CrossErosionGrad, &[g, x]);
            let new = w.push(CrossErosionGrad, &[g, x])[0];
            w.result(Add, &[known, new]);
            let eroded = w.push(CrossErosion, &[x])[0];
            for union in [Union::Probabilistic, Union::Maximum] {
                let first = SkeletonStep { first: true, union };
                let skeleton = w.push(first, &[x, eroded])[0];
                let step = SkeletonStep { first: false, union };
                w.result(step, &[known, eroded, skeleton]);
                w.result(SkeletonStepGrad { of: step }, &[g, known, eroded, skeleton]);
                w.result(SkeletonStepGrad { of: first }, &[g, x, eroded]);
                w.program.mark_output(skeleton, format!("skeleton {union:?}"));
            }
            w.program.mark_output(eroded, "eroded");
            for by_channel in [false, true] {
                let of = OverlapSums { by_channel };
                let sums = w.push(of, &[x, known])[0];
                w.program.mark_output(sums, format!("sums, {by_channel}"));
                for by_first in [false, true] {
                    w.result(OverlapSumsGrad { of, by_first }, &[sums, known]);
                }
            }
            let labels = w.labels("labels", 2, extent);
            for ignore in [None, Some(1)] {
                w.result(OneHot { foreground: channels, ignore }, &[labels]);
                w.result(Counted { ignore }, &[x, labels]);
            }
            for (threshold, ignore) in [(None, None), (Some(0.25), Some(1))] {
                let of = MeanDifference { threshold, classes: 3, ignore };
                let difference = w.push(of, &[x, known, labels]);
                w.result(MeanDifferenceGrad { of }, &[difference[0], difference[1], x, known, labels]);
                for (which, id) in difference.into_iter().enumerate() {
                    w.program.mark_output(id, format!("difference {which}, {threshold:?}"));
                }
            }
            cases.push(w.case(format!("morphology of {channels}×{extent:?}, flat: {flat}"), 4));
        }
    }
    cases.push(losses_of_sums());
    cases
}

/// clDice and recall of sums.
fn losses_of_sums() -> Case {
    let mut w = Writer::new(DType::F32);
    let [precision, sensitivity] =
        ["precision", "sensitivity"].map(|name| w.program.input(name, Shape(vec![3, 1, 2]), Kind::Table));
    let of = ClDice { smooth_numerator: 0.5, smooth_denominator: 1.0, smooth: 1e-4 };
    let upstream = w.push(Fill { value: 0.5, shape: Shape(vec![1]) }, &[])[0];
    w.result(of, &[precision, sensitivity]);
    w.result(ClDiceGrad { of }, &[upstream, precision, sensitivity]);
    let sums = w.program.input("sums", Shape(vec![3, 2, 2]), Kind::Table);
    for batch in [false, true] {
        let of = SoftRecall { batch, smooth_numerator: 0.5, smooth_denominator: 1.0 };
        w.result(of, &[sums]);
        w.result(SoftRecallGrad { of }, &[upstream, sums]);
    }
    w.case("clDice and recall of sums".into(), 0)
}
