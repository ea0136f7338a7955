//! `segment` writes labels of a series of DICOM as a segmentation of it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{run_error, run_json};
use dicom_object::{OpenFileOptions, Tag};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::StoredVolume;
use serde_json::Value;

const FRAMES: Tag = Tag(0x0028, 0x0008);
const SEGMENTS: Tag = Tag(0x0062, 0x0002);
const PER_FRAME: Tag = Tag(0x5200, 0x9230);
const CONTENT: Tag = Tag(0x0020, 0x9111);
const INDICES: Tag = Tag(0x0020, 0x9157);
const PIXELS: Tag = Tag(0x7FE0, 0x0010);

fn oracle(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles").join(name).canonicalize().unwrap()
}

fn arguments(input: &Path, out: &Path, rest: &[&str]) -> Vec<String> {
    let weights = oracle("total_segmentator/weights");
    let [input, out, weights] = [input, out, &weights].map(|path| path.to_str().unwrap());
    let args =
        ["segment", "total", "--fast", "-i", input, "-o", out, "--weights", weights, "--ram", "400MiB"];
    args.iter().chain(rest).map(|argument| (*argument).to_string()).collect()
}

fn segment(input: &Path, out: &Path, rest: &[&str]) -> Value {
    let args = arguments(input, out, rest);
    run_json(&args.iter().map(String::as_str).collect::<Vec<_>>())
}

fn refused(input: &Path, out: &Path, rest: &[&str]) -> String {
    let args = arguments(input, out, rest);
    run_error(&args.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn masks_and_label_maps_of_a_series_are_its_labels() {
    let dir = tempfile::tempdir().unwrap();
    let series = oracle("dicom/short");
    let [map, masks, whole] = ["map.dcm", "masks.dcm", "whole.nii.gz"].map(|name| dir.path().join(name));
    // What was planned is what a run plans, which has the slices in one image.
    let planned = segment(&series, &whole, &["--ml", "--plan"]);
    assert!(!whole.exists());
    let made = segment(&series, &whole, &["--ml"]);
    let bytes = |value: &Value| value.as_u64().unwrap();
    let [plan, held] = [&planned[0]["cases"][0]["plan"]["total_bytes"], &made["images"][0]["planned_bytes"]];
    assert!(bytes(plan).abs_diff(bytes(held)) <= 1 << 20, "{plan} {held}");
    segment(&series, &map, &["--statistics", "--preview"]);
    segment(&series, &masks, &["--ml", "--segmentation-type", "binary"]);
    let labels = StoredVolume::read(&whole, &Budget::new(Bytes::mib(1)), "test").unwrap();
    let labels = labels.bytes();
    assert!(labels.iter().any(|label| *label > 0));

    let object = OpenFileOptions::new().open_file(&masks).unwrap();
    assert_eq!(object.get(SEGMENTS).unwrap().items().unwrap().len(), 117);
    let bits = object.get(PIXELS).unwrap().to_bytes().unwrap();
    let mut found = vec![0u8; labels.len()];
    let plane = 9 * 12;
    for (number, frame) in object.get(PER_FRAME).unwrap().items().unwrap().iter().enumerate() {
        let content = &frame.get(CONTENT).unwrap().items().unwrap()[0];
        let indices: Vec<usize> = content.get(INDICES).unwrap().to_multi_int().unwrap();
        let [segment, slice] = indices[..] else { panic!("{indices:?}") };
        for place in 0..plane {
            let bit = number * plane + place;
            if bits[bit / 8] >> (bit % 8) & 1 == 1 {
                found[(slice - 1) * plane + place] = segment as u8;
            }
        }
    }
    assert!(found == labels);

    let object = OpenFileOptions::new().open_file(&map).unwrap();
    assert_eq!(object.get(FRAMES).unwrap().to_int::<usize>().unwrap(), 6);
    // The background, too.
    assert_eq!(object.get(SEGMENTS).unwrap().items().unwrap().len(), 118);
    assert_eq!(object.get(PIXELS).unwrap().value().fragments().unwrap().len(), 6);
    assert!(dir.path().join("map.statistics.json").exists() && dir.path().join("map.preview.png").exists());

    // What is there is kept, and made anew it is the same.
    let before = fs::read(&map).unwrap();
    let again = segment(&series, &map, &[]);
    assert_eq!(again["kept"][0].as_str().unwrap(), map.to_str().unwrap());
    segment(&series, &map, &["--overwrite"]);
    assert!(fs::read(&map).unwrap() == before);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 5);
}

#[test]
fn structures_of_a_series_have_an_outline_in_each_slice_that_a_label_is_in() {
    const STRUCTURES: Tag = Tag(0x3006, 0x0039);
    const CONTOURS: Tag = Tag(0x3006, 0x0040);
    const IMAGES: Tag = Tag(0x3006, 0x0016);
    const INSTANCE: Tag = Tag(0x0008, 0x1155);
    let dir = tempfile::tempdir().unwrap();
    let series = oracle("dicom/short");
    let [whole, structures] = ["whole.nii.gz", "structures.dcm"].map(|name| dir.path().join(name));
    segment(&series, &whole, &["--ml"]);
    segment(&series, &structures, &["--segmentation-type", "rtstruct"]);
    let labels = StoredVolume::read(&whole, &Budget::new(Bytes::mib(1)), "test").unwrap();
    let mut expected: Vec<(u8, usize)> =
        labels.bytes().iter().enumerate().map(|(place, label)| (*label, place / (9 * 12))).collect();
    expected.retain(|(label, _)| *label > 0);
    expected.sort_unstable();
    expected.dedup();
    let object = OpenFileOptions::new().open_file(&structures).unwrap();
    let mut found = 0;
    for structure in object.get(STRUCTURES).unwrap().items().unwrap() {
        let contours = structure.get(CONTOURS).unwrap().items().unwrap();
        let slice = |contour: &dicom_object::InMemDicomObject| {
            contour.get(IMAGES).unwrap().items().unwrap()[0]
                .get(INSTANCE)
                .unwrap()
                .to_str()
                .unwrap()
                .into_owned()
        };
        let mut slices: Vec<String> = contours.iter().map(slice).collect();
        slices.dedup();
        found += slices.len();
    }
    assert_eq!(found, expected.len());
    assert!(found > 1, "one outline says nothing of slices");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
}

#[test]
fn what_cannot_be_a_segmentation_is_told_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let (scan, out) = (oracle("total_segmentator/ct.nii.gz"), dir.path().join("out.dcm"));
    let told = refused(&scan, &out, &[]);
    assert!(
        told.contains("ct.nii.gz is not one") && told.contains("hint: name the folder of the series"),
        "{told}"
    );
    let told = refused(&scan, &out, &["--plan"]);
    assert!(told.contains("ct.nii.gz is not one"), "{told}");
    let told = refused(&scan, &dir.path().join("out.nii.gz"), &["--ml", "--segmentation-type", "binary"]);
    assert!(told.contains("--segmentation-type has no effect"), "{told}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    // A slice is no place for labels.
    for entry in fs::read_dir(oracle("dicom/short")).unwrap() {
        let from = entry.unwrap().path();
        fs::copy(&from, dir.path().join(from.file_name().unwrap())).unwrap();
    }
    let slice = dir.path().join("03.dcm");
    let before = fs::read(&slice).unwrap();
    let told = refused(dir.path(), &slice, &["--overwrite"]);
    assert!(told.contains("would replace an image"), "{told}");
    assert!(fs::read(&slice).unwrap() == before);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 6);
}
