//! Where a patch is pulled from: the files of one case, each from memory if the cache has it.

use std::path::Path;
use std::sync::Arc;

use plimsoll_volume::{StoredVolume, VolumeError, VolumeFile, VoxelBox};

use crate::dataset::Case;
use crate::{Intensity, VolumeCache};

/// One image of a case.
enum Image {
    Memory(Arc<StoredVolume>),
    File(Box<VolumeFile>),
}

impl Image {
    fn open(path: &Path, cache: &VolumeCache) -> Result<Image, VolumeError> {
        match cache.get(path)? {
            Some(volume) => Ok(Image::Memory(volume)),
            None => Ok(Image::File(Box::new(VolumeFile::open(path)?))),
        }
    }

    fn path(&self) -> &Path {
        match self {
            Image::Memory(volume) => volume.path(),
            Image::File(file) => file.path(),
        }
    }

    fn shape(&self) -> [usize; 3] {
        match self {
            Image::Memory(volume) => volume.geometry().shape(),
            Image::File(file) => file.geometry().shape(),
        }
    }
}

/// One channel: which image, which channel of it, and how it is normalised.
struct SourceChannel {
    image: usize,
    index: usize,
    intensity: Intensity,
}

/// The images of one case, open. They are the same voxels whether they come from memory or from a file.
pub struct CaseSource {
    images: Vec<Image>,
    channels: Vec<SourceChannel>,
    label: Option<usize>,
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
        let mut images: Vec<Image> = Vec::with_capacity(case.images.len() + 1);
        let mut channels = Vec::with_capacity(case.images.len());
        let mut paths: Vec<&Path> = Vec::with_capacity(case.images.len());
        for (file, intensity) in case.images.iter().zip(intensities) {
            let image = match paths.iter().position(|path| *path == file.path) {
                Some(image) => image,
                None => {
                    images.push(Image::open(&file.path, cache)?);
                    paths.push(&file.path);
                    images.len() - 1
                }
            };
            channels.push(SourceChannel { image, index: file.index, intensity: *intensity });
        }
        let mut label = None;
        if let Some(path) = case.label.as_deref().filter(|_| with_label) {
            label = Some(images.len());
            images.push(Image::open(path, cache)?);
        }
        Ok(CaseSource { images, channels, label })
    }

    /// How many channels there are.
    pub fn channels(&self) -> usize {
        self.channels.len()
    }

    /// Whether there is a label map.
    pub fn has_label(&self) -> bool {
        self.label.is_some()
    }

    /// The path and the shape of each image.
    pub(crate) fn shapes(&self) -> impl Iterator<Item = (&Path, [usize; 3])> {
        self.images.iter().map(|image| (image.path(), image.shape()))
    }

    /// The file of the label map, or of the channel.
    pub(crate) fn path(&self, channel: Option<usize>) -> &Path {
        let image = match channel {
            Some(channel) => self.channels.get(channel).map(|channel| channel.image),
            None => self.label,
        };
        image.and_then(|image| self.images.get(image)).map_or(Path::new(""), Image::path)
    }

    /// Reads a region of a channel, normalised.
    pub(crate) fn read_channel(
        &mut self,
        channel: usize,
        region: VoxelBox,
        voxels: &mut [f32],
    ) -> Result<(), VolumeError> {
        let SourceChannel { image, index, intensity } = &self.channels[channel];
        match &mut self.images[*image] {
            Image::Memory(volume) => volume.region_f32(*index, region, voxels)?,
            Image::File(file) => file.region_f32(*index, region, voxels)?,
        }
        intensity.apply(voxels);
        Ok(())
    }

    /// Reads a region of the label map, if there is one.
    pub(crate) fn read_labels(&mut self, region: VoxelBox, labels: &mut [u8]) -> Result<(), VolumeError> {
        match self.label.and_then(|label| self.images.get_mut(label)) {
            Some(Image::Memory(volume)) => volume.region_labels(0, region, labels),
            Some(Image::File(file)) => file.region_labels(0, region, labels),
            None => Ok(()),
        }
    }
}
