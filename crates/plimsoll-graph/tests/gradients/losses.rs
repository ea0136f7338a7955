//! Losses that are programs of several ops: of distances, of soft morphology, of one logit.

use super::*;

/// A loss of distances, or, without a term, of boundaries, for logits with an odd extent; if `coarse`, for means of
/// blocks.
fn loss_of_shapes(term: Option<DistanceTerm>, ignore: Option<u8>, coarse: bool) -> (Program, TensorId) {
    let mut p = Program::new("shapes");
    let logits = p.input("logits", Shape::volume(2, 3, [3, 4, 5]), Kind::Volume);
    let labels = p.input("labels", Shape::volume(2, 1, [3, 4, 5]), Kind::Labels);
    let output = [2, 2, 3];
    let mut operands = vec![p.push_one(Probabilities, &[logits]).unwrap(), labels];
    if coarse {
        operands[0] = p.push_one(MeanPool { output }, &operands[..1]).unwrap();
        operands[1] = p.push_one(DownsampleLabels { output }, &[labels]).unwrap();
    }
    let Some(term) = term else {
        let loss = p.push(BoundaryL1 { ignore }, &operands).unwrap()[0];
        return (p, loss);
    };
    let shape = p.shape(operands[0]).clone();
    operands.push(p.input("distances", shape, Kind::Volume));
    if term.uses_prediction() {
        let op = PredictedDistance { spacing: [2.0, 1.0, 0.7], signed: term.is_signed(), ignore };
        operands.push(p.push_one(op, &operands[..2]).unwrap());
    }
    let loss = p.push(DistanceLoss { term, ignore }, &operands).unwrap()[0];
    (p, loss)
}

#[test]
fn losses_of_distances_and_boundaries() {
    let surface = |form| DistanceTerm::Surface { tolerance: 1.5, form };
    let terms = [
        None,
        Some(DistanceTerm::Boundary),
        Some(DistanceTerm::Boundary),
        Some(DistanceTerm::Hausdorff { alpha: 2.0, log: false }),
        Some(DistanceTerm::Hausdorff { alpha: 1.3, log: true }),
        Some(surface(SurfaceForm::Symmetric)),
        Some(surface(SurfaceForm::AsPublished)),
    ];
    for (i, term) in terms.into_iter().enumerate() {
        for coarse in [false, true] {
            let (program, loss) = loss_of_shapes(term, ((i % 2 == 0) != coarse).then_some(2), coarse);
            check(program, loss, 3);
        }
    }
}

/// Returns the voxels that opening removes from a volume and from its erosions, joined.
fn skeleton(p: &mut Program, mut x: TensorId, erosion: &Op, union: Union) -> TensorId {
    let mut skeleton = None;
    for _ in 0..3 {
        let eroded = p.push_one(erosion.clone(), &[x]).unwrap();
        let step = SkeletonStep { first: skeleton.is_none(), union };
        let operands: Vec<TensorId> = [x, eroded].into_iter().chain(skeleton).collect();
        skeleton = Some(p.push_one(step, &operands).unwrap());
        x = eroded;
    }
    skeleton.unwrap()
}

/// A loss of soft morphology.
#[derive(Clone, Copy)]
enum Soft {
    ClDice,
    Skeletons,
    Dilations(Option<f32>),
    Recall,
}

fn loss_of_morphology(soft: Soft, ignore: Option<u8>, extent: [usize; 3]) -> (Program, TensorId) {
    let mut p = Program::new("morphology");
    let logits = p.input("logits", Shape::volume(2, 3, extent), Kind::Volume);
    let labels = p.input("labels", Shape::volume(2, 1, extent), Kind::Labels);
    let x = p.push_one(Probabilities, &[logits]).unwrap();
    let x = p.push_one(Counted { ignore }, &[x, labels]).unwrap();
    let t = p.push_one(OneHot { foreground: 2, ignore }, &[labels]).unwrap();
    let cube = |radius, extreme| BoxExtreme { radius, extreme };
    let mut pair = |make: &dyn Fn(&mut Program, TensorId) -> TensorId| [x, t].map(|v| make(&mut p, v));
    let difference = |threshold| MeanDifference { threshold, classes: 3, ignore };
    let loss = match soft {
        Soft::ClDice => {
            let make = |p: &mut Program, v| skeleton(p, v, &CrossErosion.into(), Union::Probabilistic);
            let [of_x, of_t] = pair(&make);
            let sums = OverlapSums { by_channel: false };
            let [precision, sensitivity] = [[of_x, t], [of_t, x]].map(|of| p.push_one(sums, &of).unwrap());
            let of = ClDice { smooth_numerator: 0.5, smooth_denominator: 1.0, smooth: 1e-3 };
            p.push_one(of, &[precision, sensitivity]).unwrap()
        }
        Soft::Skeletons => {
            let erosion = cube(1, Extreme::Min).into();
            let [of_x, of_t] = pair(&|p, v| skeleton(p, v, &erosion, Union::Maximum));
            p.push(difference(None), &[of_x, of_t, labels]).unwrap()[0]
        }
        Soft::Dilations(threshold) => {
            let [of_x, of_t] = pair(&|p, v| p.push_one(cube(2, Extreme::Max), &[v]).unwrap());
            p.push(difference(threshold), &[of_x, of_t, labels]).unwrap()[0]
        }
        Soft::Recall => {
            let sums = p.push_one(OverlapSums { by_channel: true }, &[t, x]).unwrap();
            let of = SoftRecall { batch: ignore.is_some(), smooth_numerator: 0.1, smooth_denominator: 0.2 };
            p.push_one(of, &[sums]).unwrap()
        }
    };
    (p, loss)
}

#[test]
fn losses_of_soft_morphology() {
    let all =
        [Soft::ClDice, Soft::Skeletons, Soft::Dilations(None), Soft::Dilations(Some(0.9)), Soft::Recall];
    for soft in all {
        for (ignore, extent) in [(None, [4, 5, 6]), (Some(2), [1, 7, 9])] {
            let (program, loss) = loss_of_morphology(soft, ignore, extent);
            check(program, loss, 3);
        }
    }
}

#[test]
fn cross_entropy_of_two_classes_of_one_logit_is_that_of_the_logit() {
    // torch.nn.functional.binary_cross_entropy_with_logits(x, t) by its definition, with and without smoothed targets.
    for smoothing in [0.0f32, 0.2] {
        let mut p = Program::new("one logit");
        let x = p.input("x", Shape::volume(4, 1, [1; 3]), Kind::Volume);
        let labels = p.input("labels", Shape::volume(4, 1, [1; 3]), Kind::Labels);
        let logits = p.push_one(ZeroClass, &[x]).unwrap();
        let entropy = CrossEntropy { label_smoothing: smoothing, ..CrossEntropy::default() };
        let loss = Loss::new(vec![Component::CrossEntropy(entropy)]);
        let sums = p.push_one(loss.stats(), &[logits, labels]).unwrap();
        let loss = p.push(CompositeLoss { loss }, &[sums]).unwrap()[0];
        let dx = differentiate(&mut p, loss, 1.0, &[x]).unwrap()[0].unwrap();
        let (numbers, targets) = ([1.5, -0.3, 40.0, -7.0], [1.0, 0.0, 0.0, 1.0]);
        let array = |shape: &Shape, data: [f64; 4]| Array { shape: shape.clone(), data: data.to_vec() };
        let values = Values::from([
            ("x".to_string(), array(p.shape(x), numbers)),
            ("labels".to_string(), array(p.shape(labels), targets)),
        ]);
        let found = interpret(&p, &values).unwrap();
        let smooth = f64::from(smoothing);
        let of_one = |(x, t): (f64, f64)| {
            let t = t * (1.0 - smooth) + smooth / 2.0;
            (x.max(0.0) - x * t + (-x.abs()).exp().ln_1p(), 1.0 / (1.0 + (-x).exp()) - t)
        };
        let expected: Vec<(f64, f64)> = numbers.into_iter().zip(targets).map(of_one).collect();
        let mean = expected.iter().map(|(loss, _)| loss).sum::<f64>() / 4.0;
        assert!((found[loss.index()].data[0] - mean).abs() < 1e-6, "{smoothing}: {mean}");
        for (found, (_, slope)) in found[dx.index()].data.iter().zip(expected) {
            assert!((found - slope / 4.0).abs() < 1e-7, "{smoothing}: {found} {slope}");
        }
    }
}
