//! Helpers that tests of segmentations share: the series of the oracle, labels of them, and elements of a file.

use std::path::{Path, PathBuf};

use dicom_object::{DefaultDicomObject, InMemDicomObject, OpenFileOptions, Tag};
use plimsoll_dicom::{SegmentationRequest, SegmentationType, Series};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{Affine, ElementType, Geometry, LabelTable, VolumeWriter};

/// The shape of the oracle's series. A plane has 108 pixels, so that masks begin within bytes.
pub const SHAPE: [usize; 3] = [6, 9, 12];

pub fn oracle(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/dicom").join(name)
}

pub fn budget() -> Budget {
    Budget::new(Bytes::mib(64))
}

pub fn series(name: &str) -> Series {
    Series::find(&oracle(name), &budget()).unwrap()
}

pub fn names(names: &[(u16, &str)]) -> LabelTable {
    LabelTable { labels: names.iter().map(|(value, name)| (*value, (*name).to_string())).collect() }
}

/// Labels that others than background have, too: 9 has no name, and 117 is in two slices only.
pub fn organs() -> LabelTable {
    names(&[
        (1, "spleen"),
        (5, "liver"),
        (92, "rib_left_1"),
        (117, "costal_cartilages"),
        (200, "nothing_known"),
    ])
}

/// A label for each voxel, in the order (depth, height, width).
pub fn labels() -> Vec<u16> {
    let [depth, height, width] = SHAPE;
    let places = (0..depth).flat_map(|d| (0..height).flat_map(move |h| (0..width).map(move |w| (d, h, w))));
    let label = |(d, h, w): (usize, usize, usize)| match (d, h, w) {
        (2, ..) => 0,
        (d, h, _) if d > 3 && h == 0 => 117,
        (_, 2..5, 3..9) => 5,
        (_, 7, w) if w % 2 == 0 => 1,
        (_, 8, 11) => 92,
        (_, 5, 5) => 9,
        _ => 0,
    };
    places.map(label).collect()
}

/// A label map of NIfTI.
pub fn write_labels(path: &Path, shape: [usize; 3], labels: &[u16], element: ElementType) {
    let one = [[0.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]];
    let geometry = Geometry::new(shape, Affine(one)).unwrap();
    let mut writer = VolumeWriter::create(path, &geometry, 1, element, None).unwrap();
    let bytes: Vec<u8> = match element {
        ElementType::U8 => labels.iter().map(|label| u8::try_from(*label).unwrap()).collect(),
        _ => labels.iter().flat_map(|label| label.to_ne_bytes()).collect(),
    };
    writer.write_planes(&bytes).unwrap();
    writer.finish().unwrap();
}

#[allow(dead_code, reason = "outlines are asked for otherwise")]
pub fn request(kind: SegmentationType, names: &LabelTable) -> SegmentationRequest<'_> {
    SegmentationRequest { kind, names, description: "total", algorithm: "TotalSegmentator total" }
}

pub fn open(path: &Path) -> DefaultDicomObject {
    OpenFileOptions::new().open_file(path).unwrap()
}

pub fn text(object: &InMemDicomObject, tag: Tag) -> String {
    object.get(tag).unwrap().to_str().unwrap().trim_end_matches(['\0', ' ']).to_string()
}

pub fn number(object: &InMemDicomObject, tag: Tag) -> usize {
    object.get(tag).unwrap().to_int().unwrap()
}

pub fn items(object: &InMemDicomObject, tag: Tag) -> &[InMemDicomObject] {
    object.get(tag).unwrap().items().unwrap()
}

/// The only item of a sequence.
pub fn item(object: &InMemDicomObject, tag: Tag) -> &InMemDicomObject {
    let [one] = items(object, tag) else { panic!("{tag} has not one item") };
    one
}
