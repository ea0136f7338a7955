//! Segmentations of 3D Slicer's: names, layers, and files that are cropped.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use plimsoll_volume::{Content, Geometry, SegmentCoding, VolumeError, VolumeFile, VoxelBox};

/// A segmentation of width × height × depth voxels of 1 mm, raw, with all layers of a voxel side by side.
struct Segmentation<'a> {
    sizes: [usize; 3],
    origin: [f64; 3],
    layers: usize,
    kind: &'a str,
    /// Name, value and layer of each segment.
    segments: &'a [(&'a str, i64, usize)],
}

impl Segmentation<'_> {
    fn write(&self, folder: &Path, name: &str, voxels: &[u8]) -> PathBuf {
        let [w, h, d] = self.sizes;
        let [x, y, z] = self.origin;
        let (dimension, sizes, none, list) = match self.layers {
            1 => (3, String::new(), "", ""),
            layers => (4, format!("{layers} "), "none ", "list "),
        };
        let mut text = format!(
            "NRRD0004\ntype: {}\ndimension: {dimension}\nspace: left-posterior-superior\nsizes: {sizes}{w} {h} {d}\n\
             space directions: {none}(1,0,0) (0,1,0) (0,0,1)\nkinds: {list}domain domain domain\nendian: little\nencoding: raw\n\
             space origin: ({x},{y},{z})\n",
            self.kind
        );
        for (at, (name, value, layer)) in self.segments.iter().enumerate() {
            let _ = write!(
                text,
                "Segment{at}_ID:=Segment_{at}\nSegment{at}_LabelValue:={value}\nSegment{at}_Layer:={layer}\nSegment{at}_Name:={name}\n"
            );
        }
        text.push('\n');
        let path = folder.join(name);
        std::fs::write(&path, [text.as_bytes(), voxels].concat()).unwrap();
        path
    }
}

fn open(path: &Path, on: Option<Geometry>) -> Result<VolumeFile, VolumeError> {
    VolumeFile::open_as(path, Content::Segments { on })
}

fn labels(file: &mut VolumeFile) -> Result<Vec<u8>, VolumeError> {
    let whole = VoxelBox::whole(file.geometry().shape());
    let mut labels = vec![9; whole.voxel_count().unwrap()];
    file.region_labels(0, whole, &mut labels)?;
    Ok(labels)
}

const ONE: Segmentation<'_> = Segmentation {
    sizes: [3, 2, 2],
    origin: [0.0; 3],
    layers: 1,
    kind: "uchar",
    segments: &[("a", 1, 0), ("b", 2, 0)],
};

#[test]
fn a_cropped_segmentation_lies_where_its_origin_is_on_the_grid_of_the_image() {
    let dir = tempfile::tempdir().unwrap();
    let whole = Segmentation { sizes: [6, 5, 4], origin: [-10.0, 20.0, 5.0], segments: &[], ..ONE };
    let grid = *VolumeFile::open(whole.write(dir.path(), "image.nrrd", &[0; 120])).unwrap().geometry();
    // Slicer writes few digits.
    let cropped = Segmentation { origin: [-8.0, 21.000_004, 6.0], ..ONE };
    let path = cropped.write(dir.path(), "part.seg.nrrd", &[1, 0, 2, 0, 1, 0, 2, 2, 0, 0, 0, 1]);
    let mut file = open(&path, Some(grid)).unwrap();
    assert_eq!(file.geometry(), &grid);
    let found = labels(&mut file).unwrap();
    let mut expected = vec![0; 120];
    for (at, value) in [1, 0, 2, 0, 1, 0, 2, 2, 0, 0, 0, 1].into_iter().enumerate() {
        let [z, y, x] = [at / 6 + 1, at / 3 % 2 + 1, at % 3 + 2];
        expected[(z * 5 + y) * 6 + x] = value;
    }
    assert_eq!(found, expected);
    // Any region equals the same region of the whole.
    let region = VoxelBox { start: [1, 0, 3], shape: [2, 3, 3] };
    let mut part = vec![9; 18];
    file.region_labels(0, region, &mut part).unwrap();
    let of_whole = (0..18).map(|at| expected[((at / 9 + 1) * 5 + at / 3 % 3) * 6 + at % 3 + 3]);
    assert!(part.iter().copied().eq(of_whole));
    // Half a voxel beside the grid, and beyond it, it stays where it is.
    for origin in [[-8.5, 21.0, 6.0], [-6.0, 21.0, 6.0]] {
        let path = Segmentation { origin, ..ONE }.write(dir.path(), "beside.seg.nrrd", &[0; 12]);
        assert_eq!(open(&path, Some(grid)).unwrap().geometry().shape(), [2, 2, 3], "{origin:?}");
    }
}

#[test]
fn layers_are_read_as_one_label_map_whose_segments_may_overlap() {
    let dir = tempfile::tempdir().unwrap();
    let layered =
        Segmentation { layers: 2, segments: &[("organ", 1, 0), ("cyst", 2, 0), ("tumour", 1, 1)], ..ONE };
    // Pairs of layers: organ, organ with tumour, cyst, nothing, tumour alone, …
    let voxels = [[1, 0], [1, 1], [2, 0], [0, 0], [0, 1], [2, 1]].concat();
    let path = layered.write(dir.path(), "two.seg.nrrd", &[voxels.clone(), voxels.clone()].concat());
    let mut file = open(&path, None).unwrap();
    let segments = file.segments().unwrap().clone();
    assert_eq!((segments.coding, file.channels()), (SegmentCoding::Sets, 1));
    let names: Vec<String> =
        labels(&mut file).unwrap()[..6].iter().map(|code| segments.names_of(*code).join("+")).collect();
    assert_eq!(names, ["organ", "organ+tumour", "cyst", "", "tumour", "cyst+tumour"]);
    // Where nobody asks for names, values of layers mean nothing.
    assert!(VolumeFile::open_labels(&path).is_err());
    let stray = layered.write(dir.path(), "stray.seg.nrrd", &[[1, 3].as_slice(), &[0; 22]].concat());
    let error = labels(&mut open(&stray, None).unwrap()).unwrap_err();
    assert!(matches!(error, VolumeError::NoSegment { voxel: [0, 0, 0], layer: 1, value: 3, .. }), "{error}");
}

#[test]
fn more_segments_in_layers_than_bits_are_numbered_and_may_not_overlap() {
    let dir = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..10).map(|at| format!("s{at}")).collect();
    let segments: Vec<(&str, i64, usize)> =
        (0..10).map(|at| (&*names[at], at as i64 / 2 + 1, at % 2)).collect();
    let many = Segmentation { layers: 2, segments: &segments, ..ONE };
    let path = many.write(dir.path(), "many.seg.nrrd", &[[5, 0, 0, 5].as_slice(), &[0; 20]].concat());
    let mut file = open(&path, None).unwrap();
    let codes = labels(&mut file).unwrap();
    let named = file.segments().unwrap();
    assert_eq!(named.coding, SegmentCoding::Numbers);
    assert_eq!((named.names_of(codes[0]), named.names_of(codes[1])), (vec!["s8"], vec!["s9"]));
    let path = many.write(dir.path(), "both.seg.nrrd", &[[0, 0, 5, 4].as_slice(), &[0; 20]].concat());
    let error = labels(&mut open(&path, None).unwrap()).unwrap_err().to_string();
    assert!(error.contains("voxel [0, 0, 1]") && error.contains("\"s8\" and \"s7\""), "{error}");
}

#[test]
fn values_beyond_a_byte_are_read_by_their_segments() {
    let dir = tempfile::tempdir().unwrap();
    let large = Segmentation { kind: "ushort", segments: &[("a", 1000, 0), ("b", 258, 0)], ..ONE };
    let voxels: Vec<u8> = [0u16, 1000, 258, 0].repeat(3).into_iter().flat_map(u16::to_le_bytes).collect();
    let mut file = open(&large.write(dir.path(), "large.seg.nrrd", &voxels), None).unwrap();
    assert_eq!(labels(&mut file).unwrap(), [0, 1, 2, 0].repeat(3));
    assert_eq!(file.segments().unwrap().names_of(2), ["b"]);
}

#[test]
fn segments_of_one_value_are_refused_by_their_names() {
    let dir = tempfile::tempdir().unwrap();
    let both = Segmentation { segments: &[("tumour", 1, 0), ("organ", 1, 0)], ..ONE };
    let path = both.write(dir.path(), "both.seg.nrrd", &[0; 12]);
    let error = open(&path, None).unwrap_err().to_string();
    assert!(
        error.contains("both.seg.nrrd") && error.contains("\"tumour\" and \"organ\" both have the value 1"),
        "{error}"
    );
}
