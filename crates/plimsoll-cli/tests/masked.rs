//! Images that are zero around what they show are normalised inside of a mask, from training to prediction and export.

use std::fs;
use std::path::Path;

use crate::support::{Tiny, run_json};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{VolumeFile, VolumeWriter};
use serde_json::{Value, json};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Makes what is far from the centre of each image of a folder zero, as a tool that cuts skulls away does it.
fn cut_away(folder: &Path) {
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let mut file = VolumeFile::open(&path).unwrap();
        let (geometry, element) = (*file.geometry(), file.element_type());
        let shape = geometry.shape();
        let mut planes = Vec::new();
        let budget = Budget::new(Bytes::mib(16));
        file.for_each_plane(0, &budget, |_, plane| {
            planes.push(plane.to_vec());
            Ok::<(), plimsoll_volume::VolumeError>(())
        })
        .unwrap();
        let part = |at: usize, extent: usize| ((at as f64 + 0.5) / extent as f64 - 0.5).powi(2);
        for (d, plane) in planes.iter_mut().enumerate() {
            for (at, voxel) in plane.chunks_exact_mut(element.size()).enumerate() {
                let (h, w) = (at / shape[2], at % shape[2]);
                if part(d, shape[0]) + part(h, shape[1]) + part(w, shape[2]) > 0.1 {
                    voxel.fill(0);
                }
            }
        }
        drop(file);
        let mut writer = VolumeWriter::create(&path, &geometry, 1, element, None).unwrap();
        planes.iter().for_each(|plane| writer.write_planes(plane).unwrap());
        writer.finish().unwrap();
    }
}

#[test]
fn a_run_on_images_without_surroundings_is_normalised_inside_of_their_masks() {
    let tiny = Tiny::new();
    ["imagesTr", "imagesTs"].iter().for_each(|name| cut_away(&tiny.data.join(name)));
    let run = tiny.path("run");
    tiny.trained(&run, &["--net", "plain"]);
    let read = |path: &Path| -> Value { serde_json::from_slice(&fs::read(path).unwrap()).unwrap() };
    let specification = read(&run.join("fold_0/specification.json")).to_string();
    assert!(specification.contains("ZScoreNormalizationInMask"), "{specification}");
    // Validation has predicted whole cases.
    assert!(run.join("fold_0/validation/summary.json").is_file());

    let (images, out) = (tiny.data.join("imagesTs"), tiny.path("out"));
    let report = run_json(&["predict", text(&run), "-i", text(&images), "-o", text(&out), "--ram", "512MiB"]);
    assert_eq!(report["cases"].as_array().unwrap().len(), 1, "{report}");
    let planned = report["cases"][0]["plan"]["preparation_bytes"].as_u64().unwrap();
    assert!(planned > 0, "the mask is planned");

    let folder = tiny.path("nnunet");
    run_json(&["export", text(&run), "-o", text(&folder), "--format", "nnunet"]);
    let found = walk(&folder, "plans.json").unwrap();
    let configuration = &read(&found)["configurations"]["3d_fullres"];
    assert_eq!(configuration["use_mask_for_norm"], json!([true]));
    assert_eq!(configuration["normalization_schemes"], json!(["ZScoreNormalization"]));
    let again = tiny.path("again");
    let report =
        run_json(&["predict", text(&folder), "-i", text(&images), "-o", text(&again), "--ram", "512MiB"]);
    assert_eq!(report["cases"].as_array().unwrap().len(), 1, "{report}");
}

/// The file of a name below a folder.
fn walk(folder: &Path, name: &str) -> Option<std::path::PathBuf> {
    fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find_map(|path| if path.is_dir() { walk(&path, name) } else { path.ends_with(name).then_some(path) })
}
