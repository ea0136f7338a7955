//! The notices by which two ranks agree on the order of their messages.

use crate::communicator::Tag;
use crate::segment::Segment;

/// The bytes of a notice.
pub(super) const NOTICE_BYTES: usize = 16;

/// A notice to another rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    /// A segment of this length is ready to be sent.
    Offer { tag: Tag, bytes: usize },
    /// The first offered segment of a tag is the next one to be received.
    Accept { tag: Tag },
    /// No other notice follows.
    End,
}

impl Notice {
    pub(super) fn write(self) -> Segment {
        let (kind, tag, bytes) = match self {
            Notice::Offer { tag, bytes } => (1u64, tag.number(), bytes),
            Notice::Accept { tag } => (2, tag.number(), 0),
            Notice::End => (3, 0, 0),
        };
        let mut segment = Segment::zeroed(NOTICE_BYTES);
        let (first, second) = segment.bytes_mut().split_at_mut(NOTICE_BYTES / 2);
        first.copy_from_slice(&(kind << 32 | u64::from(tag)).to_le_bytes());
        second.copy_from_slice(&(bytes as u64).to_le_bytes());
        segment
    }

    /// Reads a notice; `None` if it is none.
    pub(super) fn read(segment: &Segment) -> Option<Notice> {
        let (first, rest) = segment.bytes().split_first_chunk()?;
        let first = u64::from_le_bytes(*first);
        let bytes = u64::from_le_bytes(*rest.first_chunk()?).try_into().ok()?;
        let tag = Tag::new(u16::try_from(first & 0xffff_ffff).ok()?)?;
        match first >> 32 {
            1 => Some(Notice::Offer { tag, bytes }),
            2 => Some(Notice::Accept { tag }),
            3 => Some(Notice::End),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_are_read_as_they_are_written_and_others_are_refused() {
        let tag = Tag::from_u8(7);
        for notice in [Notice::Offer { tag, bytes: 1 << 40 }, Notice::Accept { tag }, Notice::End] {
            assert_eq!(Notice::read(&notice.write()), Some(notice));
        }
        let mut none = Segment::zeroed(NOTICE_BYTES);
        assert_eq!(Notice::read(&none), None);
        none.bytes_mut().fill(0xff);
        assert_eq!(Notice::read(&none), None);
        assert_eq!(Notice::read(&Segment::zeroed(8)), None);
    }
}
