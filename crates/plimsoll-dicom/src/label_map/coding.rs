//! The values that voxels of a segmentation are read as.

use plimsoll_volume::{NamedValue, SegmentCoding, Segments};

use super::description::{Kind, Segment};

/// The most segments that are read: values are bytes, and 0 is the background.
pub(super) const MOST_SEGMENTS: usize = 255;

/// The most segments that may overlap: a byte has a bit for each.
const MOST_OVERLAPPING: usize = 8;

/// The name of what is in no segment.
const BACKGROUND: &str = "background";

/// The segments of a file and the value of each.
pub(super) struct Coded {
    pub(super) segments: Segments,
    /// The value of each number of a segment, ascending by number.
    codes: Vec<(u16, u8)>,
}

impl Coded {
    /// Values of segments: their numbers if these are bytes and no two segments overlap; otherwise a bit each, or their place in the file.
    pub(super) fn new(segments: &[Segment], kind: Kind, may_overlap: bool) -> Coded {
        let background = background(segments, kind);
        let is_background = |segment: &&Segment| background.contains(&segment.number);
        let named: Vec<&Segment> = segments.iter().filter(|segment| !is_background(segment)).collect();
        let are_bytes = named.iter().all(|segment| (1..=u16::from(u8::MAX)).contains(&segment.number));
        let coding = match may_overlap && named.len() <= MOST_OVERLAPPING {
            true => SegmentCoding::Sets,
            false if are_bytes => SegmentCoding::Values,
            false => SegmentCoding::Numbers,
        };
        // As many as a byte can count, as was checked.
        let coded: Vec<(&Segment, u8)> = (0..u8::MAX)
            .zip(named)
            .map(|(at, segment)| {
                let code = match coding {
                    SegmentCoding::Values => segment.number as u8,
                    SegmentCoding::Numbers => at + 1,
                    SegmentCoding::Sets => 1 << at,
                };
                (segment, code)
            })
            .collect();
        let value =
            |(segment, value): &(&Segment, u8)| NamedValue { value: *value, name: segment.name.clone() };
        let segments = Segments { named: coded.iter().map(value).collect(), coding };
        let mut codes: Vec<(u16, u8)> = coded.iter().map(|(segment, code)| (segment.number, *code)).collect();
        codes.extend(background.into_iter().map(|number| (number, 0)));
        codes.sort_unstable();
        Coded { segments, codes }
    }

    /// The value of a segment by its number; `None` if the file has no such segment. Where values are numbers, one without a segment is
    /// its own value, which has no name.
    pub(super) fn code(&self, number: u16) -> Option<u8> {
        match self.codes.binary_search_by_key(&number, |(number, _)| *number) {
            Ok(at) => self.codes.get(at).map(|(_, code)| *code),
            Err(_) => match self.segments.coding {
                SegmentCoding::Values => u8::try_from(number).ok(),
                SegmentCoding::Numbers | SegmentCoding::Sets => None,
            },
        }
    }
}

/// The numbers of pixels that are in no segment.
fn background(segments: &[Segment], kind: Kind) -> Vec<u16> {
    let Kind::LabelMap { padding } = kind else { return vec![0] };
    let is_background = |segment: &&Segment| segment.name.eq_ignore_ascii_case(BACKGROUND);
    let mut found: Vec<u16> = segments.iter().filter(is_background).map(|segment| segment.number).collect();
    found.extend(padding);
    // Without a word about it, 0 is the background unless it is a segment.
    if padding.is_none() && !segments.iter().any(|segment| segment.number == 0) {
        found.push(0);
    }
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments(all: &[(u16, &str)]) -> Vec<Segment> {
        all.iter().map(|(number, name)| Segment { number: *number, name: (*name).into() }).collect()
    }

    #[test]
    fn numbers_are_values_unless_segments_overlap_or_are_no_bytes() {
        let two = segments(&[(1, "liver"), (2, "tumour")]);
        let apart = Coded::new(&two, Kind::Binary, false);
        assert_eq!(apart.segments.coding, SegmentCoding::Values);
        assert_eq!([0, 1, 2].map(|number| apart.code(number)), [Some(0), Some(1), Some(2)]);
        let sets = Coded::new(&two, Kind::Binary, true);
        assert_eq!(sets.segments.coding, SegmentCoding::Sets);
        assert_eq!(sets.segments.names_of(3), ["liver", "tumour"]);
        let wide = Coded::new(&segments(&[(300, "a"), (7, "b")]), Kind::LabelMap { padding: None }, false);
        assert_eq!(wide.segments.coding, SegmentCoding::Numbers);
        assert_eq!([300, 7, 0, 8].map(|number| wide.code(number)), [Some(1), Some(2), Some(0), None]);
    }

    #[test]
    fn the_background_of_a_label_map_is_its_padding_or_the_segment_of_that_name() {
        let named = segments(&[(0, "Background"), (5, "liver")]);
        let coded = Coded::new(&named, Kind::LabelMap { padding: Some(0) }, false);
        assert_eq!((coded.segments.coding, coded.segments.named.len()), (SegmentCoding::Values, 1));
        // 0 is a segment, and 9 is in none.
        let padded = Coded::new(&segments(&[(0, "liver")]), Kind::LabelMap { padding: Some(9) }, false);
        assert_eq!(padded.segments.names_of(1), ["liver"]);
        assert_eq!([0, 9].map(|number| padded.code(number)), [Some(1), Some(0)]);
    }
}
