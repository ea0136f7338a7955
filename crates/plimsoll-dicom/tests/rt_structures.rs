//! Structures have the outlines of what the labels said, and others fill them with the same voxels: `oracles/dicom_rtstruct.py` reads the files
//! that these tests write into the folder `DICOM_RTSTRUCT_FOLDER`, and `oracles/dicom_rtstruct.json` is what it found in them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use crate::segmentations::*;
use dicom_dictionary_std::tags;
use dicom_object::{DefaultDicomObject, InMemDicomObject};
use plimsoll_dicom::StructuresRequest;
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{ElementType, LabelTable};
use serde::Deserialize;

/// The labels of segmentations, and in the slice that these leave empty one with holes: two that touch at a corner, one in whose row another
/// is, and one with an island.
fn ringed() -> Vec<u16> {
    let [_, height, width] = SHAPE;
    let mut labels = labels();
    #[rustfmt::skip]
    let rings = [
        "XXXXXXXXXXX.",
        "X.XX...XX.X.",
        "X.X.X.X.XXX.",
        "XXXXX.XXXXX.",
        "XX.XXXXX.XX.",
        "XXX.XX.XXXX.",
        "XXXX.XXXXXX.",
        "......X.....",
        ".....X.....X",
    ];
    for (row, line) in rings.iter().enumerate() {
        for (column, letter) in line.bytes().enumerate() {
            labels[(2 * height + row) * width + column] = if letter == b'X' { 200 } else { 0 };
        }
    }
    labels
}

/// Writes the structures of a series, and returns the file.
fn write(folder: &Path, of: &str, names: &LabelTable, labels: &[u16]) -> PathBuf {
    let (map, to) = (folder.join("labels.nii.gz"), folder.join(format!("{of}.dcm")));
    write_labels(&map, SHAPE, labels, ElementType::U8);
    let budget = budget();
    let request = StructuresRequest { names, description: "total", algorithm: "TotalSegmentator total" };
    series(of).write_structures(&map, &to, &request, &budget, &AtomicBool::new(false)).unwrap();
    assert_eq!(budget.used(), Bytes::ZERO);
    fs::remove_file(map).unwrap();
    assert_eq!(fs::read_dir(folder).unwrap().count(), 1, "nothing is left beside it");
    to
}

#[test]
fn structures_in_the_place_of_a_label_map_are_refused_as_what_they_are() {
    plimsoll_dicom::register();
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "tilted", &organs(), &labels());
    let error = plimsoll_volume::VolumeFile::open_labels(&path).unwrap_err();
    assert!(error.to_string().contains("a DICOM structure set (RTSTRUCT)"), "{error}");
    assert!(error.remedy().unwrap().contains(".seg.nrrd"));
}

fn numbers(object: &InMemDicomObject, tag: dicom_object::Tag) -> Vec<f64> {
    object.get(tag).unwrap().to_multi_float64().unwrap()
}

/// A slice of the series, by what it is called.
struct Plane {
    place: usize,
    origin: Vec<f64>,
    directions: Vec<f64>,
    spacing: Vec<f64>,
}

fn planes(of: &str) -> BTreeMap<String, Plane> {
    let entries = fs::read_dir(oracle(of)).unwrap();
    let mut slices: Vec<DefaultDicomObject> = entries.map(|entry| open(&entry.unwrap().path())).collect();
    // The oracle has numbered them from the far end.
    slices.sort_by_key(|slice| std::cmp::Reverse(number(slice, tags::INSTANCE_NUMBER)));
    let of_slice = |(place, slice): (usize, &DefaultDicomObject)| {
        let plane = Plane {
            place,
            origin: numbers(slice, tags::IMAGE_POSITION_PATIENT),
            directions: numbers(slice, tags::IMAGE_ORIENTATION_PATIENT),
            spacing: numbers(slice, tags::PIXEL_SPACING),
        };
        (text(slice, tags::SOP_INSTANCE_UID), plane)
    };
    slices.iter().enumerate().map(of_slice).collect()
}

/// Returns `true` if a point is inside of a polygon, by the number of edges to its right.
fn is_inside(polygon: &[[f64; 2]], [x, y]: [f64; 2]) -> bool {
    let edges = polygon.iter().zip(polygon.iter().cycle().skip(1));
    let crossed = edges
        .filter(|([x0, y0], [x1, y1])| (*y0 > y) != (*y1 > y) && x < x0 + (y - y0) / (y1 - y0) * (x1 - x0));
    crossed.count() % 2 == 1
}

/// The label map that outlines fill: the number of each voxel's structure.
fn filled(file: &Path, of: &str) -> Vec<u16> {
    let [depth, height, width] = SHAPE;
    let (object, planes) = (open(file), planes(of));
    let mut labels = vec![0; depth * height * width];
    for structure in items(&object, tags::ROI_CONTOUR_SEQUENCE) {
        let value = number(structure, tags::REFERENCED_ROI_NUMBER) as u16;
        let contours = structure.get(tags::CONTOUR_SEQUENCE).map_or(&[][..], |found| found.items().unwrap());
        for contour in contours {
            assert_eq!(text(contour, tags::CONTOUR_GEOMETRIC_TYPE), "CLOSED_PLANAR");
            let image = item(contour, tags::CONTOUR_IMAGE_SEQUENCE);
            let plane = &planes[&text(image, tags::REFERENCED_SOP_INSTANCE_UID)];
            let points = numbers(contour, tags::CONTOUR_DATA);
            assert_eq!(points.len(), 3 * number(contour, tags::NUMBER_OF_CONTOUR_POINTS));
            // Columns and rows, by projection.
            let along = |point: &[f64], direction: &[f64]| -> f64 {
                (0..3).map(|axis| (point[axis] - plane.origin[axis]) * direction[axis]).sum()
            };
            let polygon: Vec<[f64; 2]> = points
                .chunks(3)
                .map(|point| {
                    let [x, y] = [&plane.directions[..3], &plane.directions[3..]]
                        .map(|direction| along(point, direction));
                    let normal = [
                        plane.directions[1] * plane.directions[5] - plane.directions[2] * plane.directions[4],
                        plane.directions[2] * plane.directions[3] - plane.directions[0] * plane.directions[5],
                        plane.directions[0] * plane.directions[4] - plane.directions[1] * plane.directions[3],
                    ];
                    assert!(along(point, &normal).abs() < 1e-3, "a point beside its slice");
                    [x / plane.spacing[1], y / plane.spacing[0]]
                })
                .collect();
            for row in 0..height {
                for column in 0..width {
                    if is_inside(&polygon, [column as f64, row as f64]) {
                        let label = &mut labels[(plane.place * height + row) * width + column];
                        assert_eq!(*label, 0, "two structures at one voxel");
                        *label = value;
                    }
                }
            }
        }
    }
    labels
}

/// Structures are numbered like names, in the order of values.
fn numbered(labels: &[u16], names: &LabelTable) -> Vec<u16> {
    let place = |label: &u16| names.labels.iter().position(|(value, _)| value == label);
    labels.iter().map(|label| place(label).map_or(0, |place| place as u16 + 1)).collect()
}

/// The oracle's result for a file: the name of each structure, and the number of the structure of each voxel.
#[derive(Deserialize)]
struct Known {
    names: BTreeMap<u16, String>,
    labels: Vec<u16>,
}

#[test]
fn outlines_are_filled_with_all_voxels_of_their_labels_and_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let known = || -> BTreeMap<String, Known> {
        serde_json::from_slice(&fs::read(oracle("../dicom_rtstruct.json")).unwrap()).unwrap()
    };
    let kept = std::env::var_os("DICOM_RTSTRUCT_FOLDER").map(PathBuf::from);
    for of in ["short", "tilted"] {
        let file = write(dir.path(), of, &organs(), &ringed());
        let expected = numbered(&ringed(), &organs());
        assert!(filled(&file, of) == expected, "{of}");
        match &kept {
            Some(kept) => drop(fs::copy(&file, kept.join(file.file_name().unwrap())).unwrap()),
            None => {
                let known = &known()[of];
                assert!(known.labels == expected, "{of}");
                let names = (1..).zip(organs().labels).map(|(number, (_, name))| (number, name));
                assert_eq!(known.names, names.collect(), "{of}");
            }
        }
        fs::remove_file(file).unwrap();
    }
}

#[test]
fn structures_refer_to_the_series_and_are_of_its_patient() {
    let dir = tempfile::tempdir().unwrap();
    let object = open(&write(dir.path(), "tilted", &organs(), &labels()));
    let slice = open(&fs::read_dir(oracle("tilted")).unwrap().next().unwrap().unwrap().path());
    for tag in [tags::PATIENT_NAME, tags::PATIENT_ID, tags::STUDY_INSTANCE_UID, tags::FRAME_OF_REFERENCE_UID]
    {
        assert_eq!(text(&object, tag), text(&slice, tag), "{tag}");
    }
    assert_eq!(text(&object, tags::MODALITY), "RTSTRUCT");
    let frame = item(&object, tags::REFERENCED_FRAME_OF_REFERENCE_SEQUENCE);
    assert_eq!(text(frame, tags::FRAME_OF_REFERENCE_UID), text(&slice, tags::FRAME_OF_REFERENCE_UID));
    let study = item(frame, tags::RT_REFERENCED_STUDY_SEQUENCE);
    assert_eq!(text(study, tags::REFERENCED_SOP_INSTANCE_UID), text(&slice, tags::STUDY_INSTANCE_UID));
    let series = item(study, tags::RT_REFERENCED_SERIES_SEQUENCE);
    assert_eq!(text(series, tags::SERIES_INSTANCE_UID), text(&slice, tags::SERIES_INSTANCE_UID));
    assert_ne!(text(&object, tags::SERIES_INSTANCE_UID), text(&slice, tags::SERIES_INSTANCE_UID));
    assert_eq!(items(series, tags::CONTOUR_IMAGE_SEQUENCE).len(), SHAPE[0]);
    // Labels that no voxel has are left out: 200 has none here.
    let structures = items(&object, tags::STRUCTURE_SET_ROI_SEQUENCE);
    let named: Vec<String> = structures.iter().map(|one| text(one, tags::ROI_NAME)).collect();
    assert_eq!(named, ["spleen", "liver", "rib_left_1", "costal_cartilages"]);
    for sequence in [tags::ROI_CONTOUR_SEQUENCE, tags::RTROI_OBSERVATIONS_SEQUENCE] {
        let of = |one: &InMemDicomObject| number(one, tags::REFERENCED_ROI_NUMBER);
        assert!(items(&object, sequence).iter().map(of).eq([1, 2, 3, 4]));
    }
}

#[test]
fn the_same_labels_are_the_same_structures_and_none_at_all_are_all_without_outlines() {
    let dir = tempfile::tempdir().unwrap();
    let write = |labels: &[u16]| {
        let file = write(dir.path(), "short", &organs(), labels);
        let found = (fs::read(&file).unwrap(), text(&open(&file), tags::SOP_INSTANCE_UID));
        fs::remove_file(file).unwrap();
        found
    };
    let once = write(&ringed());
    assert!(once == write(&ringed()));
    let mut other = ringed();
    other[0] = 1;
    assert_ne!(write(&other).1, once.1);
    let nothing = vec![0; SHAPE.iter().product()];
    let file = self::write(dir.path(), "short", &organs(), &nothing);
    let object = open(&file);
    assert_eq!(items(&object, tags::STRUCTURE_SET_ROI_SEQUENCE).len(), organs().labels.len());
    assert!(
        items(&object, tags::ROI_CONTOUR_SEQUENCE)
            .iter()
            .all(|one| one.get(tags::CONTOUR_SEQUENCE).is_none())
    );
}

#[test]
fn what_there_is_no_room_for_is_refused_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (map, to) = (dir.path().join("labels.nii.gz"), dir.path().join("structures.dcm"));
    write_labels(&map, SHAPE, &ringed(), ElementType::U8);
    let names = organs();
    let request = StructuresRequest { names: &names, description: "total", algorithm: "a" };
    let mut refused = 0;
    for kib in (0..600).step_by(20) {
        let budget = Budget::new(Bytes(kib << 10));
        let never = AtomicBool::new(false);
        match series("short").write_structures(&map, &to, &request, &budget, &never) {
            Ok(()) => break,
            Err(_) => refused += 1,
        }
        assert_eq!((budget.used(), fs::read_dir(dir.path()).unwrap().count()), (Bytes::ZERO, 1));
    }
    assert!(refused > 3 && to.exists(), "{refused}");
}
