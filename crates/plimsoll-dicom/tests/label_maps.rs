//! Segmentations are read as label maps whose values have names, on the grid of their image.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use crate::segmentations::*;
use dicom_core::value::{DataSetSequence, PixelFragmentSequence};
use dicom_core::{DataElement, Length, PrimitiveValue, VR};
use dicom_dictionary_std::tags;
use dicom_object::meta::FileMetaTableBuilder;
use dicom_object::{InMemDicomObject, Tag};
use plimsoll_dicom::{DicomError, SegmentationFault, SegmentationType, register};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{
    Affine, Content, ElementType, Geometry, LabelTable, SegmentCoding, VolumeError, VolumeFile, VoxelBox,
};

fn open_on(path: &Path, on: Option<Geometry>) -> Result<VolumeFile, VolumeError> {
    register();
    VolumeFile::open_as(path, Content::Segments { on })
}

/// The values of all voxels, read as a whole and again row by row from the last to the first.
fn read(file: &mut VolumeFile) -> Result<Vec<u8>, VolumeError> {
    let budget = Budget::new(file.decoding_bytes());
    file.decode(&budget)?;
    assert!(budget.used() <= file.decoding_bytes());
    let shape = file.geometry().shape();
    let whole = VoxelBox::whole(shape);
    let mut labels = vec![9; whole.voxel_count().unwrap()];
    file.region_labels(0, whole, &mut labels)?;
    for (row, expected) in labels.chunks(shape[2]).enumerate().rev() {
        let mut found = vec![9; shape[2]];
        let region = VoxelBox { start: [row / shape[1], row % shape[1], 0], shape: [1, 1, shape[2]] };
        file.region_labels(0, region, &mut found)?;
        assert_eq!(found, expected);
    }
    Ok(labels)
}

/// The names at each voxel.
fn names_at(path: &Path, on: Option<Geometry>) -> Vec<String> {
    let mut file = open_on(path, on).unwrap();
    let segments = file.segments().unwrap().clone();
    let codes = read(&mut file).unwrap();
    codes.iter().map(|code| segments.names_of(*code).join("+")).collect()
}

fn written(folder: &Path, of: &str, kind: SegmentationType, names: &LabelTable, labels: &[u16]) -> PathBuf {
    let (map, to) = (folder.join("labels.nii.gz"), folder.join(format!("{of}_{kind:?}.dcm").to_lowercase()));
    write_labels(&map, SHAPE, labels, ElementType::U16);
    series(of)
        .write_segmentation(&map, &to, &request(kind, names), &budget(), &AtomicBool::new(false))
        .unwrap();
    fs::remove_file(map).unwrap();
    to
}

#[test]
fn written_segmentations_are_read_as_the_labels_that_they_were_written_from() {
    let dir = tempfile::tempdir().unwrap();
    for of in ["short", "tilted", "floats"] {
        let grid = *series(of).geometry();
        for kind in [SegmentationType::LabelMap, SegmentationType::Binary] {
            let path = written(dir.path(), of, kind, &organs(), &labels());
            let found = names_at(&path, Some(grid));
            for (label, found) in labels().iter().zip(&found) {
                let name = organs()
                    .labels
                    .iter()
                    .find(|(value, _)| value == label)
                    .map_or("", |(_, name)| name)
                    .to_string();
                assert_eq!(*found, name, "{of} {kind:?}");
            }
            let mut file = open_on(&path, Some(grid)).unwrap();
            assert_eq!(file.geometry(), &grid);
            assert_eq!(file.frame_of_reference(), VolumeFile::open(oracle(of)).unwrap().frame_of_reference());
            assert_eq!(file.segments().unwrap().coding, SegmentCoding::Values);
            if kind == SegmentationType::LabelMap {
                let expected: Vec<u8> =
                    labels().iter().map(|label| if *label == 9 { 0 } else { *label as u8 }).collect();
                assert!(read(&mut file).unwrap() == expected);
                // By values alone, too, and on a grid of its own, which is the image's as all slices are there.
                let mut plain = VolumeFile::open_labels(&path).unwrap();
                assert!(read(&mut plain).unwrap() == expected);
                let off = plain.geometry().difference(&grid, 1e-3);
                assert!(off.is_none(), "{of}: {off:?}");
            }
        }
    }
}

#[test]
fn labels_above_255_are_read_by_their_names() {
    let dir = tempfile::tempdir().unwrap();
    let wide = names(&[(7020, "one"), (60_000, "other")]);
    let high: Vec<u16> = labels()
        .iter()
        .map(|label| match label {
            5 => 60_000,
            1 => 7020,
            _ => 0,
        })
        .collect();
    let path = written(dir.path(), "short", SegmentationType::LabelMap, &wide, &high);
    let found = names_at(&path, None);
    assert!(high.iter().zip(found).all(|(label, found)| found
        == match label {
            60_000 => "other",
            7020 => "one",
            _ => "",
        }));
    assert!(matches!(VolumeFile::open_labels(&path), Err(VolumeError::NotForLabels { .. })));
}

/// A segmentation of frames of 2 × 3 pixels of 1 mm, in planes of 2 mm, made by hand.
struct Seg {
    kind: &'static str,
    /// Number and name of each segment.
    segments: Vec<(u16, &'static str)>,
    /// Segment, position in LPS and pixels of each frame.
    frames: Vec<(u16, [f64; 3], [u16; 6])>,
    /// Directions of rows and columns.
    directions: [f64; 6],
    is_run_length: bool,
    overlap: Option<&'static str>,
    spacing: Option<f64>,
}

const FRAME_OF_REFERENCE: &str = "1.2.3.4";

impl Default for Seg {
    fn default() -> Seg {
        Seg {
            kind: "BINARY",
            segments: vec![(1, "liver"), (2, "tumour")],
            frames: Vec::new(),
            directions: [1.0, 0.0, 0.0, 0.0, 1.0, 0.0],
            is_run_length: false,
            overlap: None,
            spacing: Some(2.0),
        }
    }
}

fn object(elements: impl IntoIterator<Item = DataElement<InMemDicomObject>>) -> InMemDicomObject {
    InMemDicomObject::from_element_iter(elements)
}

fn sequence(tag: Tag, items: Vec<InMemDicomObject>) -> DataElement<InMemDicomObject> {
    DataElement::new(tag, VR::SQ, DataSetSequence::new(items, Length::UNDEFINED))
}

fn string(tag: Tag, kind: VR, value: impl Into<String>) -> DataElement<InMemDicomObject> {
    DataElement::new(tag, kind, PrimitiveValue::from(value.into()))
}

fn short(tag: Tag, value: u16) -> DataElement<InMemDicomObject> {
    DataElement::new(tag, VR::US, PrimitiveValue::from(value))
}

fn numbers(tag: Tag, values: &[f64]) -> DataElement<InMemDicomObject> {
    let text: Vec<String> = values.iter().map(f64::to_string).collect();
    string(tag, VR::DS, text.join("\\"))
}

impl Seg {
    fn bits(&self) -> u16 {
        if self.kind == "BINARY" { 1 } else { 8 }
    }

    fn object(&self) -> InMemDicomObject {
        let code = |meaning: &str| {
            vec![object([
                string(tags::CODE_VALUE, VR::SH, "1"),
                string(tags::CODING_SCHEME_DESIGNATOR, VR::SH, "99X"),
                string(tags::CODE_MEANING, VR::LO, meaning),
            ])]
        };
        let segments = self.segments.iter().map(|(number, name)| {
            let label = (!name.starts_with('?')).then(|| string(tags::SEGMENT_LABEL, VR::LO, *name));
            let mut item = object([
                short(tags::SEGMENT_NUMBER, *number),
                sequence(tags::SEGMENTED_PROPERTY_TYPE_CODE_SEQUENCE, code(name.trim_start_matches('?'))),
            ]);
            item.extend(label);
            item
        });
        let frames = self.frames.iter().map(|(segment, position, _)| {
            let identification = object([short(tags::REFERENCED_SEGMENT_NUMBER, *segment)]);
            object([
                sequence(
                    tags::PLANE_POSITION_SEQUENCE,
                    vec![object([numbers(tags::IMAGE_POSITION_PATIENT, position)])],
                ),
                sequence(tags::SEGMENT_IDENTIFICATION_SEQUENCE, vec![identification]),
            ])
        });
        let mut measures = object([numbers(tags::PIXEL_SPACING, &[1.0, 1.0])]);
        measures.extend(self.spacing.map(|length| numbers(tags::SPACING_BETWEEN_SLICES, &[length])));
        let shared = object([
            sequence(tags::PIXEL_MEASURES_SEQUENCE, vec![measures]),
            sequence(
                tags::PLANE_ORIENTATION_SEQUENCE,
                vec![object([numbers(tags::IMAGE_ORIENTATION_PATIENT, &self.directions)])],
            ),
        ]);
        let bits = self.bits();
        let mut all = object([
            string(tags::SOP_CLASS_UID, VR::UI, self.class()),
            string(tags::SOP_INSTANCE_UID, VR::UI, "2.25.1"),
            string(tags::FRAME_OF_REFERENCE_UID, VR::UI, FRAME_OF_REFERENCE),
            string(tags::SEGMENTATION_TYPE, VR::CS, self.kind),
            short(tags::SAMPLES_PER_PIXEL, 1),
            string(tags::PHOTOMETRIC_INTERPRETATION, VR::CS, "MONOCHROME2"),
            string(tags::NUMBER_OF_FRAMES, VR::IS, self.frames.len().to_string()),
            short(tags::ROWS, 2),
            short(tags::COLUMNS, 3),
            short(tags::BITS_ALLOCATED, bits),
            short(tags::BITS_STORED, bits),
            short(tags::HIGH_BIT, bits - 1),
            short(tags::PIXEL_REPRESENTATION, 0),
            short(tags::MAXIMUM_FRACTIONAL_VALUE, 200),
            sequence(tags::SEGMENT_SEQUENCE, segments.collect()),
            sequence(tags::SHARED_FUNCTIONAL_GROUPS_SEQUENCE, vec![shared]),
            sequence(tags::PER_FRAME_FUNCTIONAL_GROUPS_SEQUENCE, frames.collect()),
        ]);
        all.extend(self.overlap.map(|said| string(tags::SEGMENTS_OVERLAP, VR::CS, said)));
        all.put(self.pixels());
        all
    }

    fn class(&self) -> &'static str {
        if self.kind == "LABELMAP" { "1.2.840.10008.5.1.4.1.1.66.7" } else { "1.2.840.10008.5.1.4.1.1.66.4" }
    }

    fn pixels(&self) -> DataElement<InMemDicomObject> {
        let all = || self.frames.iter().map(|(_, _, pixels)| pixels);
        let packed = |pixels: Vec<u16>| -> Vec<u8> {
            match self.bits() {
                1 => pixels
                    .chunks(8)
                    .map(|eight| eight.iter().rev().fold(0, |byte, bit| byte << 1 | *bit as u8))
                    .collect(),
                _ => pixels.iter().map(|pixel| *pixel as u8).collect(),
            }
        };
        if !self.is_run_length {
            let mut bytes = packed(all().flatten().copied().collect());
            bytes.resize(bytes.len().next_multiple_of(2), 0);
            return DataElement::new(tags::PIXEL_DATA, VR::OB, PrimitiveValue::U8(bytes.into()));
        }
        let fragment = |pixels: &[u16; 6]| {
            let bytes = packed(pixels.to_vec());
            // One segment, of bytes as they are.
            let mut fragment = [[1u32, 64].map(u32::to_le_bytes).as_flattened(), &[0; 56]].concat();
            fragment.push(bytes.len() as u8 - 1);
            fragment.extend(bytes);
            fragment.resize(fragment.len().next_multiple_of(2), 128);
            fragment
        };
        DataElement::new(
            tags::PIXEL_DATA,
            VR::OB,
            PixelFragmentSequence::new_fragments(all().map(fragment).collect::<Vec<_>>()),
        )
    }

    fn write(&self, folder: &Path, name: &str) -> PathBuf {
        self.write_changed(folder, name, |_| ())
    }

    fn write_changed(&self, folder: &Path, name: &str, change: impl Fn(&mut InMemDicomObject)) -> PathBuf {
        let mut all = self.object();
        change(&mut all);
        let syntax = if self.is_run_length { "1.2.840.10008.1.2.5" } else { "1.2.840.10008.1.2.1" };
        let meta = FileMetaTableBuilder::new().transfer_syntax(syntax);
        let path = folder.join(name);
        all.with_meta(meta).unwrap().write_to_file(&path).unwrap();
        path
    }
}

/// A grid of these voxels of 2 × 1 × 1 mm whose axes are the frames' axes, or reversed.
fn grid(shape: [usize; 3], is_reversed: bool) -> Geometry {
    // In RAS the frames' columns count along −x and their rows along −y.
    let (step, x, y) = match is_reversed {
        false => (-1.0, 0.0, 0.0),
        true => (1.0, -(shape[2] as f64 - 1.0), -(shape[1] as f64 - 1.0)),
    };
    Geometry::new(shape, Affine([[0.0, 0.0, step, x], [0.0, step, 0.0, y], [2.0, 0.0, 0.0, 0.0]])).unwrap()
}

/// The name of each voxel of a grid of 4 × 5 × 6 voxels, from the frames.
fn expected(frames: &[(u16, [f64; 3], [u16; 6])], names: &[(u16, &str)]) -> Vec<String> {
    let mut all = vec![Vec::new(); 4 * 5 * 6];
    for (segment, [x, y, z], pixels) in frames {
        for (at, _) in pixels.iter().enumerate().filter(|(_, pixel)| **pixel > 0) {
            let [d, h, w] = [(z / 2.0) as usize, *y as usize + at / 3, *x as usize + at % 3];
            let name = names.iter().find(|(number, _)| number == segment).unwrap().1;
            all[(d * 5 + h) * 6 + w].push(name);
        }
    }
    all.into_iter()
        .map(|mut found: Vec<&str>| {
            found.sort_by_key(|name| names.iter().position(|(_, other)| other == name));
            found.join("+")
        })
        .collect()
}

/// Frames of part of the rows and columns, some planes without any, in no order, two segments of one plane overlapping.
fn sparse() -> Vec<(u16, [f64; 3], [u16; 6])> {
    vec![
        (2, [2.0, 1.0, 6.0], [0, 1, 1, 1, 0, 0]),
        (1, [2.0, 1.0, 0.0], [1, 1, 0, 0, 0, 1]),
        (1, [2.0, 1.0, 6.0], [0, 1, 0, 0, 1, 0]),
        (2, [2.0, 1.0, 2.0], [1, 0, 0, 0, 0, 0]),
    ]
}

#[test]
fn sparse_cropped_and_overlapping_frames_are_placed_on_the_grid_of_the_image() {
    let dir = tempfile::tempdir().unwrap();
    let names = [(1, "liver"), (2, "tumour")];
    let upright = expected(&sparse(), &names);
    for is_run_length in [false, true] {
        let seg = Seg { frames: sparse(), is_run_length, ..Seg::default() };
        let path = seg.write(dir.path(), "sparse.dcm");
        let file = open_on(&path, Some(grid([4, 5, 6], false))).unwrap();
        assert_eq!(file.segments().unwrap().coding, SegmentCoding::Sets);
        assert_eq!(names_at(&path, Some(grid([4, 5, 6], false))), upright);
        // Rows and columns of an image of NIfTI may count the other way.
        let mut reversed = upright.clone();
        reversed.chunks_mut(30).for_each(<[String]>::reverse);
        assert_eq!(names_at(&path, Some(grid([4, 5, 6], true))), reversed);
        // Without an image, on the smallest grid.
        let own = open_on(&path, None).unwrap();
        assert_eq!(own.geometry().shape(), [4, 2, 3]);
        assert_eq!(own.geometry().voxel_to_world([1.0, 0.0, 0.0]), [-2.0, -1.0, 2.0]);
        // Beyond the image, or between its voxels, it stays on its own.
        assert_eq!(open_on(&path, Some(grid([3, 5, 6], false))).unwrap().geometry(), own.geometry());
        // By values alone, overlapping segments mean nothing.
        assert!(matches!(VolumeFile::open_labels(&path), Err(VolumeError::NotForLabels { .. })));
    }
}

#[test]
fn files_that_number_their_segments_differently_are_read_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let swapped: Vec<_> =
        sparse().into_iter().map(|(segment, at, pixels)| (3 - segment, at, pixels)).collect();
    let names = vec![(2, "liver"), (1, "tumour")];
    let seg = Seg { frames: swapped.clone(), segments: names.clone(), ..Seg::default() };
    let one = Seg { frames: sparse(), ..Seg::default() };
    let on = Some(grid([4, 5, 6], false));
    let sorted = |names: Vec<String>| -> Vec<Vec<String>> {
        let of_voxel = |name: String| {
            let mut parts: Vec<String> = name.split('+').map(str::to_string).collect();
            parts.sort();
            parts
        };
        names.into_iter().map(of_voxel).collect()
    };
    assert_eq!(
        sorted(names_at(&seg.write(dir.path(), "swapped.dcm"), on)),
        sorted(names_at(&one.write(dir.path(), "one.dcm"), on))
    );
    // Without a label, a segment is called what its type is.
    let typed = Seg { frames: sparse(), segments: vec![(1, "?liver"), (2, "?tumour")], ..Seg::default() };
    assert_eq!(
        names_at(&typed.write(dir.path(), "typed.dcm"), on),
        names_at(&one.write(dir.path(), "one.dcm"), on)
    );
}

#[test]
fn segments_that_may_not_overlap_are_refused_at_the_voxel_where_they_do() {
    let dir = tempfile::tempdir().unwrap();
    let seg = Seg { frames: sparse(), overlap: Some("NO"), ..Seg::default() };
    let path = seg.write(dir.path(), "overlap.dcm");
    let mut file = open_on(&path, Some(grid([4, 5, 6], false))).unwrap();
    let error = read(&mut file).unwrap_err();
    assert!(matches!(error, VolumeError::Overlap { voxel: [3, 1, 3], .. }), "{error}");
}

#[test]
fn half_of_the_largest_fraction_is_in_the_segment() {
    let dir = tempfile::tempdir().unwrap();
    for is_run_length in [false, true] {
        let frames = vec![(1, [0.0; 3], [0, 99, 100, 200, 1, 150])];
        let seg = Seg { kind: "FRACTIONAL", frames, is_run_length, ..Seg::default() };
        let path = seg.write(dir.path(), "fractional.dcm");
        let mut file = open_on(&path, None).unwrap();
        assert_eq!(read(&mut file).unwrap(), [0, 0, 1, 1, 0, 1]);
        assert!(file.warnings()[0].contains("half of MaximumFractionalValue"));
    }
}

#[test]
fn a_frame_that_is_alone_and_a_tilted_stack_have_a_grid() {
    let dir = tempfile::tempdir().unwrap();
    let one = Seg { frames: vec![(1, [0.0; 3], [1; 6])], ..Seg::default() };
    assert_eq!(open_on(&one.write(dir.path(), "one.dcm"), None).unwrap().geometry().shape(), [1, 2, 3]);
    let unknown = Seg { spacing: None, ..one };
    let path = unknown.write(dir.path(), "unknown.dcm");
    let fault = fault_of(&path);
    assert_eq!(fault, SegmentationFault::NoSpacing);
    // Without a stated spacing it is the first gap, or a part of it.
    let at = |z: f64| (1, [0.0, 0.0, z], [1; 6]);
    let gaps = Seg { spacing: None, frames: vec![at(0.0), at(4.0), at(10.0)], ..Seg::default() };
    assert_eq!(open_on(&gaps.write(dir.path(), "gaps.dcm"), None).unwrap().geometry().shape(), [6, 2, 3]);
    let tilted = |z: f64| (1, [0.0, z * 0.2, z], [1; 6]);
    let tilted = Seg { frames: vec![tilted(0.0), tilted(4.0), tilted(2.0)], ..Seg::default() };
    let file = open_on(&tilted.write(dir.path(), "tilted.dcm"), None).unwrap();
    assert_eq!(file.geometry().shape(), [3, 2, 3]);
    assert!((file.geometry().voxel_to_world([2.0, 0.0, 0.0])[1] + 0.8).abs() < 1e-9);
    // Frames that are shifted within their planes by whole pixels are parts of a larger one.
    let shifted = Seg { frames: vec![(1, [0.0; 3], [1; 6]), (2, [3.0, 2.0, 0.0], [1; 6])], ..Seg::default() };
    let path = shifted.write(dir.path(), "shifted.dcm");
    assert_eq!(open_on(&path, None).unwrap().geometry().shape(), [1, 4, 6]);
    assert_eq!(names_at(&path, None).iter().filter(|name| *name == "tumour").count(), 6);
}

fn error_of(path: &Path) -> DicomError {
    match open_on(path, None) {
        Err(VolumeError::Added { error, hint }) => {
            assert!(hint.is_some());
            *error.downcast().unwrap()
        }
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("{} is read", path.display()),
    }
}

fn fault_of(path: &Path) -> SegmentationFault {
    match error_of(path) {
        DicomError::Segmentation { fault, .. } => fault,
        error => panic!("{error}"),
    }
}

#[test]
fn files_that_contradict_themselves_are_refused_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let seg = || Seg { frames: sparse(), ..Seg::default() };
    let path = |seg: Seg| seg.write(dir.path(), "bad.dcm");
    let mut frames = sparse();
    frames[2].0 = 7;
    assert_eq!(
        fault_of(&path(Seg { frames, ..seg() })),
        SegmentationFault::UnknownSegment { frame: 3, number: 7 }
    );
    let mut frames = sparse();
    frames.push(frames[1]);
    assert_eq!(fault_of(&path(Seg { frames, ..seg() })), SegmentationFault::Twice { one: 2, other: 5 });
    let twice = Seg { segments: vec![(1, "a"), (2, "b"), (1, "c")], ..seg() };
    assert!(matches!(fault_of(&path(twice)), SegmentationFault::OneNumber { number: 1, .. }));
    assert_eq!(fault_of(&path(Seg { segments: Vec::new(), ..seg() })), SegmentationFault::NoSegments);
    let zero = Seg { segments: vec![(0, "a"), (1, "b"), (2, "c")], ..seg() };
    assert!(matches!(fault_of(&path(zero)), SegmentationFault::NumberZero { .. }));
    assert!(matches!(
        fault_of(&path(Seg { kind: "OTHER", ..seg() })),
        SegmentationFault::Bits { .. } | SegmentationFault::Type { .. }
    ));
    let many = Seg { segments: (1..=300).map(|number| (number, "many")).collect(), ..seg() };
    assert_eq!(fault_of(&path(many)), SegmentationFault::TooManySegments { most: 255 });
    let mut frames = sparse();
    frames[0].1[2] = 5.3;
    assert_eq!(fault_of(&path(Seg { frames, spacing: None, ..seg() })), SegmentationFault::Uneven);
    // A count of frames that differs from the described frames, or from the pixels.
    let counted = |count: &str| {
        seg().write_changed(dir.path(), "count.dcm", |all| {
            all.put(string(tags::NUMBER_OF_FRAMES, VR::IS, count));
        })
    };
    for count in ["3", "5", "4000000000"] {
        let error = error_of(&counted(count));
        assert!(matches!(&error, DicomError::Attribute { attribute: "NumberOfFrames", .. }), "{error}");
    }
    let short = seg().write_changed(dir.path(), "short.dcm", |all| {
        all.put(DataElement::new(tags::PIXEL_DATA, VR::OB, PrimitiveValue::U8(vec![0; 2].into())));
    });
    let error = error_of(&short).to_string();
    assert!(error.contains("short.dcm: its pixels take 2 bytes instead of 3"), "{error}");
    let huge = seg().write_changed(dir.path(), "huge.dcm", |all| {
        all.put(self::short(tags::ROWS, 65_535));
        all.put(self::short(tags::COLUMNS, 65_535));
    });
    assert!(matches!(error_of(&huge), DicomError::Unreadable { .. }));
}

#[test]
fn a_file_that_is_cut_off_anywhere_is_refused_without_a_panic() {
    let dir = tempfile::tempdir().unwrap();
    for is_run_length in [false, true] {
        let whole = Seg { frames: sparse(), is_run_length, ..Seg::default() }.write(dir.path(), "whole.dcm");
        let bytes = fs::read(&whole).unwrap();
        let cut = dir.path().join("cut.dcm");
        for length in (0..bytes.len() - 1).step_by(5) {
            fs::write(&cut, &bytes[..length]).unwrap();
            let opened = open_on(&cut, Some(grid([4, 5, 6], false)));
            assert!(opened.is_err(), "{length} of {}", bytes.len());
        }
    }
}

#[test]
fn a_folder_or_an_archive_of_one_segmentation_is_read_and_of_several_refused() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("of_one");
    fs::create_dir(&folder).unwrap();
    let path = Seg { frames: sparse(), ..Seg::default() }.write(&folder, "a");
    let on = Some(grid([4, 5, 6], false));
    assert_eq!(names_at(&folder, on), names_at(&path, on));
    fs::copy(&path, folder.join("b")).unwrap();
    assert_eq!(fault_of(&folder), SegmentationFault::Several { count: 2 });
}

#[test]
fn a_segmentation_is_no_image_and_outlines_are_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let seg = Seg { frames: sparse(), ..Seg::default() };
    register();
    let error = VolumeFile::open(seg.write(dir.path(), "seg.dcm")).unwrap_err();
    assert!(error.to_string().contains("is a DICOM segmentation (SEG), not an image"), "{error}");
    let outlines = seg.write_changed(dir.path(), "outlines.dcm", |all| {
        all.put(string(tags::SOP_CLASS_UID, VR::UI, "1.2.840.10008.5.1.4.1.1.481.3"));
    });
    let error = open_on(&outlines, None).unwrap_err();
    assert!(matches!(&error, VolumeError::NotForLabels { .. }), "{error}");
    assert!(error.remedy().unwrap().contains(".seg.nrrd"));
}

#[test]
fn names_are_read_in_the_character_set_of_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let named = |set: Option<&str>, name: &[u8]| {
        let path = Seg { frames: sparse(), segments: vec![(1, "leber@@"), (2, "tumour")], ..Seg::default() }
            .write_changed(dir.path(), "named.dcm", |all| {
                all.extend(set.map(|set| string(tags::SPECIFIC_CHARACTER_SET, VR::CS, set)));
            });
        let mut bytes = fs::read(&path).unwrap();
        let at = bytes.windows(7).position(|found| found == b"leber@@").unwrap();
        bytes[at..at + 7].copy_from_slice(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let name = |path: &Path| open_on(path, None).unwrap().segments().unwrap().named[0].name.clone();
    assert_eq!(name(&named(Some("ISO_IR 192"), "L\u{e4}ppch".as_bytes())), "L\u{e4}ppch");
    assert_eq!(name(&named(Some("ISO_IR 100"), b"L\xe4ppche")), "L\u{e4}ppche");
    let error = error_of(&named(None, b"L\xe4ppche"));
    assert!(matches!(error, DicomError::Attribute { attribute: "SpecificCharacterSet", .. }), "{error}");
}

#[test]
fn reading_takes_what_was_announced() {
    let dir = tempfile::tempdir().unwrap();
    let path = Seg { frames: sparse(), ..Seg::default() }.write(dir.path(), "a.dcm");
    let mut file = open_on(&path, None).unwrap();
    let least = file.decoding_bytes();
    assert!(file.decode(&Budget::new(Bytes(least.0 / 2))).is_err());
    assert!(read(&mut file).is_ok());
}
