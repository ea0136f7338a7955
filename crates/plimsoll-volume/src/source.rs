//! An opened image: its layout, and the source of its voxels, which a format implements.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use plimsoll_memory::{Budget, Bytes};

use crate::layout::{Layout, bytes_of};
use crate::nifti::NiftiHeader;
use crate::{ByteOrder, ElementType, Geometry, IndexFolder, Scaling, Segments, VolumeError};

/// The voxels of an opened image, however they are stored.
///
/// Reading takes a fixed amount of memory, and what [`decode`](Self::decode) has reserved.
pub trait VoxelSource: Send {
    /// Reads consecutive voxels of a channel from voxel `first` on (in the order depth, height, width), as they are stored and in the
    /// byte order of the layout. The channel and the voxels are in the image.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or is damaged, or [`decode`](Self::decode) was needed and not
    /// called.
    fn read(&mut self, channel: usize, first: usize, bytes: &mut [u8]) -> Result<(), VolumeError>;

    /// Bytes that [`decode`](Self::decode) reserves while it runs.
    fn decoding_bytes(&self) -> Bytes {
        Bytes::ZERO
    }

    /// Decodes what is decoded as a whole, or makes room for decoding parts; once.
    ///
    /// # Errors
    /// Returns an error if the budget has no room, or the file is damaged.
    fn decode(&mut self, _budget: &Budget) -> Result<(), VolumeError> {
        Ok(())
    }

    /// Returns `true` if everything before a voxel in the file has to be decompressed to read it.
    fn is_compressed(&self) -> bool {
        false
    }

    /// Returns `true` if a region can be read now without what precedes it.
    fn is_random_access(&self) -> bool {
        !self.is_compressed()
    }

    /// Returns `true` for a picture, which has one plane and no place in the world.
    fn is_picture(&self) -> bool {
        false
    }

    /// Millimetres in the unit of length that the file states: 1 where it states none, or lengths come from elsewhere.
    fn millimetres_per_unit(&self) -> f64 {
        1.0
    }

    /// The shape of the boxes, side by side from the first voxel on, that are decoded as a whole; `None` where voxels, or planes, follow each
    /// other.
    fn chunks(&self) -> Option<[usize; 3]> {
        None
    }

    /// The unique identifier of the frame of reference that positions are in, if the file states one: positions in two frames of reference
    /// cannot be compared.
    fn frame_of_reference(&self) -> Option<&str> {
        None
    }

    /// Warnings for the user: an earlier loss, or something unusual.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns `true` if access points of it can be [found](Self::index_in).
    fn can_be_indexed(&self) -> bool {
        false
    }

    /// Takes the access points of deflated voxels from a folder, or finds them while they are read, and keeps them there.
    fn index_in(&mut self, _folder: &IndexFolder) {}

    /// Another reader of the same voxels, where regions take long to decompress and can be read in two parts at once.
    fn twin(&self) -> Option<Box<dyn VoxelSource>> {
        None
    }

    /// Reads a compressed file to its end if its access points are [being found](Self::index_in). Once `stop` is set, it is left without.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or is damaged.
    fn find_points(&mut self, _stop: &AtomicBool) -> Result<(), VolumeError> {
        Ok(())
    }

    /// Decompresses compressed voxels into a file without a name beside a path, from which they are read from then on. Once `stop` is set,
    /// it is left as it was.
    ///
    /// # Errors
    /// [`VolumeError::Decompress`] if the disk beside the path refuses it; else if the file cannot be read or is damaged.
    fn decompress_beside(&mut self, _beside: &Path, _stop: &AtomicBool) -> Result<(), VolumeError> {
        Ok(())
    }
}

/// An image whose header was read.
pub struct Opened {
    /// The file with the voxels, or the folder of such files.
    pub(crate) path: PathBuf,
    pub(crate) layout: Layout,
    /// The header of a file of NIfTI.
    pub(crate) header: Option<Box<NiftiHeader>>,
    pub(crate) source: Box<dyn VoxelSource>,
    /// The names of the values of a label map, if its file names them.
    pub(crate) segments: Option<Box<Segments>>,
}

impl Opened {
    /// An image of one channel whose source gives voxels of this type in this machine's byte order, which are real values as they are.
    ///
    /// # Errors
    /// Returns an error if it has more bytes than can be addressed.
    pub fn new(
        path: &Path,
        geometry: Geometry,
        element_type: ElementType,
        source: Box<dyn VoxelSource>,
    ) -> Result<Opened, VolumeError> {
        let too_large = || VolumeError::TooLarge { path: path.into(), shape: geometry.shape() };
        let bytes = bytes_of(&geometry.shape(), element_type).ok_or_else(too_large)?;
        let (byte_order, scaling) = (ByteOrder::NATIVE, Scaling::NONE);
        let layout = Layout { geometry, channels: 1, element_type, byte_order, scaling, start: 0, bytes };
        Ok(Opened { path: path.into(), layout, header: None, source, segments: None })
    }

    /// The same, with the names of its values.
    #[must_use]
    pub fn with_segments(self, segments: Segments) -> Opened {
        Opened { segments: Some(Box::new(segments)), ..self }
    }
}
