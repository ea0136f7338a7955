//! `plimsoll bench predict`: a made-up case through a network with random weights, from its file to the file of its labels.

use std::collections::BTreeMap;
use std::io::{BufWriter, IntoInnerError};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use plimsoll_data::{Case, Channel, ChannelFile, Normalisation, Preparation, Reading, TargetSpacing};
use plimsoll_disk::atomic::{AtomicFile, BUFFER};
use plimsoll_graph::{DType, Role, Shape, TensorId};
use plimsoll_infer::{CaseRequest, CaseTimes, PredictPlan, PredictedCase, Predictor, RingStorage, Summed};
use plimsoll_memory::{Budget, Bytes, resident};
use plimsoll_models::{Answers, Interpolated, SegmentationModel, WindowLayout};
use plimsoll_nn::weights::safetensors;
use plimsoll_nn::{Network, NetworkSettings, predict};
use plimsoll_run::Topology;
use plimsoll_volume::{Affine, ElementType, Geometry, Spacing, VolumeWriter};
use serde::Serialize;

use crate::args::BenchPredict;
use crate::failure::{Failure, Outcome};
use crate::report::json;
use crate::terminal::observed;

#[derive(Serialize)]
struct PredictReport {
    net: String,
    window: [usize; 3],
    shape: [usize; 3],
    classes: usize,
    /// The requested precision.
    precision: String,
    engine: String,
    summed: Summed,
    ring: RingStorage,
    threads: usize,
    window_batch: usize,
    windows: usize,
    /// All but reading and inspecting the case, divided by the windows.
    seconds_per_window: f64,
    windows_per_second: f64,
    /// The network alone, divided by the windows.
    forward_seconds_per_window: f64,
    times: CaseTimes,
    planned_bytes: Bytes,
    arena_bytes: Bytes,
    logits_bytes: Bytes,
    peak_rss_bytes: Bytes,
}

/// The voxels of the made-up case are this far apart, in millimetres, along all axes: it is not resampled.
const SPACING: Spacing = Spacing([1.0; 3]);
/// Windows overlap by half.
const STEP: f64 = 0.5;
/// The most voxels of a case, 16 GiB before they are compressed: a shape should not fill the disk by mistake.
const MOST_VOXELS: usize = 1 << 33;

/// Predicts the case the requested number of times, and prints the round with the median time.
pub fn run(args: &BenchPredict, as_json: bool) -> Outcome {
    let threads = args.compute.threads.count();
    let backend = args.held.on(args.compute.open()?)?;
    let engine = backend.identity();
    let budget = Budget::new(observed(as_json).limits(args.ram.ram).limit);
    let net = network(args)?;
    let shape = shape(args)?;
    let folder = tempfile::tempdir()?;
    let weights = folder.path().join("weights.safetensors");
    write_weights(&weights, &net, args.size, &budget)?;
    let image = folder.path().join("case_0000.nii.gz");
    write_case(&image, shape, &budget)?;
    let options = args.held.options(STEP, false, threads);
    let mut predictor = Predictor::new(model(args, net, &weights), options, backend, &budget)?;
    let case = Case {
        id: "case".into(),
        images: vec![ChannelFile { path: image, index: 0 }],
        label: None,
        reading: Reading::default(),
    };
    let labels = folder.path().join("case.nii.gz");
    let request =
        CaseRequest { case: &case, earlier: None, within: None, labels: &labels, probabilities: None };
    let mut rounds: Vec<PredictedCase> = Vec::with_capacity(usize::from(args.rounds));
    for _ in 0..args.rounds {
        rounds.push(predictor.predict(&request, &AtomicBool::new(false), &mut |_| {})?);
    }
    let spent = |predicted: &PredictedCase| predicted.times.all() - predicted.times.read_seconds;
    rounds.sort_by(|one, other| spent(one).total_cmp(&spent(other)));
    let median = &rounds[rounds.len() / 2];
    let PredictPlan { windows, looks, .. } = median.plan;
    let windows = windows * looks;
    let report = PredictReport {
        net: predictor.model().net.describe(),
        window: args.size,
        shape,
        classes: usize::from(args.classes),
        precision: args.held.said().to_string(),
        engine,
        summed: median.plan.summed,
        ring: median.plan.ring,
        threads,
        window_batch: median.plan.window_batch,
        windows,
        seconds_per_window: spent(median) / windows as f64,
        windows_per_second: windows as f64 / spent(median),
        forward_seconds_per_window: median.times.forward_seconds / windows as f64,
        times: median.times,
        planned_bytes: median.plan.total_bytes,
        arena_bytes: median.plan.arena_bytes,
        logits_bytes: median.plan.logits_bytes,
        peak_rss_bytes: resident()?.peak,
    };
    match as_json {
        true => json(&report),
        false => {
            report.print();
            Ok(())
        }
    }
}

impl PredictReport {
    fn print(&self) {
        let share = |seconds: f64| format!("{:.1} %", 100.0 * seconds / self.times.all());
        println!("{}", self.net);
        println!(
            "{:?} in {} windows of {:?}, {} classes, {} on {}: {:.3} s a window ({:.3} of it the network), {:.1} s in all",
            self.shape,
            self.windows,
            self.window,
            self.classes,
            self.precision,
            self.engine,
            self.seconds_per_window,
            self.forward_seconds_per_window,
            self.times.all()
        );
        let parts = self.times.parts().map(|(part, seconds)| format!("{part} {}", share(seconds)));
        println!("{}", parts.join(", "));
        println!(
            "planned {} (arena {}, sums of {} as {} {}), peak RSS {}",
            self.planned_bytes,
            self.arena_bytes,
            self.summed,
            self.ring,
            self.logits_bytes,
            self.peak_rss_bytes
        );
    }
}

/// The shape of the case; two windows deep by default.
fn shape(args: &BenchPredict) -> Outcome<[usize; 3]> {
    let [depth, height, width] = args.size;
    let shape = args.shape.unwrap_or([depth.saturating_mul(2), height, width]);
    let voxels = shape.into_iter().fold(1, usize::saturating_mul);
    if voxels > MOST_VOXELS {
        let message = format!(
            "a case of shape {shape:?} has more than {MOST_VOXELS} voxels, the most that this benchmark generates"
        );
        return Err(Failure::new(message, "write --shape or --size with smaller numbers"));
    }
    Ok(shape)
}

/// The network; by default the one that nnU-Net's rules give windows of the size.
fn network(args: &BenchPredict) -> Outcome<Network> {
    let topology = Topology::new(TargetSpacing::Volume(SPACING), args.size);
    if topology.patch != args.size {
        let [d, h, w] = topology.patch;
        let message = format!("windows of {:?} cannot be halved as often as nnU-Net would", args.size);
        return Err(Failure::new(message, format!("--size {d},{h},{w}")));
    }
    let settings = NetworkSettings {
        net: Some(args.net),
        features: args.features.clone(),
        ..NetworkSettings::default()
    };
    let mut design = topology.design(1, usize::from(args.classes));
    if let Some(features) = &args.features {
        if features.len() > design.strides.len() {
            let message = format!(
                "{} stages are more than windows of {:?} can be halved to",
                features.len(),
                args.size
            );
            return Err(Failure::new(
                message,
                format!("--features with {} numbers at most", design.strides.len()),
            ));
        }
        design.strides.truncate(features.len());
        design.kernels.truncate(features.len());
    }
    Ok(Network::design(&design, &settings)?)
}

/// The model as a run would have left it.
fn model(args: &BenchPredict, net: Network, weights: &Path) -> SegmentationModel {
    SegmentationModel {
        net,
        patch: args.size,
        precision: DType::F32,
        weights: vec![weights.into()],
        channels: vec![Channel { name: "image".into(), normalisation: Normalisation::ZScore }],
        file_ending: ".nii.gz".into(),
        foreground: BTreeMap::new(),
        preparation: Preparation::Canonical { spacing: TargetSpacing::Volume(SPACING) },
        earlier_labels: 0,
        answers: Answers::Classes(usize::from(args.classes)),
        outputs: (0..usize::from(args.classes)).map(|class| format!("class {class}")).collect(),
        mirror_axes: [true; 3],
        windows: WindowLayout::Even,
        interpolated: Interpolated::Logits,
    }
}

/// Writes initial values of all parameters.
fn write_weights(path: &Path, net: &Network, window: [usize; 3], budget: &Budget) -> Outcome {
    let program = predict(net.as_architecture(), window, 1, DType::F32)?;
    let parameters: Vec<TensorId> = program.with_role(Role::Parameter).collect();
    let listed: Vec<(String, Shape)> = parameters
        .iter()
        .map(|id| program.tensor(*id))
        .map(|tensor| (tensor.name.clone(), tensor.shape.clone()))
        .collect();
    let largest = listed.iter().map(|(_, shape)| shape.count()).max().unwrap_or(0);
    let _held =
        budget.reserve("initial weights", Bytes::from_len(largest.saturating_mul(size_of::<f32>())))?;
    let mut buffer = vec![0.0f32; largest];
    let mut file = BufWriter::with_capacity(BUFFER, AtomicFile::create(path)?);
    safetensors::write(&mut file, &listed, &BTreeMap::new(), &mut buffer, |i, values| {
        net.initialise(program.tensor(parameters[i]), 0, values);
        Ok(())
    })?;
    file.into_inner().map_err(IntoInnerError::into_error)?.commit()?;
    Ok(())
}

/// Writes an image of waves.
fn write_case(path: &Path, shape: [usize; 3], budget: &Budget) -> Outcome {
    let geometry = Geometry::new(shape, Affine::from_spacing(SPACING)).map_err(|error| {
        Failure::new(
            format!("a case of {shape:?}: {error}"),
            "write --shape with numbers above 0, whose product memory holds",
        )
    })?;
    let mut file = VolumeWriter::create(path, &geometry, 1, ElementType::I16, None)?;
    let [depth, height, width] = shape;
    let _held = budget.reserve("a plane of the case", Bytes::from_len(file.plane_bytes()))?;
    let mut plane = Vec::with_capacity(file.plane_bytes());
    for d in 0..depth {
        plane.clear();
        for (h, w) in (0..height).flat_map(|h| (0..width).map(move |w| (h, w))) {
            let [d, h, w] = [d, h, w].map(|place| place as f32);
            let value = 400.0 * ((0.11 * d).sin() + (0.07 * h).cos() + (0.13 * w + 0.05 * d).sin());
            plane.extend((value as i16).to_ne_bytes());
        }
        file.write_planes(&plane)?;
    }
    file.finish()?;
    Ok(())
}
