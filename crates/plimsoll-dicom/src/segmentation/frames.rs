//! The frames of a segmentation, in the order in which labels are read, and the functional groups that say where each is (PS3.3 C.7.6.16).

use dicom_core::VR;
use dicom_dictionary_std::tags;
use dicom_object::{InMemDicomObject, Tag};
use plimsoll_memory::{Budget, Mapped};

use super::SegmentationType;
use super::elements::{Code, decimals, long, object, sequence, text, whole};
use super::references::References;
use crate::DicomError;

/// The sequence of attributes that all frames share, and the sequence of attributes of each frame.
pub(super) const SHARED: Tag = tags::SHARED_FUNCTIONAL_GROUPS_SEQUENCE;
pub(super) const PER_FRAME: Tag = tags::PER_FRAME_FUNCTIONAL_GROUPS_SEQUENCE;

/// The codes for the derivation of frames from slices and for the purpose of slices (PS3.16, CID 7203 and 7202).
const DERIVATION: Code = Code::dcm("113076", "Segmentation");
const PURPOSE: Code = Code::dcm("121322", "Source image for image processing operation");

const WORD: usize = u64::BITS as usize;

/// A frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// The place of its slice.
    pub(super) slice: usize,
    /// The number of the segment that it is the mask of; of label maps 0, for all.
    pub(super) segment: u16,
}

/// The frames of a file.
pub(super) struct Frames {
    slices: usize,
    masks: Option<Masks>,
}

/// The masks that have a pixel: bits, by slice and number of segment.
struct Masks {
    bits: Mapped<u64>,
    /// Words of a slice.
    words: usize,
}

impl Frames {
    /// The frames for this number of slices and segments, without masks yet.
    ///
    /// # Errors
    /// Returns an error if the budget has no room.
    pub(super) fn new(
        kind: SegmentationType,
        slices: usize,
        segments: usize,
        budget: &Budget,
    ) -> Result<Frames, DicomError> {
        // Numbers begin with 1, and 0 is the background.
        let words = (segments + 1).div_ceil(WORD);
        let masks = match kind {
            SegmentationType::LabelMap => None,
            SegmentationType::Binary => {
                Some(Masks { bits: Mapped::zeroed(budget, "masks of segments", slices * words)?, words })
            }
        };
        Ok(Frames { slices, masks })
    }

    /// Takes a plane of numbers of segments.
    pub(super) fn see(&mut self, slice: usize, plane: &[u16]) {
        let Some(Masks { bits, words }) = &mut self.masks else { return };
        let Some(of_slice) = bits.chunks_mut(*words).nth(slice) else { return };
        for run in plane.chunk_by(|one, next| one == next) {
            let Some(number) = run.first().copied().filter(|number| *number > 0) else { continue };
            if let Some(word) = of_slice.get_mut(usize::from(number) / WORD) {
                *word |= 1 << (usize::from(number) % WORD);
            }
        }
    }

    /// All frames in order. Where no mask has a pixel there is one without, since a file without frames is none.
    pub(super) fn all(&self) -> Box<dyn Iterator<Item = Frame> + '_> {
        let Some(Masks { bits, words }) = &self.masks else {
            return Box::new((0..self.slices).map(|slice| Frame { slice, segment: 0 }));
        };
        if bits.iter().all(|word| *word == 0) {
            return Box::new(std::iter::once(Frame { slice: 0, segment: 1 }));
        }
        Box::new(bits.chunks(*words).enumerate().flat_map(move |(slice, of_slice)| {
            let has = move |number: &u16| {
                let word = of_slice.get(usize::from(*number) / WORD);
                word.is_some_and(|word| word >> (usize::from(*number) % WORD) & 1 == 1)
            };
            let numbers = 1..=u16::try_from(of_slice.len() * WORD - 1).unwrap_or(u16::MAX);
            numbers.filter(has).map(move |segment| Frame { slice, segment })
        }))
    }

    /// The number of frames.
    pub(super) fn count(&self) -> usize {
        match &self.masks {
            None => self.slices,
            Some(Masks { bits, .. }) => {
                bits.iter().map(|word| word.count_ones() as usize).sum::<usize>().max(1)
            }
        }
    }
}

/// The functional groups that all frames share: the sizes of pixels, and the directions of rows and columns, as slices have them. Slices are so
/// many millimetres apart.
pub(super) fn shared(references: &References, apart: f64) -> InMemDicomObject {
    let measures = object([
        decimals(tags::PIXEL_SPACING, &references.spacing),
        decimals(tags::SLICE_THICKNESS, &[references.thickness.unwrap_or(apart)]),
        decimals(tags::SPACING_BETWEEN_SLICES, &[apart]),
    ]);
    let orientation =
        object([decimals(tags::IMAGE_ORIENTATION_PATIENT, references.directions.as_flattened())]);
    object([
        sequence(tags::PIXEL_MEASURES_SEQUENCE, vec![measures]),
        sequence(tags::PLANE_ORIENTATION_SEQUENCE, vec![orientation]),
    ])
}

/// The functional groups of a frame: its place in the dimensions, the position of its slice, the slice that it is of, and its segment.
pub(super) fn frame_groups(
    references: &References,
    kind: SegmentationType,
    Frame { slice, segment }: Frame,
) -> Result<InMemDicomObject, DicomError> {
    // Slices are counted from 1 on.
    let (Some(source), Ok(place)) = (references.slices.get(slice), u32::try_from(slice + 1)) else {
        return Err(DicomError::Unencodable {
            why: format!("a frame belongs to slice {slice}, which does not exist"),
        });
    };
    let indices = match kind {
        SegmentationType::LabelMap => vec![place],
        SegmentationType::Binary => vec![u32::from(segment), place],
    };
    let content = object([long(tags::DIMENSION_INDEX_VALUES, &indices)]);
    let position = object([decimals(tags::IMAGE_POSITION_PATIENT, &source.position)]);
    let number = source.frame.map(|frame| text(tags::REFERENCED_FRAME_NUMBER, VR::IS, &frame.to_string()));
    let image = [
        text(tags::REFERENCED_SOP_CLASS_UID, VR::UI, &source.class),
        text(tags::REFERENCED_SOP_INSTANCE_UID, VR::UI, &source.instance),
        sequence(tags::PURPOSE_OF_REFERENCE_CODE_SEQUENCE, vec![PURPOSE.item()]),
        text(tags::SPATIAL_LOCATIONS_PRESERVED, VR::CS, "YES"),
    ];
    let image = object(image.into_iter().chain(number));
    let derivation = object([
        sequence(tags::SOURCE_IMAGE_SEQUENCE, vec![image]),
        sequence(tags::DERIVATION_CODE_SEQUENCE, vec![DERIVATION.item()]),
    ]);
    let mut groups = object([
        sequence(tags::FRAME_CONTENT_SEQUENCE, vec![content]),
        sequence(tags::PLANE_POSITION_SEQUENCE, vec![position]),
        sequence(tags::DERIVATION_IMAGE_SEQUENCE, vec![derivation]),
    ]);
    if kind == SegmentationType::Binary {
        let identification = object([whole(tags::REFERENCED_SEGMENT_NUMBER, &[segment])]);
        groups.put(sequence(tags::SEGMENT_IDENTIFICATION_SEQUENCE, vec![identification]));
    }
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_memory::Bytes;

    #[test]
    fn masks_that_have_a_pixel_are_frames_in_the_order_of_slices() {
        let budget = Budget::new(Bytes::mib(1));
        // More segments than a word has bits.
        let mut frames = Frames::new(SegmentationType::Binary, 3, 130, &budget).unwrap();
        assert_eq!(frames.all().collect::<Vec<_>>(), [Frame { slice: 0, segment: 1 }]);
        assert_eq!(frames.count(), 1);
        frames.see(0, &[0, 130, 130, 2]);
        frames.see(2, &[64, 0, 63, 64]);
        let expected = [(0, 2), (0, 130), (2, 63), (2, 64)].map(|(slice, segment)| Frame { slice, segment });
        assert_eq!(frames.all().collect::<Vec<_>>(), expected);
        assert_eq!(frames.count(), 4);
        let maps = Frames::new(SegmentationType::LabelMap, 3, 130, &budget).unwrap();
        assert_eq!(maps.all().map(|frame| frame.slice).collect::<Vec<_>>(), [0, 1, 2]);
    }
}
