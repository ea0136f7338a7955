//! Scoring cases one after the other, class by class.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{LabelValues, VoxelBox};

use crate::compare::CaseFiles;
use crate::masks::{CountedClass, shape_with_margin};
use crate::{
    BettiNumbers, CaseScores, ClassMasks, Confusion, Group, Lesions, Metric, MetricError, Overlap, Scores,
    Settings, Summary, SurfaceDistances, cl_dice, compare,
};

/// A prediction and its reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CasePaths {
    /// The predicted label map.
    pub prediction: PathBuf,
    /// The reference label map.
    pub reference: PathBuf,
    /// The class that each value of the reference denotes, or `None` if values are the numbers of classes.
    pub reference_values: Option<Arc<LabelValues>>,
    /// The same of the prediction.
    pub prediction_values: Option<Arc<LabelValues>>,
}

/// Scores cases. Overlap needs memory for two planes; the other groups, one class and one group at a time, up to some
/// 10 bytes per voxel of the bounding box of the class. If there is also room for all labels of both files, compressed
/// files are decoded only once. `done` is called with the number of finished cases.
///
/// # Errors
/// Returns an error if two files cannot be read or compared, or the memory for a class is not available.
pub fn evaluate(
    cases: &[CasePaths],
    settings: &Settings,
    budget: &Budget,
    threads: usize,
    done: &dyn Fn(usize),
) -> Result<Summary, MetricError> {
    let mut scores = Vec::with_capacity(cases.len());
    for case in cases {
        scores.push(evaluate_case(case, settings, budget, threads)?);
        done(scores.len());
    }
    Ok(Summary::new(scores, settings.clone()))
}

fn evaluate_case(
    case: &CasePaths,
    settings: &Settings,
    budget: &Budget,
    threads: usize,
) -> Result<CaseScores, MetricError> {
    let files = CaseFiles::open(&case.prediction, &case.reference)?;
    let files = files.with_values(case.reference_values.clone(), case.prediction_values.clone())?;
    let files = files.with_ignored(settings.ignore);
    let mut files = files.with_unit(settings.millimetres_per_unit);
    let of_shape = settings.groups.iter().any(|group| *group != Group::Overlap);
    if of_shape {
        files.hold(budget)?;
    }
    let confusion = within(&mut files, |files| compare(files, budget))?;
    let counted_voxels = confusion.voxels();
    let mut metrics = BTreeMap::new();
    for class in settings.classes.iter().copied() {
        let labels = settings.labels(class);
        let mut scores = overlap_scores(confusion.overlap(&labels), settings);
        match confusion.bounds(&labels) {
            None => shape_is_undefined(settings, &mut scores),
            Some(bounds) if of_shape => {
                let score = |files: &mut _| {
                    score_shape(
                        CountedClass { labels: &labels, counted_voxels },
                        files,
                        bounds,
                        settings,
                        budget,
                        threads,
                        &mut scores,
                    )
                };
                within(&mut files, score).map_err(|error| error.in_class(&case.prediction, class))?;
            }
            Some(_) => (),
        }
        metrics.insert(class, scores);
    }
    let lengths = files.geometry().shape().into_iter().zip(files.spacing());
    let diagonal: f64 =
        lengths.map(|(voxels, spacing)| (voxels as f64 * spacing).powi(2)).sum::<f64>().sqrt();
    let CasePaths { prediction, reference, .. } = case.clone();
    Ok(CaseScores {
        prediction_file: prediction,
        reference_file: reference,
        metrics,
        counted_voxels: Some(counted_voxels),
        diagonal_mm: Some(diagonal).filter(|diagonal| diagonal.is_finite()),
    })
}

/// Returns the labels that the maps of cases have, except the labels of voxels whose reference label is ignored. Reads every map once, in
/// memory for two planes. `done` is called with the number of finished cases.
///
/// # Errors
/// Returns an error if two files cannot be read or compared.
pub fn present_labels(
    cases: &[CasePaths],
    ignore: Option<u8>,
    budget: &Budget,
    done: &dyn Fn(usize),
) -> Result<BTreeSet<u8>, MetricError> {
    let mut labels = BTreeSet::new();
    for (number, case) in cases.iter().enumerate() {
        let files = CaseFiles::open(&case.prediction, &case.reference)?;
        let files = files.with_values(case.reference_values.clone(), case.prediction_values.clone())?;
        labels.extend(compare(&mut files.with_ignored(ignore), budget)?.labels());
        done(number + 1);
    }
    Ok(labels)
}

/// Retries without the held labels if memory runs out with them.
fn within<T>(
    files: &mut CaseFiles,
    mut attempt: impl FnMut(&mut CaseFiles) -> Result<T, MetricError>,
) -> Result<T, MetricError> {
    match attempt(files) {
        Err(error) if error.is_of_memory() && files.let_go() => attempt(files),
        outcome => outcome,
    }
}

/// A lower bound of the memory for a class in this box, without what depends on its surface and components.
fn least_bytes(grid: [usize; 3], bounds: VoxelBox, groups: &BTreeSet<Group>) -> Bytes {
    let voxels: u64 = shape_with_margin(grid, bounds).iter().map(|length| *length as u64).product();
    let by_voxel = |group: &Group| match group {
        Group::Overlap => 0,
        Group::Surface | Group::Topology => 5,
        Group::Lesion => 8,
    };
    Bytes(voxels.saturating_mul(2 + groups.iter().map(by_voxel).max().unwrap_or(0)))
}

/// Adds the scores that need the masks of a class.
fn score_shape(
    class: CountedClass<'_>,
    files: &mut CaseFiles,
    bounds: VoxelBox,
    settings: &Settings,
    budget: &Budget,
    threads: usize,
    scores: &mut Scores,
) -> Result<(), MetricError> {
    // Refuse a class that cannot fit before anything is read.
    let shape = files.geometry().shape();
    let needed = least_bytes(shape, bounds, &settings.groups);
    let [depth, height, width] = bounds.shape;
    drop(budget.reserve(&format!("a box of {depth} × {height} × {width} voxels"), needed)?);
    let masks = ClassMasks::read(class, files, bounds, budget)?;
    score_masks(&masks, settings, budget, threads, scores)
}

/// The scores of the overlap of a class, if they are wanted, and the numbers of its voxels.
fn overlap_scores(overlap: Overlap, settings: &Settings) -> Scores {
    let mut scores = match settings.groups.contains(&Group::Overlap) {
        true => Scores::from(overlap),
        false => Scores::default(),
    };
    // These say why another score is undefined.
    scores.set(Metric::Predicted, overlap.predicted() as f64);
    scores.set(Metric::Reference, overlap.reference() as f64);
    scores
}

/// Marks the scores of shape of a class in neither map: they are undefined, not perfect.
fn shape_is_undefined(settings: &Settings, scores: &mut Scores) {
    let others = settings.groups.iter().filter(|group| **group != Group::Overlap);
    others.flat_map(|group| group.metrics()).for_each(|metric| scores.set(metric, f64::NAN));
}

/// Two label maps in memory, a byte for each voxel.
#[derive(Clone, Copy, Debug)]
pub struct LabelMaps<'a> {
    /// The predicted labels.
    pub prediction: &'a [u8],
    /// The reference labels.
    pub reference: &'a [u8],
    /// Depth, height, width of both in voxels.
    pub shape: [usize; 3],
    /// The spacing along the same axes, in millimetres.
    pub spacing: [f64; 3],
}

/// Scores two label maps in memory, class by class, as [`evaluate`] scores files. The maps themselves are not counted in the budget.
///
/// # Errors
/// Returns an error if the length of a map does not match the shape, the spacing is not positive and finite, or the memory for a class is not available.
pub fn evaluate_maps(
    maps: &LabelMaps<'_>,
    settings: &Settings,
    budget: &Budget,
    threads: usize,
) -> Result<BTreeMap<u8, Scores>, MetricError> {
    let LabelMaps { prediction, reference, shape, .. } = *maps;
    let needed = VoxelBox::whole(shape).voxel_count();
    if needed != Some(prediction.len()) || needed != Some(reference.len()) {
        return Err(MetricError::Length { found: [prediction.len(), reference.len()], shape });
    }
    let [_, height, width] = shape;
    // Maps without voxels may have planes of any size.
    let plane = height.saturating_mul(width).max(1);
    let mut confusion = Confusion::ignoring(settings.ignore);
    for (z, (prediction, reference)) in prediction.chunks(plane).zip(reference.chunks(plane)).enumerate() {
        confusion.add_plane(z, width, reference, prediction);
    }
    let of_shape = settings.groups.iter().any(|group| *group != Group::Overlap);
    let mut metrics = BTreeMap::new();
    for class in settings.classes.iter().copied() {
        let labels = settings.labels(class);
        let mut scores = overlap_scores(confusion.overlap(&labels), settings);
        match confusion.bounds(&labels) {
            None => shape_is_undefined(settings, &mut scores),
            Some(bounds) if of_shape => {
                let masks = ClassMasks::copy(&labels, &confusion, maps, bounds, budget)?;
                score_masks(&masks, settings, budget, threads, &mut scores)?;
            }
            Some(_) => (),
        }
        metrics.insert(class, scores);
    }
    Ok(metrics)
}

/// The scores of the shape of a class.
fn score_masks(
    masks: &ClassMasks,
    settings: &Settings,
    budget: &Budget,
    threads: usize,
    scores: &mut Scores,
) -> Result<(), MetricError> {
    for group in &settings.groups {
        match group {
            Group::Overlap => (),
            Group::Surface => {
                let surfaces = SurfaceDistances::measure(masks, settings.surface, budget, threads)?;
                scores.set(Metric::HD, surfaces.hausdorff());
                scores.set(Metric::HD95, surfaces.hausdorff_at(0.95));
                scores.set(Metric::ASSD, surfaces.average_symmetric());
                scores.set(Metric::NSD, surfaces.surface_dice(settings.tolerance));
            }
            Group::Topology => {
                scores.set(Metric::ClDice, cl_dice(masks, budget, threads)?);
                let betti = BettiNumbers::count(masks, budget, threads)?;
                let [components, tunnels, cavities] = betti.errors().map(|error| error as f64);
                scores.set(Metric::Betti0, components);
                scores.set(Metric::Betti1, tunnels);
                scores.set(Metric::Betti2, cavities);
                scores.set(Metric::TopologyScore, betti.score());
            }
            Group::Lesion => {
                let lesions = Lesions::find(masks, budget, threads)?;
                let (detection, panoptic) = (lesions.detection(settings.lesion_overlap), lesions.panoptic());
                scores.set(Metric::LesionF1, detection.f1());
                scores.set(Metric::LesionSensitivity, detection.sensitivity());
                scores.set(Metric::LesionPrecision, detection.precision());
                scores.set(Metric::PQ, panoptic.quality);
                scores.set(Metric::SQ, panoptic.segmentation);
                scores.set(Metric::RQ, panoptic.recognition);
                let information = lesions.variation_of_information();
                scores.set(Metric::VISplit, information.splits);
                scores.set(Metric::VIMerge, information.merges);
            }
        }
    }
    Ok(())
}
