//! The needs of a case for a network, from its files or from its grid alone.

use std::collections::BTreeMap;

use plimsoll_data::{Case, Preparation, TargetGrid, inspection_bytes};
use plimsoll_memory::{Bytes, Mapped};
use plimsoll_models::WindowLayout;
use plimsoll_plan::engine_bytes;

use crate::cases::case_spacing::CaseSpacing;
use crate::cases::case_windows::{CaseImages, CasePlace};
use crate::cases::headers::Headers;
use crate::error::InferError;
use crate::labels::label_output::queue_bytes;
use crate::labels::spool::Record;
use crate::labels::wanted::Wanted;
use crate::options::RingStorage;
use crate::planning::case_planner::{CasePlanner, PlannedCase};
use crate::planning::engines::{Alternatives, LeastWith, Otherwise};
use crate::planning::needs::{CaseNeeds, DeviceLogits, LogitsBytes, LogitsNeeds, SpoolNeeds, StripNeeds};
use crate::summing::device_sums::device_bytes;
use crate::summing::rows::{Rows, slices_of};
use crate::summing::sliding_window::SlidingWindow;
use crate::summing::stream::Stream;

/// Memory of a case that follows from its files.
pub(crate) struct CaseMemory {
    pub(crate) decoded: Bytes,
    /// The part of these bytes that is compressed and can be decompressed to a file beside the output.
    pub(crate) compressed: Bytes,
    pub(crate) decoding: Bytes,
    /// The bytes of the next case.
    pub(crate) ahead: Bytes,
    /// `true` if it is known which part of the images is not zero.
    pub(crate) is_cut: bool,
    /// `true` if labels that are to be put in order wait in memory, as there is no file beside which they could.
    pub(crate) waits_in_memory: bool,
}

impl CaseMemory {
    /// Returns the memory of a case that was inspected, of which `held` bytes are decoded already. The next case needs `ahead` bytes;
    /// `has_file` is `true` if there is a file of labels beside which data can be kept.
    pub(crate) fn from_headers(headers: &Headers, held: Bytes, ahead: Bytes, has_file: bool) -> CaseMemory {
        CaseMemory {
            decoded: headers.decoded.max(held),
            compressed: if has_file { headers.compressed } else { Bytes::ZERO },
            decoding: headers.decoding,
            ahead,
            is_cut: true,
            waits_in_memory: !has_file,
        }
    }

    /// The same, without memory for decoded images if these are kept on the disk by another model.
    pub(crate) fn unless(self, are_kept: bool) -> CaseMemory {
        match are_kept {
            true => CaseMemory { decoded: Bytes::ZERO, compressed: Bytes::ZERO, ..self },
            false => self,
        }
    }
}

/// The sums of the windows of a grid.
#[derive(Clone, Copy)]
struct SumsOfGrid<'a> {
    /// The grid that windows are of, or one that it is a part of.
    grid: &'a TargetGrid,
    wanted: Wanted<'a>,
    /// The least bytes in which labels and probabilities that waited are put in order.
    reading: Bytes,
}

/// The planning of cases for a network.
#[derive(Clone, Copy)]
pub(crate) struct Planning<'a> {
    pub(crate) network: &'a SlidingWindow,
    /// The spacings of cases that are seen at another one than the model's, by name.
    pub(crate) spacings: &'a BTreeMap<String, CaseSpacing>,
    /// The bytes of the process itself.
    pub(crate) overhead: Bytes,
    pub(crate) alternatives: &'a Alternatives,
}

/// The least needs of the network with a change.
pub(crate) type LeastNeeds<'a> = dyn Fn(Otherwise) -> Result<Option<LeastWith>, InferError> + 'a;

impl<'a> Planning<'a> {
    /// Returns the spacing at which a case is seen; `None` for the model's.
    pub(crate) fn spacing_of(&self, case: &Case) -> Option<CaseSpacing> {
        self.spacings.get(&case.id).copied()
    }

    /// Plans a case with needs, for which `held` bytes are reserved already.
    ///
    /// # Errors
    /// Returns an error if the memory limit is too low for it, or the network cannot be planned.
    pub(crate) fn plan_needs(&self, needs: &CaseNeeds, held: Bytes) -> Result<PlannedCase, InferError> {
        let least_with = |otherwise| self.alternatives.least_with(otherwise, self.network);
        self.planner(&least_with, held).plan(needs)
    }

    /// Returns a planner of cases, for which `held` bytes are reserved already.
    pub(crate) fn planner<'b>(&self, least_with: &'b LeastNeeds<'b>, held: Bytes) -> CasePlanner<'b>
    where
        'a: 'b,
    {
        let network = self.network;
        let running = network.running.as_ref().map(|running| running.engine.plan());
        CasePlanner {
            budget: &network.budget,
            backend: &*network.backend,
            program: &network.forward.program,
            precision: network.precision(),
            least_with,
            held_by_engine: running.map_or(Bytes::ZERO, |plan| engine_bytes(&*network.backend, plan)),
            running,
            overhead: self.overhead,
            held_for_case: held,
        }
    }

    /// Returns the needs of a case beside the arena.
    pub(crate) fn needs(
        &self,
        images: CaseImages<'_>,
        place: &CasePlace<'_>,
        probabilities: bool,
        memory: CaseMemory,
    ) -> Result<CaseNeeds, InferError> {
        let model = &self.network.model;
        let wanted = Wanted::new(&model.answers, probabilities);
        let grid = place.largest_grid();
        // Of images that are cut to what is not zero, as if they were not: headers, which do not know of it, lead to the same.
        let uncut = place.uncut_grid(images)?;
        let slab_axis = slices_of(&uncut, model.patch);
        let rows = self.network.rows(grid, slab_axis);
        let stored = images.geometry.shape();
        let [labels, probabilities] = Record::for_case(stored, slab_axis, wanted);
        // Once all sums are labels, their memory is that in which labels are put in order.
        let reading = labels.least_reading()?.max(probabilities.least_reading()?);
        let sums = SumsOfGrid { grid, wanted, reading };
        let spool = SpoolNeeds {
            labels: labels.memory()?,
            is_in_memory: memory.waits_in_memory,
            probabilities: Bytes::from_len(probabilities.all()),
        };
        let [depth, height, width] = stored;
        let plane = height.saturating_mul(width).saturating_mul(wanted.label_bytes());
        let [queue, least_queue] = queue_bytes(depth, plane)?;
        let (folds, looks) = (model.weights.len(), self.network.looks());
        Ok(CaseNeeds {
            case: images.case.id.clone(),
            slab_axis,
            logits: self.logits_needs(sums, &rows, slab_axis != 0)?,
            strips: self.strip_needs(sums, &rows, &uncut, memory.is_cut)?,
            spool,
            ring: self.ring(),
            summed: self.network.summands.summed(),
            inspection: inspection_bytes(images.case)?,
            preparation: place.bytes(images)?,
            decoding: memory.decoding,
            decoded: memory.decoded,
            compressed: memory.compressed,
            queue,
            least_queue,
            ahead: memory.ahead,
            windows: rows.windows().saturating_mul(folds),
            looks,
            runs: rows.runs(looks, self.network.options.window_batch).saturating_mul(folds),
            window_batch: self.network.options.window_batch,
        })
    }

    /// Returns the required type of sums. Probabilities of many passes would lose too much in 16 bits.
    fn ring(&self) -> Option<RingStorage> {
        let of_probabilities = self.network.activation_of_passes().map(|_| RingStorage::F32);
        self.network.options.ring.or(of_probabilities)
    }

    /// Returns the needs of the sums of some rows. Labels of rows that `is_spooled` are put in order afterwards.
    fn logits_needs(
        &self,
        sums: SumsOfGrid<'_>,
        rows: &Rows,
        is_spooled: bool,
    ) -> Result<LogitsNeeds, InferError> {
        let (numbers, at_once) = (self.network.copied_numbers(), self.network.forward.at_once);
        // What is copied from a device is copied where this process sums.
        let bytes = |storage, copied: Option<Bytes>| -> Result<Bytes, InferError> {
            let summing = self.network.summing(storage, copied.is_none());
            let stream = Stream::bytes(sums.grid, rows, sums.wanted, &self.network.weights, &summing)?;
            let all = stream + copied.unwrap_or(Bytes::ZERO);
            Ok(if is_spooled { all.max(sums.reading) } else { all })
        };
        let both = |copied| -> Result<LogitsBytes, InferError> {
            let [in_f32, in_f16] = RingStorage::ALL.map(|storage| bytes(storage, copied));
            Ok(LogitsBytes { in_f32: in_f32?, in_f16: in_f16? })
        };
        let there = |storage| {
            let bytes = device_bytes(&*self.network.backend, &rows.shape, &self.network.summands, storage);
            bytes.filter(|_| {
                self.network.weights.is_product() && self.network.activation_of_passes().is_none()
            })
        };
        let by_device = match RingStorage::ALL.map(there) {
            [Some(in_f32), Some(in_f16)] => {
                Some(DeviceLogits { here: both(None)?, there: LogitsBytes { in_f32, in_f16 } })
            }
            _ => None,
        };
        Ok(LogitsNeeds {
            by_host: both(Some(Mapped::<f32>::bytes(numbers)?))?,
            by_host_of_one: both(Some(Mapped::<f32>::bytes(numbers / at_once)?))?,
            by_device,
        })
    }

    /// Returns the needs of all strips in which a case may be traversed, the fewest strips first.
    fn strip_needs(
        &self,
        sums: SumsOfGrid<'_>,
        rows: &Rows,
        uncut: &TargetGrid,
        is_cut: bool,
    ) -> Result<Vec<StripNeeds>, InferError> {
        let folds = self.network.model.weights.len();
        if matches!(self.network.model.windows, WindowLayout::Whole { .. }) {
            // Each strip would take the only window again, and the network takes far more than the sums.
            return Ok(Vec::new());
        }
        // Cut to another box, the same strips may be wider by the rounding of both of their ends.
        let is_cut_later = matches!(self.network.model.preparation, Preparation::NnUnet(_)) && !is_cut;
        let more = if is_cut_later { 2 } else { 0 };
        let mut strips = Vec::new();
        for possible in self.network.rows(uncut, rows.slices).possible_strips(uncut) {
            let choice = rows.choice(sums.grid, possible);
            strips.push(StripNeeds {
                strips: choice.strips,
                count: choice.count,
                windows: choice.windows.saturating_mul(folds),
                logits: self.logits_needs(sums, &rows.widest(&choice, more), true)?,
            });
        }
        strips.sort_by_key(|strips| (strips.count, strips.windows));
        Ok(strips)
    }
}
