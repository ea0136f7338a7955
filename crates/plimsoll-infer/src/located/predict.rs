//! Both looks at a case, from its file to its labels.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use plimsoll_data::{Case, LocatedSteps, PrepareError};
use plimsoll_graph::DType;
use plimsoll_memory::{Budget, Bytes, Mapped};
use plimsoll_plan::{HostSlice, HostSliceMut};
use plimsoll_volume::{ElementType, VolumeFile, VoxelBox};

use crate::cases::headers::Headers;
use crate::cases::request::CaseInput;
use crate::error::{InferError, check_going, unreadable};
use crate::labels::label_sink::LabelSink;
use crate::located::boxes::box_of;
use crate::located::fault::LocatedFault;
use crate::located::intensities::Range;
use crate::located::mark::{keep_largest, stored_mark};
use crate::located::plan::{LOOKS, LocatedCase, expect_labels_alone};
use crate::located::sampling::{NetworkAxes, Sampler};
use crate::options::RingStorage;
use crate::planning::case_planner::PlannedCase;
use crate::predicting::predictor::{CaseOutput, PredictedCase, Predictor};
use crate::progress::{Clock, Progress};
use crate::summing::buffers::Buffers;
use crate::summing::forward::{Running, planned};

/// A look at an image.
struct Look<'a> {
    case: &'a Case,
    sampler: Sampler<'a>,
    /// The box that is seen, along the axes of the network.
    within: VoxelBox,
    /// The network.
    fold: usize,
    steps: &'a LocatedSteps,
}

impl Predictor {
    /// Predicts a case with a model of two networks.
    ///
    /// # Errors
    /// Returns the errors of [`predict`](Predictor::predict).
    pub(crate) fn predict_located(
        &mut self,
        steps: &LocatedSteps,
        CaseInput { case, earlier, within }: CaseInput<'_>,
        CaseOutput { labels, probabilities }: CaseOutput<'_>,
        stop: &AtomicBool,
        observe: &mut dyn FnMut(Progress),
    ) -> Result<PredictedCase, InferError> {
        let mut clock = Clock::start();
        check_going(case, stop)?;
        expect_labels_alone(case, probabilities.is_some())?;
        let refused = |source| InferError::Prepare { case: case.id.clone(), source: Box::new(source) };
        if earlier.is_some() {
            return Err(refused(PrepareError::Earlier { expected: false }));
        }
        let headers = Headers::read(case, None)?.ok_or_else(|| unreadable(case))?;
        let whole = VoxelBox::whole(headers.geometry.shape());
        if within.is_some_and(|within| within != whole) {
            return Err(refused(PrepareError::Within));
        }
        let channel = case.images.first().ok_or_else(|| unreadable(case))?;
        let template = VolumeFile::open(&channel.path)?;
        let located = LocatedCase { name: &case.id, geometry: &headers.geometry, decoding: headers.decoding };
        // Both, before anything is allocated for the first.
        let plan = self.plan_located(steps, &located)?.plan;
        let mut progress = Progress { windows: 0, of: LOOKS, predicted_seconds: plan.predicted_seconds };
        observe(progress);
        clock.lap(|times| &mut times.read_seconds);

        let axes = NetworkAxes::new(template.geometry());
        let image = VoxelBox::whole(axes.shape());
        let seen = self.prepare_look(steps, steps.coarse, &located)?;
        let sampler = Sampler { channel, axes, budget: &seen };
        let look = Look { case, sampler, within: image, fold: 0, steps };
        let (mut mark, range) = self.look(look, None, &mut clock)?;
        check_going(case, stop)?;
        progress.windows = 1;
        observe(progress);
        let fault = |source| InferError::Located { case: case.id.clone(), source };
        let (budget, threads) = (self.network.budget.clone(), self.network.options.threads);
        // The network is fitted to another window next.
        self.network.running = None;
        keep_largest(&mut mark, steps.coarse, &budget, threads)?;
        let within = box_of(&mark, steps, axes.shape()).map_err(fault)?;
        drop((mark, seen));
        clock.lap(|times| &mut times.prepare_seconds);

        let seen = self.prepare_look(steps, steps.fine, &located)?;
        let sampler = Sampler { channel, axes, budget: &seen };
        let look = Look { case, sampler, within, fold: 1, steps };
        let (mark, _) = self.look(look, Some(range), &mut clock)?;
        check_going(case, stop)?;
        progress.windows = LOOKS;
        observe(progress);
        // The arena is room for what follows, and the next case begins with another one.
        self.network.running = None;
        let stored = stored_mark(&mark, steps.fine, &axes, &within, &budget, threads)?;
        let stored = stored.ok_or(LocatedFault::NoMark).map_err(fault)?;
        clock.lap(|times| &mut times.export_seconds);
        labels.begin(template.geometry(), ElementType::U8, template.header())?;
        write(labels, &stored, &axes.stored_box(&within), template.geometry().shape(), &budget, &mut || {
            check_going(case, stop)
        })?;
        clock.lap(|times| &mut times.write_seconds);
        Ok(PredictedCase { plan, times: clock.finish() })
    }

    /// Fits the network to a window, opens an engine for it, and returns the memory in which an image is read and marked.
    fn prepare_look(
        &mut self,
        steps: &LocatedSteps,
        window: [usize; 3],
        case: &LocatedCase<'_>,
    ) -> Result<Budget, InferError> {
        self.fit(window)?;
        let needs = self.located_needs(steps, case)?;
        let PlannedCase { plan, next, .. } = self.planning().plan_needs(&needs, Bytes::ZERO)?;
        self.network.replace_engine(next)?;
        let bytes = plan.preparation_bytes + plan.decoding_bytes;
        Ok(self.network.budget.part("preparation", bytes)?)
    }

    /// Samples a box of an image, normalises it, and returns what its network marks, with the range of intensities: the given one, or else its
    /// own.
    fn look(
        &mut self,
        look: Look<'_>,
        range: Option<Range>,
        clock: &mut Clock,
    ) -> Result<(Mapped<u8>, Range), InferError> {
        let Look { case, sampler, within, fold, steps } = look;
        let window = self.network.model.patch;
        let fault = |source| InferError::Located { case: case.id.clone(), source };
        let shape = VolumeFile::open(&sampler.channel.path)?.geometry().shape();
        let mut plane = Mapped::<f32>::zeroed(sampler.budget, "a plane", shape[1] * shape[2])?;
        let Buffers { image, other, .. } = &mut self.network.buffers;
        sampler.fill(&within, window, &mut plane, image)?;
        let range = match range {
            Some(range) => range,
            None => {
                let values = &mut other[..image.len()];
                values.copy_from_slice(image);
                Range::new(values, steps.quantiles).map_err(fault)?
            }
        };
        range.normalise(image, steps).map_err(fault)?;
        clock.lap(|times| &mut times.pull_seconds);
        self.network.load_fold(fold)?;
        let Running { engine, forward, .. } = planned(&mut self.network.running)?;
        let (image, output) = (self.network.forward.image, self.network.forward.output);
        engine.write(*forward, image, HostSlice::F32(&self.network.buffers.image))?;
        engine.run(*forward)?;
        clock.lap(|times| &mut times.forward_seconds);
        let voxels = window.iter().product::<usize>();
        let mut mark = Mapped::<u8>::zeroed(sampler.budget, "a mark", voxels)?;
        let slice = window[1] * window[2];
        let (background, rest) = self.network.buffers.other.split_at_mut(slice);
        let marked = &mut rest[..slice];
        for (number, mark) in mark.chunks_exact_mut(slice).enumerate() {
            engine.read_from(*forward, output, number * slice, HostSliceMut::F32(background))?;
            engine.read_from(*forward, output, voxels + number * slice, HostSliceMut::F32(marked))?;
            if background.iter().chain(marked.iter()).any(|logit| !logit.is_finite()) {
                return Err(self.not_finite(case, fold));
            }
            // The probability is above one half.
            for ((mark, background), marked) in mark.iter_mut().zip(&*background).zip(&*marked) {
                *mark = (marked > background).into();
            }
        }
        clock.lap(|times| &mut times.sum_seconds);
        Ok((mark, range))
    }

    fn not_finite(&self, case: &Case, fold: usize) -> InferError {
        let model = Arc::clone(&self.network.model);
        let in_f32 = (self.network.precision() != DType::F32).then_some("‹precision=f32›");
        match model.weights.get(fold) {
            Some(weights) => InferError::NotFinite {
                case: case.id.clone(),
                weights: weights.path.clone(),
                start: [0; 3],
                ring: RingStorage::F32,
                in_f32,
            },
            None => unreadable(case),
        }
    }
}

/// Writes a mark of a box as labels of the stored grid, plane by plane.
fn write(
    labels: &mut (dyn LabelSink + Send),
    mark: &[u8],
    within: &VoxelBox,
    [depth, height, width]: [usize; 3],
    budget: &Budget,
    go_on: &mut dyn FnMut() -> Result<(), InferError>,
) -> Result<(), InferError> {
    let mut plane = Mapped::<u8>::zeroed(budget, "a plane of labels", height * width)?;
    let [_, rows, columns] = within.shape;
    for d in 0..depth {
        go_on()?;
        plane.fill(0);
        if let Some(slice) = d.checked_sub(within.start[0]).filter(|slice| *slice < within.shape[0]) {
            let marked = mark[slice * rows * columns..][..rows * columns].chunks_exact(columns);
            for (row, marked) in plane.chunks_exact_mut(width).skip(within.start[1]).zip(marked) {
                let row = &mut row[within.start[2]..][..columns];
                row.copy_from_slice(marked);
            }
        }
        labels.write_planes(&plane)?;
    }
    labels.finish()
}
