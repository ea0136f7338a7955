//! Models of pictures and of stacks of pages: what they read, what they write, and what they refuse.

use std::fs;
use std::path::Path;

use plimsoll_volume::VolumeFile;
use serde_json::Value;

use super::{agreement, check, model, oracles, text};
use crate::support::{run_error, run_json};

/// A copy of a model whose data set has images that end otherwise.
fn with_ending(case: &str, configuration: &str, ending: &str, to: &Path) {
    let from = model(case, configuration);
    fs::create_dir_all(to.join("fold_0")).unwrap();
    for file in ["plans.json", "dataset.json", "fold_0/checkpoint_final.pth"] {
        fs::copy(from.join(file), to.join(file)).unwrap();
    }
    let file = to.join("dataset.json");
    let mut dataset: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    dataset["file_ending"] = ending.into();
    fs::write(&file, dataset.to_string()).unwrap();
}

#[test]
fn colour_pictures_of_three_formats() {
    let out = check("pictures", "2d", &[]);
    let dir = tempfile::tempdir().unwrap();
    for (images, ending, written) in [("images_bmp", ".bmp", ".png"), ("images_tif", ".tif", ".tif")] {
        let (folder, labels) = (dir.path().join(&ending[1..]), dir.path().join(images));
        with_ending("pictures", "2d", ending, &folder);
        let images = oracles().join("pictures").join(images);
        run_json(&[
            "predict",
            "-m",
            text(&folder),
            "-i",
            text(&images),
            "-o",
            text(&labels),
            "--ram",
            "1GiB",
        ]);
        for case in ["first", "second"] {
            let of = |folder: &Path, ending: &str| super::labels(&folder.join(format!("{case}{ending}")));
            assert_eq!(of(&labels, written), of(out.path(), ".png"), "{case}{ending}");
        }
    }
    let folder = dir.path().join("jpg");
    with_ending("pictures", "2d", ".jpg", &folder);
    let images = oracles().join("pictures/images");
    let error =
        run_error(&["predict", "-m", text(&folder), "-i", text(&images), "-o", text(&folder.join("out"))]);
    assert!(error.contains("`file_ending` is \".jpg\"") && error.contains(".bmp"), "{error}");
}

#[test]
fn stacks_of_pages_with_their_spacing_beside_them() {
    let out = check("stacks", "3d_fullres", &[]);
    // Windows are read page by page where there is no room for the whole case, to the same labels.
    let (images, folder) = (oracles().join("stacks/images"), model("stacks", "3d_fullres"));
    let low = tempfile::tempdir().unwrap();
    let args = ["predict", "-m", text(&folder), "-i", text(&images), "-o", text(low.path())];
    let report = run_json(&[&args[..], &["--ram", "92MiB"]].concat());
    assert!(report["peak_rss_bytes"].as_u64().unwrap() <= 92 << 20);
    assert_eq!(agreement(low.path(), out.path()), [1.0, 1.0]);
    let spacing = |file: &str| VolumeFile::open_labels(low.path().join(file)).unwrap().geometry().spacing().0;
    assert_eq!((spacing("first.tif"), spacing("second.tif")), ([1.4, 0.9, 0.8], [1.0; 3]));
    // What is said of the spacing must be one.
    let wrong = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(&images).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, wrong.path().join(path.file_name().unwrap())).unwrap();
    }
    fs::write(wrong.path().join("first.json"), "{\"spacing\": [1, 0, 1]}").unwrap();
    let to = wrong.path().join("out");
    let error = run_error(&["predict", "-m", text(&folder), "-i", text(wrong.path()), "-o", text(&to)]);
    assert!(error.contains("first.json") && error.contains("hint: write"), "{error}");
    // Pictures are no stacks, and stacks no pictures.
    let pictures = tempfile::tempdir().unwrap();
    for channel in ["0000", "0001"] {
        let grey = plimsoll_volume::Geometry::new(
            [1, 30, 30],
            plimsoll_volume::Affine::from_spacing(plimsoll_volume::Spacing([1.0; 3])),
        )
        .unwrap();
        let file = pictures.path().join(format!("a_{channel}.tif"));
        let mut writer =
            plimsoll_volume::VolumeWriter::create(&file, &grey, 1, plimsoll_volume::ElementType::U8, None)
                .unwrap();
        writer.write_planes(&[7; 900]).unwrap();
        writer.finish().unwrap();
    }
    let to = pictures.path().join("out");
    let error = run_error(&["predict", "-m", text(&folder), "-i", text(pictures.path()), "-o", text(&to)]);
    assert!(error.contains("has one plane") && error.contains("a page for each plane"), "{error}");
}
