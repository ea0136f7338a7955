//! One pass over a label map: counts, unexpected values, and positions of the classes.

use std::collections::BTreeMap;

use plimsoll_memory::{Budget, Digest, Digester, Mapped};
use plimsoll_volume::{DecodeError, LabelValues, VolumeError, VolumeFile, VoxelBox, decode_labels};

use crate::Labels;
use crate::inspect::InspectError;
use crate::inspect::foreground::{POSITIONS, unit, voxel};
use crate::inspect::sample::Sample;
use plimsoll_random::mix;

/// The largest number of distinct unexpected values that are reported; a file with more is not a label map.
const WRONG_VALUES: usize = 8;

/// The number of intensities of foreground that are passed on together.
const TOGETHER: usize = 4096;

/// A value that is not a label of the data set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct WrongValue {
    pub(crate) value: f64,
    pub(crate) voxels: u64,
    /// The first, (depth, height, width) as stored.
    pub(crate) first: [usize; 3],
}

/// The contents of a label map.
pub(crate) struct LabelScan {
    /// The number of voxels of each label of the data set, "ignore" last.
    pub(crate) counts: Vec<u64>,
    pub(crate) wrong: Vec<WrongValue>,
    /// The number of voxels with further unexpected values.
    pub(crate) more_wrong: u64,
    /// Sampled positions by class; of class 0 the positions of annotated voxels, if there are others.
    pub(crate) classes: Vec<Vec<u64>>,
    /// The unit of positions.
    pub(crate) unit: u64,
    /// The first and the last plane with foreground; `None` if there is none.
    pub(crate) foreground_planes: Option<[usize; 2]>,
    /// The digest of all labels.
    pub(crate) digest: Digest,
}

/// The bytes that a scan allocates beside the planes.
pub(crate) fn sample_bytes(labels: &Labels) -> u64 {
    labels.classes() as u64 * Sample::bytes(POSITIONS)
}

/// The bytes of a plane, stored and decoded.
pub(crate) fn plane_bytes(file: &VolumeFile) -> u64 {
    let [_, height, width] = file.geometry().shape();
    let page = |bytes: u64| bytes.next_multiple_of(4096);
    let voxels = height as u64 * width as u64;
    page(voxels * file.element_type().size() as u64) + page(voxels)
}

/// Reads a label map, planes within `memory`, as many at a time as chunks are deep if there is room for them. The outer error is the budget's, the inner one the file's.
pub(crate) fn scan(
    file: &mut VolumeFile,
    labels: &Labels,
    values: Option<&LabelValues>,
    key: u64,
    memory: &Budget,
) -> Result<Result<LabelScan, VolumeError>, InspectError> {
    let shape = file.geometry().shape();
    let [_, height, width] = shape;
    let (plane, size) = (height * width, file.element_type().size());
    let (element_type, scaling) = (file.element_type(), file.scaling());
    let mut decoded = Mapped::<u8>::zeroed(memory, "a plane of labels", plane)?;
    let mut tally = Tally::new(labels, key, unit(file.geometry().voxel_count()));
    let read = file.for_each_plane::<VolumeError>(0, memory, |d, stored| {
        let before = (d * plane) as u64;
        if decode_labels(element_type, scaling, stored, &mut decoded).is_err() {
            for (at, (label, one)) in (before..).zip(decoded.iter_mut().zip(stored.chunks_exact(size))) {
                let mut found = [0];
                let result = decode_labels(element_type, scaling, one, &mut found);
                *label = found[0];
                if let Err(DecodeError::NotALabel { value, .. }) = result {
                    // A value that is not a label becomes the file's background.
                    *label = 0;
                    tally.note_wrong(value, at);
                }
            }
        }
        if let Some(values) = values {
            for (at, label) in (before..).zip(decoded.iter_mut()) {
                *label = values.class(*label).unwrap_or_else(|| {
                    tally.note_wrong(f64::from(*label), at);
                    0
                });
            }
        }
        tally.visit(&decoded, d, before);
        Ok(())
    });
    Ok(read.map(|()| tally.finish(shape)))
}

struct Tally<'a> {
    labels: &'a Labels,
    counts: [u64; 256],
    /// The first position of each value.
    first: [u64; 256],
    /// Values that are not labels, with their count and first position. Keyed by bits, so that NaN can be a key.
    wrong: BTreeMap<u64, (u64, u64)>,
    more_wrong: u64,
    seen: u64,
    unit: u64,
    classes: Vec<Sample>,
    foreground_planes: Option<[usize; 2]>,
    digester: Digester,
}

impl Tally<'_> {
    fn new(labels: &Labels, key: u64, unit: u64) -> Tally<'_> {
        let sample = |class: usize| Sample::new(POSITIONS, mix(key ^ class as u64));
        Tally {
            labels,
            counts: [0; 256],
            first: [0; 256],
            wrong: BTreeMap::new(),
            more_wrong: 0,
            seen: 0,
            unit,
            classes: (0..labels.classes()).map(sample).collect(),
            foreground_planes: None,
            digester: Digester::default(),
        }
    }

    fn visit(&mut self, plane: &[u8], d: usize, before: u64) {
        self.seen += plane.len() as u64;
        self.digester.update(plane);
        for (position, &label) in (before..).zip(plane) {
            if label == 0 {
                continue;
            }
            let count = &mut self.counts[usize::from(label)];
            if *count == 0 {
                self.first[usize::from(label)] = position;
            }
            *count += 1;
            if self.labels.is_foreground(label) {
                self.foreground_planes.get_or_insert([d, d])[1] = d;
                if position.is_multiple_of(self.unit) {
                    self.classes[usize::from(label)].show(position);
                }
            }
        }
        if let Some(ignore) = self.labels.ignore() {
            for (position, _) in (before..).zip(plane).filter(|(_, label)| **label != ignore) {
                if position.is_multiple_of(self.unit) {
                    self.classes[0].show(position);
                }
            }
        }
    }

    fn note_wrong(&mut self, value: f64, position: u64) {
        let is_known = self.wrong.contains_key(&value.to_bits());
        if is_known || self.wrong.len() < WRONG_VALUES {
            self.wrong.entry(value.to_bits()).or_insert((0, position)).0 += 1;
        } else {
            self.more_wrong += 1;
        }
    }

    fn finish(mut self, shape: [usize; 3]) -> LabelScan {
        let undecodable = self.wrong.values().map(|(voxels, _)| voxels).sum::<u64>() + self.more_wrong;
        self.counts[0] = self.seen - self.counts[1..].iter().sum::<u64>() - undecodable;
        let mut wrong: Vec<WrongValue> = self
            .wrong
            .iter()
            .map(|(bits, (voxels, first))| (f64::from_bits(*bits), *voxels, *first))
            .map(|(value, voxels, first)| WrongValue { value, voxels, first: voxel(first, shape) })
            .collect();
        for value in 1..=u8::MAX {
            let voxels = self.counts[usize::from(value)];
            if voxels == 0 || self.labels.contains(value) {
                continue;
            }
            if wrong.len() < WRONG_VALUES {
                let first = voxel(self.first[usize::from(value)], shape);
                wrong.push(WrongValue { value: f64::from(value), voxels, first });
            } else {
                self.more_wrong += voxels;
            }
        }
        wrong.sort_by(|a, b| a.value.total_cmp(&b.value));
        let values = self.labels.classes() + usize::from(self.labels.ignore().is_some());
        LabelScan {
            counts: self.counts[..values].to_vec(),
            digest: self.digester.finish(),
            wrong,
            more_wrong: self.more_wrong,
            classes: self.classes.into_iter().map(Sample::into_sorted).collect(),
            unit: self.unit,
            foreground_planes: self.foreground_planes,
        }
    }
}

/// The planes of a label map that was scanned, read again beside the planes of an image.
pub(crate) struct LabelPlanes<'a> {
    file: &'a mut VolumeFile,
    labels: &'a Labels,
    values: Option<&'a LabelValues>,
    /// The first and the last plane with foreground.
    planes: [usize; 2],
    stored: Mapped<u8>,
    decoded: Mapped<u8>,
}

impl<'a> LabelPlanes<'a> {
    /// The planes of a label map between the first and the last with foreground, held in [`plane_bytes`] of `memory`.
    pub(crate) fn new(
        file: &'a mut VolumeFile,
        labels: &'a Labels,
        values: Option<&'a LabelValues>,
        planes: [usize; 2],
        memory: &Budget,
    ) -> Result<LabelPlanes<'a>, InspectError> {
        let [_, height, width] = file.geometry().shape();
        let stored = height * width * file.element_type().size();
        Ok(LabelPlanes {
            labels,
            values,
            planes,
            stored: Mapped::zeroed(memory, "a plane of labels", stored)?,
            decoded: Mapped::zeroed(memory, "a plane of labels", height * width)?,
            file,
        })
    }

    /// Calls `visit` with the values of `image` where the label map has foreground in plane `d`, in order, some at a time.
    pub(crate) fn for_foreground(
        &mut self,
        d: usize,
        image: &[f32],
        mut visit: impl FnMut(&[f32]),
    ) -> Result<(), VolumeError> {
        let [first, last] = self.planes;
        if !(first..=last).contains(&d) {
            return Ok(());
        }
        let [_, height, width] = self.file.geometry().shape();
        let plane = VoxelBox { start: [d, 0, 0], shape: [1, height, width] };
        self.file.read_region(0, plane, &mut self.stored)?;
        let (element_type, scaling) = (self.file.element_type(), self.file.scaling());
        if decode_labels(element_type, scaling, &self.stored, &mut self.decoded).is_err() {
            // Its scan has found this to be an error of the case, unless the file has changed since.
            return self.file.region_labels(0, plane, &mut self.decoded);
        }
        if let Some(values) = self.values {
            values.replace(self.file.path(), plane, &mut self.decoded)?;
        }
        let mut some = [0.0; TOGETHER];
        let mut count = 0;
        for (value, label) in image.iter().zip(&*self.decoded) {
            if *label == 0 || !self.labels.is_foreground(*label) {
                continue;
            }
            some[count] = *value;
            count += 1;
            if count == TOGETHER {
                visit(&some);
                count = 0;
            }
        }
        visit(&some[..count]);
        Ok(())
    }
}
