//! The assignment of pieces of compressed pixels to frames (DICOM PS3.5, A.4).

use crate::DicomError;
use crate::reader::Reader;
use crate::reserved_list::ReservedList;

/// A fragment of compressed pixels, or the fragments of a frame: from the header of the first to the end of the last, in bytes of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fragment {
    pub(crate) at: u64,
    pub(crate) end: u64,
}

/// Bytes of a piece's header: its tag, and its length.
const HEADER: u64 = 8;

/// All pieces of a file, and where its frames begin among them.
#[derive(Debug)]
pub(crate) struct Fragments {
    pub(crate) fragments: ReservedList<Fragment>,
    /// The offset of the first piece of each frame behind `start`; empty if the file does not state it.
    pub(crate) offsets: ReservedList<u64>,
    /// The offset of the first piece in the file.
    pub(crate) start: u64,
}

impl Fragments {
    /// Finds the bytes of a frame among `frames` frames.
    ///
    /// # Errors
    /// Why that is not known.
    pub(crate) fn frame(&self, frame: u32, frames: u32) -> Result<Fragment, String> {
        let (fragments, frame, count) = (&self.fragments, frame as usize, frames as usize);
        let (Some(first), Some(last)) = (fragments.first(), fragments.last()) else {
            return Err("it has no pixels".into());
        };
        if count == 1 {
            return Ok(Fragment { at: first.at, end: last.end });
        }
        if fragments.len() == count {
            return fragments.get(frame).copied().ok_or_else(|| "it has no frame at this position".into());
        }
        if self.offsets.len() != count {
            let (found, told) = (fragments.len(), self.offsets.len());
            return Err(format!(
                "its {count} frames are in {found} fragments, but its table of offsets lists {told} frames"
            ));
        }
        let begin = |frame: usize| self.offsets.get(frame).map(|offset| self.start.saturating_add(*offset));
        let at = begin(frame).ok_or("it has no frame at this position")?;
        let end = begin(frame + 1).unwrap_or(last.end);
        let is_piece = |place: u64| {
            place == last.end || fragments.binary_search_by_key(&place, |fragment| fragment.at).is_ok()
        };
        match at < end && is_piece(at) && is_piece(end) {
            true => Ok(Fragment { at, end }),
            false => Err(format!("its table of offsets puts frame {} where no fragment begins", frame + 1)),
        }
    }
}

impl Fragment {
    /// The most bytes that it has of pixels.
    pub(crate) fn most_bytes(self) -> u64 {
        (self.end - self.at).saturating_sub(HEADER)
    }

    /// Puts the pieces of a frame together, without their headers. Returns how many bytes they have.
    ///
    /// # Errors
    /// Returns an error if the file has changed.
    pub(crate) fn read(self, reader: &mut Reader<'_>, to: &mut [u8]) -> Result<usize, DicomError> {
        reader.skip_to(self.at)?;
        let mut filled = 0usize;
        while reader.at() < self.end {
            let Some([.., l0, l1, l2, l3]) = reader.bytes::<{ HEADER as usize }>()? else {
                return Err(reader.wrong("its pixels are cut off"));
            };
            let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
            let end = filled.saturating_add(length);
            let Some(piece) = to.get_mut(filled..end) else {
                return Err(reader.wrong("a fragment of its pixels has changed its length"));
            };
            reader.fill(piece)?;
            filled = end;
        }
        Ok(filled)
    }
}
