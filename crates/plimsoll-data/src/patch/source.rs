//! The source of a patch: the images of one case, each from the cache if possible.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{Content, Geometry, LabelValues, StoredVolume, VolumeError, VolumeFile, VoxelBox};

use crate::dataset::{Case, Channel};
use crate::mask::MaskRuns;
use crate::{Intensity, Normalisation, VolumeCache};

/// One image of a case.
pub(crate) enum Image {
    Memory(Arc<StoredVolume>),
    File(Box<VolumeFile>),
}

impl Image {
    fn open(
        path: &Path,
        content: Content,
        cache: &VolumeCache,
        room: &Budget,
        stop: &AtomicBool,
    ) -> Result<Image, VolumeError> {
        match cache.get_unless(path, content, room, stop)? {
            Some(volume) => Ok(Image::Memory(volume)),
            None => {
                let mut file = VolumeFile::open_as(path, content)?;
                file.decode(room)?;
                if let Some(folder) = cache.indexes() {
                    file.index_now(folder, stop)?;
                    if !file.is_random_access() {
                        cache.has_no_points(path);
                    }
                }
                if let Some(path) = cache.spills_beside() {
                    file.decompress_beside(path, stop)?;
                }
                Ok(Image::File(Box::new(file)))
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        match self {
            Image::Memory(volume) => volume.path(),
            Image::File(file) => file.path(),
        }
    }

    fn geometry(&self) -> Geometry {
        match self {
            Image::Memory(volume) => *volume.geometry(),
            Image::File(file) => *file.geometry(),
        }
    }

    fn shape(&self) -> [usize; 3] {
        self.geometry().shape()
    }

    /// Reads a region of a channel as real values.
    pub(crate) fn read_f32(
        &mut self,
        channel: usize,
        region: VoxelBox,
        voxels: &mut [f32],
    ) -> Result<(), VolumeError> {
        match self {
            Image::Memory(volume) => volume.region_f32(channel, region, voxels),
            Image::File(file) => file.region_f32(channel, region, voxels),
        }
    }

    /// Reads a region of a label map.
    fn read_labels(&mut self, region: VoxelBox, labels: &mut [u8]) -> Result<(), VolumeError> {
        match self {
            Image::Memory(volume) => volume.region_labels(0, region, labels),
            Image::File(file) => file.region_labels(0, region, labels),
        }
    }
}

/// A label map, and the classes of its values.
pub(crate) struct LabelMap {
    image: Image,
    values: Option<Arc<LabelValues>>,
}

impl LabelMap {
    pub(crate) fn path(&self) -> &Path {
        self.image.path()
    }

    /// Reads the classes of a region.
    pub(crate) fn read(&mut self, region: VoxelBox, labels: &mut [u8]) -> Result<(), VolumeError> {
        self.image.read_labels(region, labels)?;
        match &self.values {
            Some(values) => values.replace(self.image.path(), region, labels),
            None => Ok(()),
        }
    }
}

/// The mask of a case, and which channels are zero outside of it.
#[derive(Clone)]
pub(crate) struct CaseMask {
    pub(crate) runs: Arc<MaskRuns>,
    pub(crate) masked: Arc<[bool]>,
}

impl CaseMask {
    /// Marks the channels that are zero outside of the mask.
    pub(crate) fn masked(channels: &[Channel]) -> Arc<[bool]> {
        channels.iter().map(|channel| channel.normalisation == Normalisation::ZScoreInMask).collect()
    }

    /// Returns `true` if a channel is zero outside of the mask.
    pub(crate) fn has(&self, channel: usize) -> bool {
        self.masked.get(channel).copied().unwrap_or(false)
    }
}

/// One channel: its image, its index in that image, and its normalisation.
#[derive(Clone, Copy)]
pub(crate) struct SourceChannel {
    /// The index of the image in the case.
    image: usize,
    /// The channel within the image.
    pub(crate) index: usize,
    pub(crate) intensity: Intensity,
}

/// The open images of one case. Voxels are the same whether they come from the cache or from a file.
pub struct CaseSource {
    images: Vec<Image>,
    channels: Vec<SourceChannel>,
    label: Option<LabelMap>,
    mask: Option<CaseMask>,
    /// Held until the images are: those that are not in the cache are decoded in it.
    _room: Option<Budget>,
}

impl CaseSource {
    /// Opens the images of a case and, if `with_label`, its label map. `intensities` normalise its channels.
    ///
    /// # Errors
    /// If a file cannot be opened or read.
    pub fn open(
        case: &Case,
        intensities: &[Intensity],
        with_label: bool,
        cache: &VolumeCache,
    ) -> Result<CaseSource, VolumeError> {
        CaseSource::open_unless(case, intensities, with_label, cache, &AtomicBool::new(false))
    }

    /// Opens the images of a case as [`open`](Self::open) does. Once `stop` is set, images that are still to be
    /// read into the cache are left in their files, so that stopping does not wait for a whole image.
    ///
    /// # Errors
    /// If a file cannot be opened or read.
    pub fn open_unless(
        case: &Case,
        intensities: &[Intensity],
        with_label: bool,
        cache: &VolumeCache,
        stop: &AtomicBool,
    ) -> Result<CaseSource, VolumeError> {
        let room = match case.files().next() {
            Some(path) => Some(cache.decoding_room(path)?),
            None => None,
        };
        let none = Budget::new(Bytes::ZERO);
        let decoding = room.as_ref().unwrap_or(&none);
        let mut images: Vec<Image> = Vec::with_capacity(case.images.len());
        let mut channels = Vec::with_capacity(case.images.len());
        let mut paths: Vec<&Path> = Vec::with_capacity(case.images.len());
        for (file, intensity) in case.images.iter().zip(intensities) {
            let image = match paths.iter().position(|path| *path == file.path) {
                Some(image) => image,
                None => {
                    images.push(Image::open(&file.path, Content::Intensities, cache, decoding, stop)?);
                    paths.push(&file.path);
                    images.len() - 1
                }
            };
            channels.push(SourceChannel { image, index: file.index, intensity: *intensity });
        }
        let on = images.first().map(Image::geometry);
        let label = match case.label.as_deref().filter(|_| with_label) {
            Some(path) => Some(LabelMap {
                image: Image::open(path, Content::Segments { on }, cache, decoding, stop)?,
                values: case.reading.label_values.clone(),
            }),
            None => None,
        };
        Ok(CaseSource { images, channels, label, mask: None, _room: room })
    }

    /// The same, normalised by other intensities.
    pub(crate) fn normalised(mut self, intensities: &[Intensity]) -> CaseSource {
        let channels = self.channels.iter_mut().zip(intensities);
        channels.for_each(|(channel, intensity)| channel.intensity = *intensity);
        self
    }

    /// The same, with channels that are zero outside of a mask.
    pub(crate) fn inside(self, mask: CaseMask) -> CaseSource {
        CaseSource { mask: Some(mask), ..self }
    }

    /// The mask, if any channel is zero outside of one.
    pub(crate) fn mask(&self) -> Option<CaseMask> {
        self.mask.clone()
    }

    /// The number of channels.
    pub fn channels(&self) -> usize {
        self.channels.len()
    }

    /// Returns `true` if there is a label map.
    pub fn has_label(&self) -> bool {
        self.label.is_some()
    }

    /// The path and the shape of each image, the label map's last.
    pub(crate) fn shapes(&self) -> impl Iterator<Item = (&Path, [usize; 3])> {
        let label = self.label.iter().map(|label| &label.image);
        self.images.iter().chain(label).map(|image| (image.path(), image.shape()))
    }

    /// The label map, if it was opened.
    pub(crate) fn label_map(&mut self) -> Option<&mut LabelMap> {
        self.label.as_mut()
    }

    /// Channel `channel`, which is below [`channels`](Self::channels), and the image that it is in.
    pub(crate) fn channel(&mut self, channel: usize) -> (&mut Image, SourceChannel) {
        let found = self.channels[channel];
        (&mut self.images[found.image], found)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::Labels;
    use crate::dataset::{ChannelFile, Reading, SegmentNames};

    fn nrrd(path: &Path, side: usize, origin: usize, segments: &str, voxels: &[u8]) {
        let header = format!(
            "NRRD0004\ntype: uchar\ndimension: 3\nspace: LPS\nsizes: {side} {side} {side}\nspace directions: (1,0,0) (0,1,0) (0,0,1)\n\
             encoding: raw\nspace origin: ({origin},{origin},{origin})\n{segments}\n"
        );
        fs::write(path, [header.as_bytes(), voxels].concat()).unwrap();
    }

    #[test]
    fn patches_of_a_cropped_segmentation_have_the_classes_of_its_names_in_memory_and_from_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let (image, label) = (dir.path().join("a.nrrd"), dir.path().join("a.seg.nrrd"));
        nrrd(&image, 4, 0, "", &[7; 64]);
        let segments =
            "Segment0_Name:=tumour\nSegment0_LabelValue:=1\nSegment1_Name:=organ\nSegment1_LabelValue:=9\n";
        nrrd(&label, 2, 1, segments, &[1, 9, 0, 0, 0, 0, 9, 9]);
        let known = [("background".to_string(), 0), ("organ".to_string(), 1), ("tumour".to_string(), 2)];
        let labels = Labels::from_values(Path::new("dataset.json"), &known.into()).unwrap();
        let segments = SegmentNames::default().read(&label).unwrap();
        let values = labels.reference_values(segments.as_deref()).map(Arc::new);
        let case = Case {
            id: "a".into(),
            images: vec![ChannelFile { path: image, index: 0 }],
            label: Some(label),
            reading: Reading { label_values: values, segments, unit: None },
        };
        let mut expected = [0; 64];
        for (at, class) in [(21, 2), (22, 1), (41, 1), (42, 1)] {
            expected[at] = class;
        }
        for room in [Bytes::mib(1), Bytes::ZERO] {
            let cache = VolumeCache::new(Budget::new(room));
            assert_eq!(cache.fill(&case, &AtomicBool::new(false)).unwrap(), room > Bytes::ZERO);
            let mut source = CaseSource::open(&case, &[Intensity::UNCHANGED], true, &cache).unwrap();
            let mut found = [9; 64];
            source.label_map().unwrap().read(VoxelBox::whole([4; 3]), &mut found).unwrap();
            assert_eq!(found, expected);
            assert!(source.shapes().all(|(_, shape)| shape == [4; 3]));
        }
    }
}
