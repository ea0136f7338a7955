//! The outputs of predictions: the width of labels, and pictures.

use std::fs;
use std::path::Path;

use image::RgbImage;
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{ElementType, VolumeFile, label_colour};

use super::{labels, model, oracles, run_json, text};

/// Regions are written as the values that the model names for them, whatever these are.
#[test]
fn values_of_regions_above_255_are_written_in_16_bits() {
    let dir = tempfile::tempdir().unwrap();
    let images = oracles().join("resenc_regions/images");
    let (from, copy) = (model("resenc_regions", "3d_fullres"), dir.path().join("T__P__3d_fullres"));
    fs::create_dir_all(copy.join("fold_0")).unwrap();
    let checkpoint = "fold_0/checkpoint_final.pth";
    for file in ["plans.json", checkpoint] {
        fs::copy(from.join(file), copy.join(file)).unwrap();
    }
    let said = fs::read_to_string(from.join("dataset.json")).unwrap();
    let mut said: serde_json::Value = serde_json::from_str(&said).unwrap();
    said["regions_class_order"] = serde_json::json!([1, 300, 65_535]);
    fs::write(copy.join("dataset.json"), said.to_string()).unwrap();
    let predict = |folder: &Path, name: &str| {
        let out = dir.path().join(name);
        run_json(&["predict", "-m", text(folder), "-f", "0", "-i", text(&images), "-o", text(&out)]);
        let file = fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().path());
        let file = file.into_iter().filter(|file| text(file).ends_with(".nii.gz")).min().unwrap();
        let mut file = VolumeFile::open(&file).unwrap();
        let element = file.element_type();
        let mut all: Vec<u16> = Vec::new();
        file.for_each_plane(0, &Budget::new(Bytes::mib(64)), |_, plane| {
            match element {
                ElementType::U8 => all.extend(plane.iter().map(|label| u16::from(*label))),
                _ => all.extend(plane.as_chunks::<2>().0.iter().map(|label| u16::from_ne_bytes(*label))),
            }
            Ok::<(), plimsoll_volume::VolumeError>(())
        })
        .unwrap();
        (element, all)
    };
    let (narrow, bytes) = predict(&from, "bytes");
    let (wide, found) = predict(&copy, "wide");
    assert_eq!((narrow, wide), (ElementType::U8, ElementType::U16));
    let expected: Vec<u16> = bytes.iter().map(|label| [0, 1, 300, 65_535][usize::from(*label)]).collect();
    assert!(found.contains(&300) && found == expected);
}

/// The drawing of a pixel of a preview.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Pixel {
    /// An intensity alone.
    Grey,
    /// The outline of a label.
    Outline(usize),
    /// A pixel inside a label.
    Filled,
    /// A name, or what is behind all.
    Other,
}

/// A label's colour is 95 % of its outline and 38 % of what it fills, and an intensity, 205 at most, is the rest.
fn pixel([red, green, blue]: [u8; 3], labels: usize) -> Pixel {
    if red == green && green == blue {
        return Pixel::Grey;
    }
    let has = |label: usize, share: f64| {
        // Labels have colours by the places of their names, of which the background has none.
        let colour = label_colour(label - 1).map(|part| share * 255.0 * part);
        let greys = [f64::from(red) - colour[0], f64::from(green) - colour[1], f64::from(blue) - colour[2]];
        let most = (1.0 - share) * 205.0;
        greys.iter().all(|grey| (-1.5..=most + 1.5).contains(grey) && (grey - greys[0]).abs() <= 2.0)
    };
    if let Some(label) = (1..=labels).find(|label| has(*label, 0.95)) {
        return Pixel::Outline(label);
    }
    if (1..=labels).any(|label| has(label, 0.38)) { Pixel::Filled } else { Pixel::Other }
}

#[test]
fn a_preview_of_each_case_has_the_outlines_of_its_labels() {
    let out = tempfile::tempdir().unwrap();
    let (images, folder) = (oracles().join("fullres/images"), model("fullres", "3d_fullres"));
    let args = ["predict", "-m", text(&folder), "-i", text(&images), "-o", text(out.path()), "--preview"];
    let report = run_json(&args);
    let cases = report["cases"].as_array().unwrap();
    assert!(cases.len() > 1);
    for case in cases {
        let (case, file) = (case["case"].as_str().unwrap(), Path::new(case["file"].as_str().unwrap()));
        let bytes = fs::read(out.path().join(format!("{case}.preview.png"))).unwrap();
        let picture: RgbImage = image::load_from_memory(&bytes).unwrap().to_rgb8();
        let (width, height) = picture.dimensions();
        assert!(width > 200 && height > 100, "{case}: {width} × {height}");
        let (_, _, voxels) = labels(file);
        let largest = usize::from(*voxels.iter().max().unwrap());
        let at = |x: u32, y: u32| pixel(picture.get_pixel(x, y).0, largest);
        let places = || (0..height - 1).flat_map(|y| (0..width - 1).map(move |x| (x, y)));
        for label in (1..=largest).filter(|label| voxels.contains(&(*label as u8))) {
            let outline = places().filter(|(x, y)| at(*x, *y) == Pixel::Outline(label)).count();
            assert!(outline > 20, "{case}: {outline} pixels of the outline of label {label}");
        }
        // Between what a label fills and what has none is its outline.
        let pairs = || places().flat_map(|(x, y)| [[at(x, y), at(x + 1, y)], [at(x, y), at(x, y + 1)]]);
        let open = [[Pixel::Filled, Pixel::Grey], [Pixel::Grey, Pixel::Filled]];
        assert!(places().filter(|(x, y)| at(*x, *y) == Pixel::Filled).count() > 100, "{case}");
        assert_eq!(pairs().filter(|pair| open.contains(pair)).count(), 0, "{case}");
    }
}
