//! The headers of a case's files, from which much is known before any voxel is read.

use std::path::Path;

use plimsoll_data::Case;
use plimsoll_memory::Bytes;
use plimsoll_volume::{Geometry, HeaderError, Spacing, VolumeError, VolumeFile};

use crate::error::InferError;

/// The headers of a case's images. Files that contradict their headers are detected when they are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Headers {
    /// The grid of the first image as stored, in the unit that is set.
    pub(crate) geometry: Geometry,
    /// Its spacing (depth, height, width) as its file states it, in that unit.
    pub(crate) stated: Spacing,
    /// The bytes of all images, decoded, and of an earlier network's labels, each in whole pages.
    pub(crate) decoded: Bytes,
    /// The part of these bytes that is compressed in its files, so that regions of it cannot be read alone.
    pub(crate) compressed: Bytes,
    /// The bytes that decoding pictures needs in addition.
    pub(crate) decoding: Bytes,
}

impl Headers {
    /// Reads them; none if the case has no image. The labels of an earlier network, which are held decoded as well, are counted with the
    /// images; in a plan they may still be to be written.
    ///
    /// # Errors
    /// Returns an error if a file cannot be opened, or does not hold the channels that are read from it.
    pub(crate) fn read(case: &Case, earlier: Option<&Path>) -> Result<Option<Headers>, InferError> {
        let mut found: Option<Headers> = None;
        for path in case.image_files() {
            let file = VolumeFile::open(path)?;
            case.expect_channels_of(&file).map_err(|fault| InferError::Files(Box::new(fault)))?;
            match &mut found {
                Some(headers) => headers.add(&file),
                None => found.insert(Headers::read_first(case, &file)?).add(&file),
            }
        }
        if let (Some(path), Some(headers)) = (earlier, &mut found) {
            let there = plimsoll_disk::exists(path);
            let refused = |source| VolumeError::Io { path: path.into(), action: "open", source };
            match there.map_err(refused)? {
                true => headers.add(&VolumeFile::open_labels(path)?),
                false => headers.add_unwritten(path),
            }
        }
        Ok(found)
    }

    /// The grid of the first image in the unit that is set, and nothing counted.
    fn read_first(case: &Case, file: &VolumeFile) -> Result<Headers, VolumeError> {
        let scale = case.reading.scale(file);
        let scaled = file.geometry().scaled(scale).map_err(|problem| VolumeError::Header {
            path: file.path().into(),
            problem: HeaderError::Geometry { problem, source_field: "unit that is set" },
        });
        Ok(Headers {
            geometry: if scale == 1.0 { *file.geometry() } else { scaled? },
            stated: Spacing(file.stated_spacing().0.map(|length| length * scale)),
            decoded: Bytes::ZERO,
            compressed: Bytes::ZERO,
            decoding: Bytes::ZERO,
        })
    }

    fn add(&mut self, file: &VolumeFile) {
        let decoded = in_pages(file.stored_bytes());
        self.decoded += decoded;
        if file.is_compressed() {
            self.compressed += decoded;
        }
        self.decoding += file.decoding_bytes();
    }

    /// Labels that an earlier network will have written by then: on the grid of the images, of 8 bits, as no others are read.
    fn add_unwritten(&mut self, path: &Path) {
        let decoded = in_pages(self.geometry.voxel_count() as u64);
        self.decoded += decoded;
        if path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gz")) {
            self.compressed += decoded;
        }
    }
}

/// Returns the most memory of these bytes in whole pages.
fn in_pages(bytes: u64) -> Bytes {
    const PAGE: u64 = 4096;
    Bytes(bytes.saturating_add(PAGE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_data::{ChannelFile, Reading};
    use plimsoll_volume::{Affine, ElementType, VolumeWriter};

    #[test]
    fn earlier_labels_are_counted_whether_they_are_there_or_will_be() {
        let folder = tempfile::tempdir().unwrap();
        let geometry = Geometry::new([3, 4, 5], Affine::from_spacing(Spacing([1.0; 3]))).unwrap();
        let write = |name: &str, element: ElementType| {
            let path = folder.path().join(name);
            let mut writer = VolumeWriter::create(&path, &geometry, 1, element, None).unwrap();
            writer.write_planes(&vec![0; 60 * element.size()]).unwrap();
            writer.finish().unwrap();
            path
        };
        let images = vec![ChannelFile { path: write("a_0000.nii", ElementType::I16), index: 0 }];
        let case = Case { id: "a".into(), images, label: None, reading: Reading::default() };
        let read = |earlier: Option<&Path>| Headers::read(&case, earlier).unwrap().unwrap();
        let alone = read(None);
        assert_eq!((alone.decoded, alone.compressed), (in_pages(120), Bytes::ZERO));
        for (name, compressed) in [("a.nii.gz", in_pages(60)), ("a.nii", Bytes::ZERO)] {
            let path = folder.path().join(name);
            let planned = read(Some(&path));
            write(name, ElementType::U8);
            for headers in [planned, read(Some(&path))] {
                assert_eq!((headers.decoded, headers.compressed), (in_pages(120) + in_pages(60), compressed));
            }
            std::fs::write(&path, "damaged").unwrap();
            assert!(Headers::read(&case, Some(&path)).is_err());
        }
    }
}
