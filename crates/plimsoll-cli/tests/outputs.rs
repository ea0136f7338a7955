//! The files that `segment` and `predict` write beside label maps: segmentations for 3D Slicer, statistics, previews.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;

use crate::support::{run, run_error, run_json};
use flate2::read::GzDecoder;
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::StoredVolume;
use serde_json::Value;

fn oracle(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/total_segmentator");
    folder.join(name).canonicalize().unwrap().to_str().unwrap().into()
}

fn segment(out: &Path, rest: &[&str]) -> Value {
    let (ct, weights, out) = (oracle("ct.nii.gz"), oracle("weights"), out.to_str().unwrap());
    let args = ["segment", "total", "-i", &ct, "-o", out, "--weights", &weights, "--ram", "400MiB"];
    run_json(&[&args, rest].concat())
}

fn volume(path: impl AsRef<Path>) -> StoredVolume {
    StoredVolume::read(path, &Budget::new(Bytes::mib(16)), "test").unwrap()
}

/// A NRRD file: its fields and pairs, and its voxels.
fn nrrd(path: &Path) -> (BTreeMap<String, String>, Vec<u8>) {
    let bytes = fs::read(path).unwrap();
    let end = bytes.windows(2).position(|two| two == b"\n\n").unwrap();
    let text = std::str::from_utf8(&bytes[..end]).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next().unwrap(), "NRRD0004");
    let pair = |line: &str| {
        let (key, value) = line.split_once(":=").or_else(|| line.split_once(": ")).unwrap();
        (key.to_string(), value.to_string())
    };
    let pairs = lines.filter(|line| !line.starts_with('#')).map(pair).collect();
    let mut voxels = Vec::new();
    GzDecoder::new(&bytes[end + 2..]).read_to_end(&mut voxels).unwrap();
    (pairs, voxels)
}

fn numbers(text: &str) -> Vec<f64> {
    let is_between = |c: char| matches!(c, '(' | ')' | ',' | ' ');
    text.split(is_between).filter(|part| !part.is_empty()).map(|part| part.parse().unwrap()).collect()
}

/// The first voxel and the last of a label along each axis, fastest first.
fn extent(labels: &[u8], [_, height, width]: [usize; 3], label: u8) -> Vec<f64> {
    let mut ends = [[usize::MAX, 0]; 3];
    for (place, _) in labels.iter().enumerate().filter(|(_, found)| **found == label) {
        let at = [place % width, place / width % height, place / (width * height)];
        for (ends, at) in ends.iter_mut().zip(at) {
            *ends = [ends[0].min(at), ends[1].max(at)];
        }
    }
    match ends[0][0] {
        usize::MAX => vec![0.0, -1.0, 0.0, -1.0, 0.0, -1.0],
        _ => ends.into_iter().flatten().map(|end| end as f64).collect(),
    }
}

/// Checks that statistics of labels agree with TotalSegmentator's, which are rounded to five digits.
fn expect_statistics(path: &Path, kind: &str) {
    let read = |path: &Path| serde_json::from_slice::<Value>(&fs::read(path).unwrap()).unwrap();
    let (found, expected) = (read(path), read(Path::new(&oracle("statistics.json"))));
    let (found, expected) = (found.as_object().unwrap(), expected[kind].as_object().unwrap());
    assert_eq!(found.len(), 117);
    assert!(expected.values().any(|entry| entry["volume"].as_f64().unwrap() > 0.0));
    for (name, expected) in expected {
        for key in ["volume", "intensity"] {
            let (found, expected) = (found[name][key].as_f64().unwrap(), expected[key].as_f64().unwrap());
            assert!(
                (found - expected).abs() <= 1e-9 * expected.abs(),
                "{name}: {key} {found}, not {expected}"
            );
        }
    }
}

/// Width and height of a PNG, and how many of its pixels have colour.
fn picture(path: &Path) -> ([u32; 2], usize) {
    let image = image::open(path).unwrap().to_rgb8();
    let is_coloured = |pixel: &&image::Rgb<u8>| {
        let [low, high] = [pixel.0.iter().min().unwrap(), pixel.0.iter().max().unwrap()];
        high - low > 40
    };
    let coloured = image.pixels().filter(is_coloured).count();
    ([image.width(), image.height()], coloured)
}

#[test]
fn a_segmentation_for_slicer_has_the_labels_with_names_extents_and_their_place() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("total.seg.nrrd");
    segment(&out, &["--ml", "--statistics", "--preview"]);
    let (fields, voxels) = nrrd(&out);
    let expected = volume(oracle("total.nii.gz"));
    let (shape, labels) = (expected.geometry().shape(), expected.bytes());
    assert!(voxels == labels);
    assert_eq!(fields["type"], "unsigned char");
    assert_eq!(fields["space"], "left-posterior-superior");
    assert_eq!(fields["encoding"], "gzip");
    let sizes = [shape[2] as f64, shape[1] as f64, shape[0] as f64];
    assert_eq!(numbers(&fields["sizes"]), sizes);
    let affine = expected.geometry().affine().0;
    let directions = numbers(&fields["space directions"]);
    let origin = numbers(&fields["space origin"]);
    for (row, sign) in [-1.0, -1.0, 1.0].into_iter().enumerate() {
        assert_eq!(origin[row], sign * affine[row][3]);
        for column in 0..3 {
            assert_eq!(directions[3 * column + row], sign * affine[row][2 - column]);
        }
    }
    let listed = run_json(&["segment", "--list", "--weights", &oracle("weights")]);
    let total = listed.as_array().unwrap().iter().find(|task| task["task"] == "total").unwrap();
    for (number, name) in total["labels"].as_array().unwrap().iter().enumerate() {
        let of = |key: &str| fields[&format!("Segment{number}_{key}")].as_str();
        let label = u8::try_from(number + 1).unwrap();
        assert_eq!((of("Name"), of("LabelValue")), (name.as_str().unwrap(), label.to_string().as_str()));
        assert_eq!(of("Layer"), "0");
        assert_eq!(numbers(of("Extent")), extent(labels, shape, label), "{name}");
        assert!(numbers(of("Color")).iter().all(|part| (0.0..=1.0).contains(part)));
    }
    expect_statistics(&dir.path().join("total.statistics.json"), "whole");
    let (size, coloured) = picture(&dir.path().join("total.preview.png"));
    assert!(size[0] >= 1000 && coloured > 10_000, "{size:?} {coloured}");
    // Nothing else is left.
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
}

#[test]
fn statistics_with_labels_at_the_border_and_what_is_missing_is_made_of_labels_that_are_there() {
    let dir = tempfile::tempdir().unwrap();
    let masks = dir.path().join("masks");
    segment(&masks, &["--statistics", "--stats-include-incomplete"]);
    expect_statistics(&masks.join("statistics.json"), "incomplete");
    let out = dir.path().join("total.nii.gz");
    fs::copy(oracle("total.nii.gz"), &out).unwrap();
    let report = segment(&out, &["--ml", "--statistics", "--preview"]);
    assert_eq!(report["kept"][0].as_str().unwrap(), out.to_str().unwrap());
    assert_eq!(fs::read(&out).unwrap(), fs::read(oracle("total.nii.gz")).unwrap());
    expect_statistics(&dir.path().join("total.statistics.json"), "whole");
    assert!(picture(&dir.path().join("total.preview.png")).1 > 10_000);
}

#[test]
fn a_report_has_a_row_for_each_label_and_is_made_of_labels_that_are_there() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("total.nii.gz");
    fs::copy(oracle("total.nii.gz"), &out).unwrap();
    let report = segment(&out, &["--ml", "--report"]);
    assert_eq!(report["kept"][0].as_str().unwrap(), out.to_str().unwrap());
    let table = fs::read_to_string(dir.path().join("total.report.csv")).unwrap();
    let mut lines = table.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let columns = lines.next().unwrap();
    let at = |name: &str| columns.iter().position(|column| *column == name).unwrap();
    let read = fs::read(oracle("statistics.json")).unwrap();
    let expected = serde_json::from_slice::<Value>(&read).unwrap()["incomplete"].clone();
    let rows: Vec<_> = lines.collect();
    assert_eq!(rows.len(), 117);
    let mut measured = 0;
    for row in &rows {
        assert_eq!(row.len(), columns.len(), "{row:?}");
        let statistics = &expected[row[at("structure")]];
        let number = |name: &str| row[at(name)].parse::<f64>().ok();
        let (volume, mean) =
            (statistics["volume"].as_f64().unwrap(), statistics["intensity"].as_f64().unwrap());
        if number("voxels") == Some(0.0) {
            assert!(
                volume == 0.0 && number("voxel_volume_mm3").is_none() && number("mean").is_none(),
                "{row:?}"
            );
            continue;
        }
        measured += 1;
        let own = number("voxel_volume_mm3").unwrap();
        assert!((own - volume).abs() <= 1e-6 * volume, "{row:?}: {volume}");
        // TotalSegmentator truncates intensities to whole numbers.
        assert!((number("mean").unwrap() - mean).abs() < 1.0, "{row:?}: {mean}");
        assert!(number("mesh_volume_mm3").unwrap() > 0.0 && number("maximum_3d_diameter_mm").unwrap() > 0.0);
    }
    assert!(measured > 10, "{measured}");
    // Beside masks the table has a name of its own, and nothing else is made.
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
}

#[test]
fn names_that_are_no_tasks_are_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let (ct, out) = (oracle("ct.nii.gz"), dir.path().join("out"));
    for (name, says) in [
        ("covid", "covid cannot be run: TotalSegmentator 2 has switched the task off"),
        ("total_v1", "total_v1 cannot be run: these are the labels of TotalSegmentator 1"),
        ("kidney_cysts_auxiliary", "labels that the networks of kidney_cysts find beside its own"),
        ("total_highres_test", "total_highres_test cannot be run: its weights are unpublished"),
        ("heartchambers_highres", "need a licence"),
    ] {
        let error = run_error(&["segment", name, "-i", &ct, "-o", out.to_str().unwrap()]);
        assert!(error.contains(says) && error.contains("plimsoll segment --list"), "{error}");
    }
    assert!(!out.exists());
}

#[test]
fn names_that_no_label_map_can_have_are_told_before_anything_is_computed() {
    let dir = tempfile::tempdir().unwrap();
    let (ct, weights) = (oracle("ct.nii.gz"), oracle("weights"));
    let into = |out: &str, rest: &[&str]| {
        let out = dir.path().join(out);
        let args = ["segment", "total", "-i", &ct, "-o", out.to_str().unwrap(), "--weights", &weights];
        run_error(&[&args[..], rest].concat())
    };
    assert!(into("labels.nrrd", &["--ml"]).contains("let it end in .nii.gz"));
    assert!(into("labels.seg.nrrd", &[]).contains("--ml"));
    assert!(
        run_error(&["segment", "total", "-i", &ct, "-o", "x", "--stats-include-incomplete"])
            .contains("--statistics")
    );
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_series_of_dicom_is_one_image_and_one_that_is_not_complete_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let series =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/dicom/short").canonicalize().unwrap();
    let out = dir.path().join("labels.nii.gz");
    let weights = oracle("weights");
    let segment = |series: &str| {
        let args =
            ["segment", "total", "-i", series, "-o", out.to_str().unwrap(), "--ml", "--fast", "--weights"];
        let rest = [weights.as_str(), "--ram", "400MiB"];
        [&args[..], &rest].concat().into_iter().map(String::from).collect::<Vec<_>>()
    };
    let args = segment(series.to_str().unwrap());
    let report = run_json(&args.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(report["images"][0]["image"].as_str().unwrap(), series.to_str().unwrap());
    let found = volume(&out);
    assert_eq!(found.geometry().shape(), [6, 9, 12]);
    // The first pixel is at (-40.5, 20.25, 310) in LPS.
    let first = found.geometry().voxel_to_world([0.0; 3]);
    assert!(
        first.iter().zip([40.5, -20.25, 310.0]).all(|(found, known)| (found - known).abs() < 1e-3),
        "{first:?}"
    );
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);

    let incomplete = dir.path().join("incomplete");
    fs::create_dir(&incomplete).unwrap();
    for name in ["01", "02", "03", "04", "05"] {
        let name = format!("{name}.dcm");
        fs::copy(series.join(&name), incomplete.join(&name)).unwrap();
    }
    fs::remove_file(&out).unwrap();
    let args = segment(incomplete.to_str().unwrap());
    let told = run_error(&args.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(told.contains("5.000 mm, but slices are 2.500 mm apart: 1 missing"), "{told}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

/// An archive, and one file of many slices that is deflated, are images as the folder is; what was compressed with loss is said.
#[test]
fn archives_and_files_of_many_slices_are_images_and_loss_is_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let compressed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/dicom/compressed");
    let weights = oracle("weights");
    let segment = |input: &str, out: &str| {
        let (input, out) = (compressed.join(input), dir.path().join(out));
        let (input, out) = (input.to_str().unwrap(), out.to_str().unwrap());
        let args = ["segment", "total", "-i", input, "-o", out, "--ml", "--fast", "--weights", &weights];
        let done = run(&[&args[..], &["--ram", "400MiB"]].concat());
        let told = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "{told}");
        (volume(Path::new(out)).bytes().to_vec(), told)
    };
    let (folder, _) = segment("rle", "folder.nii.gz");
    let (archive, _) = segment("deflate.zip", "archive.nii.gz");
    assert!(folder == archive);
    let (one, told) = segment("enhanced/all.dcm", "one.nii.gz");
    let (deflated, _) = segment("enhanced_deflated/all.dcm", "deflated.nii.gz");
    assert!(one == deflated);
    assert!(!told.contains("with loss"), "{told}");
    let (_, told) = segment("jpeg_ls_near", "lossy.nii.gz");
    assert!(told.contains("warning: ") && told.contains("3 of 3 slices were compressed with loss"), "{told}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 5);
}
