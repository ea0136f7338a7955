//! Names of labels in a header extension, where TotalSegmentator and Connectome Workbench look for them.

use std::fmt::Write;

/// The bytes before the data of an extension: its size and its code, of four bytes each.
const PREFIX: usize = 8;

/// Sizes of extensions are multiples of it.
const UNIT: usize = 16;

/// The code of an extension of no registered kind. Workbench's own code, 30, promises a whole CIFTI description; readers of label tables
/// take the first extension, whatever its code is.
const CODE: i32 = 0;

/// Names of labels in a label map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelTable {
    /// The value and the name of each label.
    pub labels: Vec<(u16, String)>,
}

impl LabelTable {
    /// Encodes the table as the bytes behind a header of NIfTI: four bytes that announce extensions, and one extension, little-endian.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let xml = self.xml();
        let size = (PREFIX + xml.len()).next_multiple_of(UNIT);
        let mut bytes = vec![1, 0, 0, 0];
        // Of a few hundred labels: no size that overflows.
        bytes.extend((size as i32).to_le_bytes());
        bytes.extend(CODE.to_le_bytes());
        bytes.extend(xml.as_bytes());
        bytes.resize(4 + size, 0);
        bytes
    }

    /// Reads the table of extensions of a header, if there is one: the first in them.
    pub(crate) fn decode(extensions: &[u8]) -> Option<LabelTable> {
        let text = String::from_utf8_lossy(extensions);
        let (_, table) = text.split_once("<LabelTable>")?;
        let (table, _) = table.split_once("</LabelTable>")?;
        let label = |text: &str| {
            let (tag, rest) = text.split_once('>')?;
            let (_, key) = tag.split_once("Key=\"")?;
            let (key, _) = key.split_once('"')?;
            let (name, _) = rest.split_once("</Label>")?;
            let name = match name.trim().strip_prefix("<![CDATA[") {
                Some(name) => name.strip_suffix("]]>").unwrap_or(name).replace("]]]]><![CDATA[>", "]]>"),
                None => unescaped(name.trim()),
            };
            Some((key.trim().parse().ok()?, name))
        };
        let labels: Vec<(u16, String)> = table.split("<Label ").skip(1).filter_map(label).collect();
        (!labels.is_empty()).then_some(LabelTable { labels })
    }

    /// The table as a `CaretExtension`, whose labels have colours that differ from their neighbours' in the list.
    fn xml(&self) -> String {
        let mut xml = String::from(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<CaretExtension>\n<VolumeInformation Index=\"0\">\n<LabelTable>\n",
        );
        for (place, (value, name)) in self.labels.iter().enumerate() {
            let [red, green, blue] = colour(place);
            let name = name.replace("]]>", "]]]]><![CDATA[>");
            // Writing to a string cannot fail.
            let _ = writeln!(
                xml,
                "<Label Key=\"{value}\" Red=\"{red:.3}\" Green=\"{green:.3}\" Blue=\"{blue:.3}\" Alpha=\"1\"><![CDATA[{name}]]></Label>"
            );
        }
        xml.push_str(
            "</LabelTable>\n<VolumeType><![CDATA[Label]]></VolumeType>\n</VolumeInformation>\n</CaretExtension>\n",
        );
        xml
    }
}

/// A text of XML without its escapes.
fn unescaped(text: &str) -> String {
    const ESCAPES: [(&str, &str); 5] =
        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")];
    ESCAPES.iter().fold(text.to_string(), |text, (escape, letter)| text.replace(escape, letter))
}

/// Saturation and brightness of labels that follow each other, found by search: the least difference of two colours is then largest. There are
/// six: hues come near to earlier ones after 8, 13, 21 and 34 places,
/// none of which is a multiple of it.
const TONES: [[f64; 2]; 6] =
    [[1.0, 1.0], [0.64, 0.67], [0.8, 0.91], [0.97, 0.98], [0.82, 0.53], [0.43, 0.81]];

/// A colour, red, green and blue from 0 to 1, for a label by its place in a list: hues that are a golden section of the circle apart are far
/// from those before and after.
pub fn colour(place: usize) -> [f64; 3] {
    let hue = place as f64 * 0.618_033_988_75;
    let [saturation, brightness] = TONES[place % TONES.len()];
    [0.0, 1.0 / 3.0, 2.0 / 3.0].map(|shift| {
        let around = (hue + shift).fract();
        let pure = (2.0 - (6.0 * around - 3.0).abs()).clamp(0.0, 1.0);
        brightness * (1.0 - saturation * (1.0 - pure))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_as_it_is_written_and_as_others_escape_it() {
        let labels = vec![(1, "aorta".to_string()), (300, "a ]]> b & <c>".to_string())];
        let table = LabelTable { labels };
        assert_eq!(LabelTable::decode(&table.encode()), Some(table));
        let other = b"<LabelTable><Label Key=\"4\" Red=\"1\">left &amp; right</Label></LabelTable>";
        assert_eq!(LabelTable::decode(other).unwrap().labels, [(4, "left & right".to_string())]);
        assert_eq!(LabelTable::decode(b"<LabelTable></LabelTable>"), None);
        assert_eq!(LabelTable::decode(b"<LabelTable><Label Key=\"4\">"), None);
    }

    #[test]
    fn colours_of_more_than_a_hundred_labels_can_be_told_apart() {
        let colours: Vec<[f64; 3]> = (0..120).map(colour).collect();
        let distance = |a: &[f64; 3], b: &[f64; 3]| -> f64 {
            a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
        };
        for (place, one) in colours.iter().enumerate() {
            assert!(one.iter().all(|part| (0.0..=1.0).contains(part)));
            // Those that are near in the list are often near in the body.
            for other in &colours[place + 1..(place + 13).min(colours.len())] {
                assert!(distance(one, other) > 0.25, "{place}: {one:?} and {other:?}");
            }
            assert!(colours[place + 1..].iter().all(|other| distance(one, other) > 0.07), "{place}");
        }
    }
}
