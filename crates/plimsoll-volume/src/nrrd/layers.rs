//! Layers of a segmentation, read as one label map.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use plimsoll_memory::{Budget, Bytes};

use super::segments::{Coded, LayerValue};
use crate::layout::Layout;
use crate::raw::{Channels, Raw};
use crate::segments::{SegmentCoding, Segments};
use crate::source::VoxelSource;
use crate::{ElementType, IndexFolder, VolumeError};

/// Stored bytes that are read in one step.
const PIECE: usize = 64 << 10;

/// Voxels of several layers, or of values that are no bytes, whose codes are bytes.
pub(super) struct Layers {
    path: PathBuf,
    raw: Raw,
    /// The layout as it is stored.
    stored: Layout,
    order: Channels,
    segments: Segments,
    codes: Vec<(LayerValue, u8)>,
}

impl Layers {
    /// # Errors
    /// Returns an error if voxels are no whole numbers, a voxel of all layers exceeds the bytes of one step of reading,
    /// or consecutive layers are compressed, so that each voxel would be decompressed from the beginning.
    pub(super) fn new(
        path: &Path,
        raw: Raw,
        stored: Layout,
        order: Channels,
        coded: Coded,
    ) -> Result<Layers, String> {
        let Coded { segments, codes } = coded;
        let layers = stored.channels;
        if matches!(stored.element_type, ElementType::F32 | ElementType::F64) {
            return Err("its segments are stored as floating-point numbers".into());
        }
        if layers * stored.element_type.size() > PIECE {
            return Err(format!("it has {layers} layers, more than are supported"));
        }
        if layers > 1 && order == Channels::Apart && raw.is_compressed() {
            return Err("its layers are compressed one after the other, not voxel by voxel".into());
        }
        Ok(Layers { path: path.into(), raw, stored, order, segments, codes })
    }

    /// The value of a voxel in a layer.
    fn value(&self, bytes: &[u8]) -> i64 {
        let mut wide = [0; 8];
        let size = bytes.len();
        wide[..size].copy_from_slice(bytes);
        self.stored.byte_order.swap_to_native(size, &mut wide[..size]);
        if cfg!(target_endian = "big") {
            wide.copy_within(..size, 8 - size);
            wide[..8 - size].fill(0);
        }
        let value = u64::from_ne_bytes(wide);
        match self.stored.element_type {
            ElementType::I8 => i64::from(value as u8 as i8),
            ElementType::I16 => i64::from(value as u16 as i16),
            ElementType::I32 => i64::from(value as u32 as i32),
            // One beyond the largest signed number belongs to no segment, as a negative one.
            _ => value as i64,
        }
    }

    /// Adds a layer's voxel to a code.
    fn add(
        &self,
        code: &mut u8,
        LayerValue { layer, value }: LayerValue,
        at: usize,
    ) -> Result<(), VolumeError> {
        if value == 0 {
            return Ok(());
        }
        let place = LayerValue { layer, value };
        let found = self.codes.binary_search_by_key(&place, |(place, _)| *place);
        let Some((_, own)) = found.ok().and_then(|at| self.codes.get(at)) else {
            let path = self.path.clone();
            return Err(VolumeError::NoSegment { path, voxel: self.voxel(at), layer, value });
        };
        match (self.segments.coding, *code) {
            (SegmentCoding::Sets, before) => *code = before | own,
            (_, 0) => *code = *own,
            (_, other) => {
                let both = [other, *own].map(|code| self.segments.names_of(code).join(", "));
                // Two segments of one name are one.
                if both[0] != both[1] {
                    let path = self.path.clone();
                    return Err(VolumeError::Overlap { path, voxel: self.voxel(at), segments: both });
                }
            }
        }
        Ok(())
    }

    fn voxel(&self, at: usize) -> [usize; 3] {
        let [_, height, width] = self.stored.geometry.shape();
        [at / (height * width), at / width % height, at % width]
    }
}

impl VoxelSource for Layers {
    fn read(&mut self, _channel: usize, first: usize, bytes: &mut [u8]) -> Result<(), VolumeError> {
        let (layers, size) = (self.stored.channels, self.stored.element_type.size());
        let at_once = (PIECE / (layers * size)).max(1);
        let mut stored = vec![0; bytes.len().min(at_once) * layers * size];
        for (number, part) in bytes.chunks_mut(at_once).enumerate() {
            let first = first + number * at_once;
            let stored = &mut stored[..part.len() * layers * size];
            part.fill(0);
            // The bytes of a voxel of a layer: layers of a voxel, or voxels of a layer, are side by side.
            let step = match self.order {
                Channels::Together => {
                    self.raw.read_together(first, stored)?;
                    [layers, 1]
                }
                Channels::Apart => {
                    for (layer, of_layer) in stored.chunks_exact_mut(part.len() * size).enumerate() {
                        self.raw.read(layer, first, of_layer)?;
                    }
                    [1, part.len()]
                }
            };
            for (at, code) in part.iter_mut().enumerate() {
                for layer in 0..layers {
                    let from = (at * step[0] + layer * step[1]) * size;
                    let value = self.value(&stored[from..from + size]);
                    self.add(code, LayerValue { layer, value }, first + at)?;
                }
            }
        }
        Ok(())
    }

    fn decoding_bytes(&self) -> Bytes {
        self.raw.decoding_bytes()
    }

    fn decode(&mut self, budget: &Budget) -> Result<(), VolumeError> {
        self.raw.decode(budget)
    }

    fn is_compressed(&self) -> bool {
        self.raw.is_compressed()
    }

    fn is_random_access(&self) -> bool {
        self.raw.is_random_access()
    }

    fn can_be_indexed(&self) -> bool {
        self.raw.can_be_indexed()
    }

    fn index_in(&mut self, folder: &IndexFolder) {
        self.raw.index_in(folder);
    }

    fn find_points(&mut self, stop: &AtomicBool) -> Result<(), VolumeError> {
        self.raw.find_points(stop)
    }

    fn decompress_beside(&mut self, beside: &Path, stop: &AtomicBool) -> Result<(), VolumeError> {
        self.raw.decompress_beside(beside, stop)
    }
}
