//! Losses of logits, of heads and of probabilities.

use plimsoll_graph::ops::{
    Activation, BoundaryL1, BoundaryL1Grad, ChannelSum, Component, CompositeLoss, CompositeLossGrad, Conv,
    ConvTranspose, ConvWeightGrad, CrossEntropy, DistanceLoss, DistanceLossGrad, DistanceTerm, Fill, Focal,
    FocalTversky, GeneralizedDice, HardCounts, Join, Loss, MeanPool, MeanPoolGrad, PredictedDistance,
    Probabilities, ProbabilitiesGrad, RegionCounts, RegionLossGrad, RegionStats, Regions, SoftDice,
    SurfaceForm, Tversky, VolumeWeight, WeightedBce, is_of_regions,
};
use plimsoll_graph::{DType, Kind, Shape, Window};

use super::Writer;
use crate::Case;

/// Every component of a loss, with options that its defaults leave out.
pub fn components(classes: usize) -> Vec<Component> {
    let class_weights: Vec<f32> = (0..classes).map(|class| 0.25 + class as f32 / 2.0).collect();
    let dice = SoftDice { class_weights: class_weights.clone(), ..SoftDice::default() };
    let without_background = SoftDice { include_background: false, squared: true, ..SoftDice::default() };
    let tversky = Tversky { alpha: 0.3, beta: 0.7, ..Tversky::default() };
    let bce = WeightedBce { pos_weight: 2.8, ..WeightedBce::default() };
    let activation = Activation::Sigmoid;
    let focal = Focal { alpha: Some(0.25), class_weights: class_weights.clone(), ..Focal::default() };
    vec![
        Component::SoftDice(SoftDice { batch: true, ..dice }),
        Component::LogCoshDice(without_background),
        Component::GeneralizedDice(GeneralizedDice::default()),
        Component::GeneralizedDice(GeneralizedDice {
            batch: true,
            include_background: false,
            volume_weight: VolumeWeight::Simple,
            ..GeneralizedDice::default()
        }),
        Component::Tversky(tversky),
        Component::FocalTversky(FocalTversky { batch: true, ..FocalTversky::default() }),
        Component::CrossEntropy(CrossEntropy {
            class_weights: class_weights.clone(),
            ..CrossEntropy::default()
        }),
        Component::WeightedBce(WeightedBce { class_weights, ..bce.clone() }),
        Component::WeightedBce(WeightedBce { activation, include_background: true, ..bce }),
        Component::Focal(focal.clone()),
        Component::Focal(Focal { gamma: 1.5, alpha: None, include_background: false, ..focal.clone() }),
        Component::Focal(Focal { activation, ..focal.clone() }),
        Component::Focal(Focal { activation, gamma: 0.7, ..focal }),
    ]
}

/// Returns `true` if a component takes logarithms of probabilities. Those below e⁻⁸⁷ are represented by the least
/// number of f32.
fn takes_logarithms(component: &Component) -> bool {
    matches!(component, Component::WeightedBce(_) | Component::Focal(_))
}

/// Losses of each component, and of all together, of logits that come from features stored in the precision.
pub fn losses(precision: DType) -> Vec<Case> {
    let extents = [[1, 1, 1], [3, 17, 5], [1, 9, 17], [13, 30, 40]];
    let mut cases = Vec::new();
    for (i, (extent, classes)) in extents.into_iter().zip([2, 3, 1, 14]).enumerate() {
        let all = components(classes);
        let mut lists: Vec<Vec<Component>> = all.iter().map(|component| vec![component.clone()]).collect();
        lists.push(all);
        for (j, components) in lists.into_iter().enumerate() {
            let names: Vec<&str> = components.iter().map(Component::name).collect();
            let name =
                format!("{} ({j}) of {classes} classes on {extent:?}, {precision:?}", names.join(" + "));
            let loss = Loss { ignore: ((i + j) % 2 == 1).then_some(1), ..Loss::new(components) };
            let mut w = Writer::new(precision);
            let features = w.features("features", 2, 3, extent);
            let weights = w.weights(classes, 3, [1; 3]);
            let head = Conv::new(Window::point(), false, DType::F32);
            let logits = w.push(head, &[features, weights])[0];
            let labels = w.labels("labels", 2, extent);
            w.loss(&loss, logits, labels);
            let may_be_large = !loss.components.iter().any(takes_logarithms);
            cases.push(Case { may_be_large, ..w.case(name, classes) });
        }
    }
    cases
}

/// Heads whose logits only losses and counts read, so that they are fused; some of more than one tile.
pub fn heads(precision: DType) -> Vec<Case> {
    let sizes = [
        (1, 2, [1, 1, 1], false),
        (3, 14, [3, 5, 17], true),
        (33, 3, [2, 67, 67], true),
        (16, 5, [17, 3, 31], false),
        (3, 70, [33, 32, 33], false),
    ];
    let mut cases = Vec::new();
    for (i, (channels, classes, extent, normalised)) in sizes.into_iter().enumerate() {
        let focal = Component::Focal(Focal::default());
        let plain = Loss { ignore: (i == 1).then_some(1), ..Loss::default() };
        for loss in [plain, Loss::new(vec![focal])] {
            let mut w = Writer::new(precision);
            let x = w.features("x", 2, channels, extent);
            let map = if normalised { w.norm_act(x, i % 2 == 1) } else { x };
            let weights = w.weights(classes, channels, [1; 3]);
            let bias = w.channels("bias", classes);
            let labels = w.labels("labels", 2, extent);
            let has_bias = i != 3;
            let mut operands = vec![map, weights];
            operands.extend(has_bias.then_some(bias));
            let logits = w.push(Conv::new(Window::point(), has_bias, DType::F32), &operands)[0];
            let sums = w.push(loss.stats(), &[logits, labels])[0];
            w.program.mark_output(sums, "sums");
            w.result(CompositeLoss { loss: loss.clone() }, &[sums]);
            if !normalised {
                // Sums of these few numbers of few bits are exact: there is no doubt about which logit is the largest.
                w.result(HardCounts { ignore: loss.ignore }, &[logits, labels]);
            }
            let upstream = w.push(Fill { value: 0.5, shape: Shape(vec![1]) }, &[])[0];
            let gradient = CompositeLossGrad { loss: loss.clone() };
            let gradient = w.push(gradient, &[logits, labels, sums, upstream])[0];
            let grad = ConvWeightGrad { window: Window::point(), groups: 1 };
            w.result(grad, &[map, gradient]);
            if has_bias {
                w.result(ChannelSum, &[gradient]);
            }
            let back = ConvTranspose {
                window: Window::point(),
                groups: 1,
                first_channel: 0,
                channels,
                output: extent,
                dtype: precision,
                bias: false,
            };
            let known = (i % 2 == 0).then(|| w.features("known", 2, channels, extent));
            w.transpose(back, &[gradient, weights], known);
            let name = loss.components[0].name();
            let name = format!("fused head {channels}→{classes} of {extent:?}, {name}, {precision:?}");
            let may_be_large = !loss.components.iter().any(takes_logarithms);
            cases.push(Case { may_be_large, ..w.case(name, classes) });
        }
    }
    cases
}

/// Losses and counts of regions, of which each voxel may be in several.
pub fn regions() -> Vec<Case> {
    let extents = [[1, 1, 1], [3, 17, 5], [1, 9, 17], [13, 30, 40], [2, 3, 5]];
    let some: [&[u8]; 3] = [&[1], &[2, 3], &[4, 5]];
    // As many as GPUs take, which hold those of a label as bits.
    let many: Vec<&[u8]> = some.into_iter().cycle().take(64).collect();
    let sets: [&[&[u8]]; 5] =
        [&[&[1]], &[&[1, 2, 3], &[2, 3], &[3]], &[&[1, 2], &[2, 3]], &[&[1, 3, 5], &[2, 5]], &many];
    let mut cases = Vec::new();
    for (i, (extent, sets)) in extents.into_iter().zip(sets).enumerate() {
        let labels = 6;
        let of_regions = components(sets.len()).into_iter().filter(is_of_regions);
        let mut lists: Vec<Vec<Component>> = of_regions.map(|component| vec![component]).collect();
        lists.push(lists.concat());
        // Sums over many blocks are the same whatever is made of them: all components at once will do.
        let first = if extent.iter().product::<usize>() > 1000 { lists.len() - 1 } else { 0 };
        for (j, components) in lists.into_iter().enumerate().skip(first) {
            let regions = Regions { labels, sets: sets.iter().map(|set| set.to_vec()).collect() };
            let loss = Loss {
                ignore: ((i + j) % 2 == 1).then_some(1),
                regions: Some(regions.clone()),
                ..Loss::new(components)
            };
            let names: Vec<&str> = loss.components.iter().map(Component::name).collect();
            let name = format!("{} ({j}) of {} regions on {extent:?}", names.join(" + "), sets.len());
            let mut w = Writer::new(DType::F32);
            let logits = w.image("logits", 2, sets.len(), extent);
            let of_voxels = w.labels("labels", 2, extent);
            let (squared, ignore) = (loss.stats().squared, loss.ignore);
            let extra = loss.stats().extra;
            let stats = RegionStats { regions: regions.clone(), squared, ignore, extra };
            let sums = w.push(stats, &[logits, of_voxels])[0];
            w.program.mark_output(sums, "sums");
            w.result(CompositeLoss { loss: loss.clone() }, &[sums]);
            let upstream = w.push(Fill { value: 0.5, shape: Shape(vec![1]) }, &[])[0];
            w.result(RegionLossGrad { loss: loss.clone() }, &[logits, of_voxels, sums, upstream]);
            w.result(RegionCounts { regions, ignore: loss.ignore }, &[logits, of_voxels]);
            let may_be_large = !loss.components.iter().any(takes_logarithms);
            cases.push(Case { may_be_large, ..w.case(name, labels) });
        }
    }
    cases
}

/// Losses that see shapes, with all that they are made of, of probabilities as well as of logits.
pub fn structures() -> Vec<Case> {
    let mut cases = Vec::new();
    let extents: [[usize; 3]; 4] = [[1, 1, 1], [3, 17, 5], [1, 9, 18], [7, 10, 33]];
    for (i, (extent, classes)) in extents.into_iter().zip([2, 3, 2, 5]).enumerate() {
        let ignore = (i % 2 == 1).then_some(1);
        let coarse = extent.map(|n| n.div_ceil(2));
        let mut w = Writer::new(DType::F32);
        let logits = w.image("logits", 2, classes, extent);
        let labels = w.labels("labels", 2, extent);
        let p = w.push(Probabilities, &[logits])[0];
        w.result(Probabilities, &[logits]);
        let slopes = w.image("slopes", 2, classes - 1, extent);
        w.result(ProbabilitiesGrad, &[logits, slopes]);
        w.result(MeanPool { output: coarse }, &[p]);
        let coarse = w.image("coarse", 2, classes - 1, coarse);
        w.result(MeanPoolGrad { input: extent }, &[coarse]);
        let upstream = w.program.input("upstream", Shape(vec![1]), Kind::Table);
        let sums = w.push(BoundaryL1 { ignore }, &[p, labels]);
        w.result(BoundaryL1Grad { ignore }, &[p, labels, sums[1], upstream]);
        w.result(Join, &[sums[0], upstream, sums[0]]);
        let surface = |form| DistanceTerm::Surface { tolerance: 1.5, form };
        let target = w.image("distances", 2, classes - 1, extent);
        for term in [
            DistanceTerm::Boundary,
            DistanceTerm::Hausdorff { alpha: 2.0, log: false },
            DistanceTerm::Hausdorff { alpha: 1.3, log: true },
            surface(SurfaceForm::Symmetric),
            surface(SurfaceForm::AsPublished),
        ] {
            let mut operands = vec![p, labels, target];
            if term.uses_prediction() {
                let op = PredictedDistance { spacing: [2.5, 0.7, 0.8], signed: term.is_signed(), ignore };
                operands.push(w.push(op, &[p, labels])[0]);
            }
            let loss = DistanceLoss { term, ignore };
            let results = w.push(loss, &operands);
            w.result(loss, &operands);
            operands.extend([results[1], upstream]);
            w.result(DistanceLossGrad { loss }, &operands);
        }
        if extent.iter().product::<usize>() > 1 {
            // Masks are neither empty nor full.
            let op = PredictedDistance { spacing: [2.5, 0.7, 0.8], signed: true, ignore: None };
            w.result(op, &[p, labels]);
        }
        // Boundaries of probabilities that are all 0 or 1 are a matter of the last bit.
        let case = w.case(format!("shapes of {classes} classes on {extent:?}"), classes);
        cases.push(Case { may_be_large: false, ..case });
    }
    cases
}
