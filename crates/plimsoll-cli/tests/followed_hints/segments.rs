//! Hints about names of segments: each remedy of an unknown name is followed, and an image and its label map are exchanged.

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use plimsoll_dicom::{SegmentationRequest, SegmentationType, Series};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{ElementType, LabelTable, VolumeFile, VolumeWriter};

use super::{expect_accepted, hint, words};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A file of NRRD of 2 × 2 × 2 voxels of 1 mm with segments of these names and values.
fn nrrd(path: &Path, segments: &[(&str, u8)], voxels: [u8; 8]) {
    let mut header = "NRRD0004\ntype: uchar\ndimension: 3\nspace: left-posterior-superior\nsizes: 2 2 2\n\
                      space directions: (1,0,0) (0,1,0) (0,0,1)\nkinds: domain domain domain\nencoding: raw\nspace origin: (0,0,0)\n"
        .to_string();
    for (at, (name, value)) in segments.iter().enumerate() {
        header +=
            &format!("Segment{at}_Name:={name}\nSegment{at}_LabelValue:={value}\nSegment{at}_Layer:=0\n");
    }
    header.push('\n');
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, [header.as_bytes(), &voxels].concat()).unwrap();
}

#[test]
fn a_name_that_is_no_class_is_read_with_each_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let voxels = [0, 1, 1, 0, 0, 0, 1, 0];
    nrrd(&at("predicted/a.nrrd"), &[], voxels);
    nrrd(&at("imagesTr/a_0000.nrrd"), &[], voxels);
    let label = at("labelsTr/a.nrrd");
    nrrd(&label, &[("Segment_1", 1)], voxels);
    let described = |more: &str| {
        let text = format!(
            r#"{{"channel_names": {{"0": "CT"}}, "labels": {{"background": 0, "vessel": 1}}, {more}
            "numTraining": 1, "file_ending": ".nrrd"}}"#
        );
        fs::write(at("dataset.json"), text).unwrap();
    };
    described("");
    let evaluate = words(&["evaluate", text(&at("predicted")), text(&at("labelsTr"))]);
    let said = hint(&evaluate);
    for part in [
        "give it the name of a class in the file",
        r#""segments": {"Segment_1": "vessel"}"#,
        r#"segments = { "Segment_1" = "vessel" }"#,
        r#""segments": "values""#,
    ] {
        assert!(said.contains(part), "{said}");
    }
    for more in [r#""segments": {"Segment_1": "vessel"},"#, r#""segments": "values","#] {
        described(more);
        expect_accepted(&evaluate, more);
    }
    described("");
    let settings = at("plimsoll.toml");
    fs::write(&settings, "[data]\nsegments = { \"Segment_1\" = \"vessel\" }\n").unwrap();
    let with_settings = [evaluate.clone(), words(&["--config", text(&settings)])].concat();
    expect_accepted(&with_settings, "the setting");
    nrrd(&label, &[("vessel", 1)], voxels);
    expect_accepted(&evaluate, "the name of a class");
}

#[test]
fn a_segmentation_in_the_place_of_the_image_is_named_as_the_label_map_instead() {
    let dir = tempfile::tempdir().unwrap();
    let series =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/dicom/short").canonicalize().unwrap();
    let budget = Budget::new(Bytes::mib(64));
    let found = Series::find(&series, &budget).unwrap();
    let (map, seg) = (dir.path().join("map.nii.gz"), dir.path().join("seg.dcm"));
    let mut writer = VolumeWriter::create(&map, found.geometry(), 1, ElementType::U8, None).unwrap();
    let labels: Vec<u8> = (0..found.geometry().voxel_count()).map(|at| u8::from(at % 7 == 0)).collect();
    writer.write_planes(&labels).unwrap();
    writer.finish().unwrap();
    let names = LabelTable { labels: vec![(1, "vessel".into())] };
    let request = SegmentationRequest {
        kind: SegmentationType::Binary,
        names: &names,
        description: "d",
        algorithm: "a",
    };
    found.write_segmentation(&map, &seg, &request, &budget, &AtomicBool::new(false)).unwrap();
    let slices = dir.path().join("slices");
    fs::create_dir(&slices).unwrap();
    for slice in fs::read_dir(&series).unwrap() {
        let slice = slice.unwrap().path();
        fs::copy(&slice, slices.join(slice.file_name().unwrap())).unwrap();
    }
    let described = |image: &str, label: &str| {
        let text = format!(
            r#"{{"channel_names": {{"0": "CT"}}, "labels": {{"background": 0, "vessel": 1}}, "file_ending": ".dcm", "numTraining": 1,
            "dataset": {{"a": {{"images": ["{image}"], "label": "{label}"}}}}}}"#
        );
        fs::write(dir.path().join("dataset.json"), text).unwrap();
    };
    let inspect = words(&["inspect", text(dir.path())]);
    described("seg.dcm", "map.nii.gz");
    let said = super::ended(&inspect).said;
    assert!(said.contains("is a DICOM segmentation (SEG), not an image"), "{said}");
    plimsoll_dicom::register();
    let proposed = VolumeFile::open(&seg).unwrap_err().remedy().unwrap();
    assert_eq!(proposed, "name the series that it was drawn on as the image, and this file as its label map");
    described("slices", "seg.dcm");
    expect_accepted(&inspect, "exchanged");
}
