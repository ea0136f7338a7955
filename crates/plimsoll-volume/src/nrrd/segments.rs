//! The segments of a segmentation of 3D Slicer's, as key/value pairs of its header describe them.
//!
//! <https://slicer.readthedocs.io/en/latest/user_guide/modules/segmentations.html>: `SegmentN_Name`, `SegmentN_LabelValue` and
//! `SegmentN_Layer`. Files of versions before 4.11 have neither values nor layers: each segment is a layer of its own, of zeros and ones.

use std::collections::BTreeMap;

use crate::segments::{MOST_OVERLAPPING, MOST_SEGMENTS, NamedValue, SegmentCoding, Segments};

/// The longest name that is kept.
const LONGEST_NAME: usize = 1024;

/// A segment as the header describes it.
#[derive(Clone, Debug, Default)]
struct Described {
    name: Option<String>,
    id: Option<String>,
    value: Option<String>,
    layer: Option<String>,
}

/// The key/value pairs of segments.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    segments: BTreeMap<u32, Described>,
    /// Tells whether there are more than are read.
    too_many: bool,
}

/// The layer and the value of the voxels of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LayerValue {
    pub(super) layer: usize,
    pub(super) value: i64,
}

/// The segments of a file, and the code that the voxels of each are read as, by its place.
#[derive(Debug)]
pub(super) struct Coded {
    pub(super) segments: Segments,
    /// Ascending by place.
    pub(super) codes: Vec<(LayerValue, u8)>,
}

impl Pairs {
    /// Keeps a line `SegmentN_Key:=value` if it says which voxels a segment has, and what it is called.
    pub(super) fn note(&mut self, line: &str) {
        let Some((key, value)) = line.split_once(":=") else { return };
        let Some((number, key)) = key.trim().strip_prefix("Segment").and_then(|key| key.split_once('_'))
        else {
            return;
        };
        let Ok(number) = number.parse() else { return };
        if !matches!(key, "Name" | "ID" | "LabelValue" | "Layer") {
            return;
        }
        if self.segments.len() > MOST_SEGMENTS && !self.segments.contains_key(&number) {
            self.too_many = true;
            return;
        }
        let segment = self.segments.entry(number).or_default();
        let value = unescaped(value.trim()).chars().take(LONGEST_NAME).collect::<String>();
        match key {
            "Name" => segment.name = Some(value),
            "ID" => segment.id = Some(value),
            "LabelValue" => segment.value = Some(value),
            _ => segment.layer = Some(value),
        }
    }

    /// The segments of a file with this number of layers; none if the file describes none.
    ///
    /// # Errors
    /// Returns the reason if the segments contradict each other or the file, or are too many.
    pub(super) fn coded(self, layers: usize) -> Result<Option<Coded>, String> {
        if self.segments.is_empty() {
            return Ok(None);
        }
        let count = self.segments.len();
        if self.too_many || count > MOST_SEGMENTS {
            return Err(format!("it has more than {MOST_SEGMENTS} segments, the most that are supported"));
        }
        let has_values = self.segments.values().any(|segment| segment.value.is_some());
        let mut placed: Vec<(LayerValue, String)> = Vec::with_capacity(count);
        for (at, (number, segment)) in self.segments.into_iter().enumerate() {
            let name = segment.name.or(segment.id).filter(|name| !name.is_empty());
            let name = name.ok_or_else(|| format!("it has no `Segment{number}_Name`"))?;
            let place = match has_values {
                false => LayerValue { layer: at, value: 1 },
                true => place(number, segment.value.as_deref(), segment.layer.as_deref())?,
            };
            if place.layer >= layers {
                let layer = place.layer;
                return Err(format!(
                    "its segment {name:?} is in layer {layer}, but the file has {layers} layers"
                ));
            }
            if place.value == 0 {
                return Err(format!("its segment {name:?} has the value 0, which is the background's"));
            }
            let other = placed.iter().find(|(other, called)| *other == place && *called != name);
            if let Some((_, other)) = other {
                let value = place.value;
                return Err(format!("its segments {other:?} and {name:?} both have the value {value}"));
            }
            placed.push((place, name));
        }
        Ok(Some(Coded::new(placed, layers)))
    }
}

impl Coded {
    fn new(placed: Vec<(LayerValue, String)>, layers: usize) -> Coded {
        let fits = |(place, _): &(LayerValue, String)| u8::try_from(place.value).is_ok();
        let coding = match layers {
            1 if placed.iter().all(fits) => SegmentCoding::Values,
            1 => SegmentCoding::Numbers,
            _ if placed.len() <= MOST_OVERLAPPING => SegmentCoding::Sets,
            _ => SegmentCoding::Numbers,
        };
        let mut codes: Vec<(LayerValue, u8)> = Vec::with_capacity(placed.len());
        let mut named = Vec::with_capacity(placed.len());
        // As many as a byte can count, as was checked.
        for (at, (place, name)) in (0..u8::MAX).zip(placed) {
            let same = codes.iter().find(|(known, _)| *known == place).map(|(_, code)| *code);
            let value = same.unwrap_or(match coding {
                SegmentCoding::Values => place.value as u8,
                SegmentCoding::Numbers => at + 1,
                SegmentCoding::Sets => 1 << at,
            });
            if same.is_none() {
                codes.push((place, value));
                named.push(NamedValue { value, name });
            }
        }
        codes.sort_unstable();
        Coded { segments: Segments { named, coding }, codes }
    }
}

fn place(number: u32, value: Option<&str>, layer: Option<&str>) -> Result<LayerValue, String> {
    let value = value.ok_or_else(|| format!("it has no `Segment{number}_LabelValue`"))?;
    let wrong =
        |key: &str, found: &str| format!("`Segment{number}_{key}` is {found:?}, which is not a number");
    Ok(LayerValue {
        value: value.parse().map_err(|_| wrong("LabelValue", value))?,
        layer: match layer {
            Some(layer) => layer.parse().map_err(|_| wrong("Layer", layer))?,
            None => 0,
        },
    })
}

/// A value of a key/value pair without the escapes of the format.
fn unescaped(value: &str) -> String {
    let mut letters = value.chars();
    let mut plain = String::with_capacity(value.len());
    while let Some(letter) = letters.next() {
        match (letter, letter == '\\') {
            (letter, false) => plain.push(letter),
            (_, true) => match letters.next() {
                Some('n') => plain.push('\n'),
                Some(other) => plain.push(other),
                None => plain.push('\\'),
            },
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(lines: &str) -> Pairs {
        let mut pairs = Pairs::default();
        lines.lines().for_each(|line| pairs.note(line.trim()));
        pairs
    }

    #[test]
    fn one_layer_keeps_its_values_and_several_have_a_bit_for_each_segment() {
        let text = "Segment0_Name:=tumor\nSegment0_LabelValue:=2\nSegment0_Layer:=0\n\
                    Segment1_Name:=organ\\nof two lines\nSegment1_LabelValue:=1\nSegment1_Layer:=0";
        let one = pairs(text).coded(1).unwrap().unwrap();
        assert_eq!(one.segments.coding, SegmentCoding::Values);
        assert_eq!(one.segments.names_of(2), ["tumor"]);
        assert_eq!(one.segments.names_of(1), ["organ\nof two lines"]);
        let two = pairs(&text.replace("Segment1_Layer:=0", "Segment1_Layer:=1")).coded(2).unwrap().unwrap();
        assert_eq!(two.segments.coding, SegmentCoding::Sets);
        assert_eq!(two.segments.names_of(3), ["tumor", "organ\nof two lines"]);
        assert_eq!(two.segments.codes(), [1, 2, 3]);
        let codes = [(LayerValue { layer: 0, value: 2 }, 1), (LayerValue { layer: 1, value: 1 }, 2)];
        assert_eq!(two.codes, codes);
    }

    #[test]
    fn values_beyond_a_byte_are_numbered_and_old_files_have_a_layer_for_each_segment() {
        let large =
            pairs("Segment0_Name:=a\nSegment0_LabelValue:=1000\nSegment1_Name:=b\nSegment1_LabelValue:=7");
        let large = large.coded(1).unwrap().unwrap();
        assert_eq!(large.segments.coding, SegmentCoding::Numbers);
        assert_eq!((large.segments.names_of(1), large.segments.names_of(2)), (vec!["a"], vec!["b"]));
        let old = pairs("Segment0_ID:=a\nSegment1_ID:=b").coded(2).unwrap().unwrap();
        assert_eq!(
            old.codes,
            [(LayerValue { layer: 0, value: 1 }, 1), (LayerValue { layer: 1, value: 1 }, 2)]
        );
    }

    #[test]
    fn segments_that_contradict_each_other_are_refused_by_their_names() {
        let why = |text: &str, layers| pairs(text).coded(layers).unwrap_err();
        let two = "Segment0_Name:=a\nSegment0_LabelValue:=1\nSegment1_Name:=b\nSegment1_LabelValue:=1";
        assert_eq!(why(two, 1), "its segments \"a\" and \"b\" both have the value 1");
        let layer = "Segment0_Name:=a\nSegment0_LabelValue:=1\nSegment0_Layer:=3";
        assert_eq!(why(layer, 2), "its segment \"a\" is in layer 3, but the file has 2 layers");
        let zero = "Segment0_Name:=a\nSegment0_LabelValue:=0";
        assert_eq!(why(zero, 1), "its segment \"a\" has the value 0, which is the background's");
        let many: String = (0..300)
            .map(|at| format!("Segment{at}_Name:=s{at}\nSegment{at}_LabelValue:={}\n", at + 1))
            .collect();
        assert!(why(&many, 1).contains("more than 255 segments"));
        assert!(pairs("Segmentation_Source:=x").coded(1).unwrap().is_none());
    }
}
