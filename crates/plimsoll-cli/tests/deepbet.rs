//! deepbet: labels of an imported model equal those of the package's own code. `oracles/deepbet.py` made the networks, the image and the labels.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{run_error, run_json};
use plimsoll_memory::{Budget, Bytes};
use plimsoll_volume::{Affine, ElementType, Geometry, VolumeError, VolumeFile, VolumeWriter};
use serde_json::Value;

fn oracle(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/deepbet").join(name)
}

/// The orientation of a stored image.
#[derive(Clone, Copy, PartialEq)]
enum Storage {
    /// The oracle's: to the right fastest, then forwards, then upwards.
    Canonical,
    /// Upwards fastest, then to the left, then backwards.
    Turned,
}

struct Example {
    folder: tempfile::TempDir,
    expected: Value,
    storage: Storage,
}

impl Example {
    /// Imports the small networks, and writes the image.
    fn new(storage: Storage) -> Example {
        let expected = fs::read_to_string(oracle("expected.json")).unwrap();
        let expected = serde_json::from_str(&expected).unwrap();
        let example = Example { folder: tempfile::tempdir().unwrap(), expected, storage };
        let imported =
            run_json(&["models", "import", oracle("").to_str().unwrap(), "-o", &example.path("model")]);
        assert_eq!(imported["files"], 3);
        // The oracle's networks see less than deepbet's.
        let file = example.folder.path().join("model/model.toml");
        let text = fs::read_to_string(&file).unwrap();
        let small =
            text.replace("[128, 128, 128]", "[64, 64, 64]").replace("[256, 256, 256]", "[96, 96, 96]");
        assert_ne!(small, text);
        fs::write(&file, small).unwrap();
        fs::create_dir(example.path("images")).unwrap();
        example.write_image();
        example
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_string()
    }

    fn shape(&self) -> [usize; 3] {
        [0, 1, 2].map(|axis| self.expected["shape"][axis].as_u64().unwrap() as usize)
    }

    /// The oracle's voxel at each stored one, in the order of storage; and the shape as stored.
    fn voxels(&self) -> (Vec<usize>, [usize; 3]) {
        let [depth, height, width] = self.shape();
        let of = |d: usize, h: usize, w: usize| (d * height + h) * width + w;
        match self.storage {
            Storage::Canonical => ((0..depth * height * width).collect(), [depth, height, width]),
            Storage::Turned => {
                let stored = [height, width, depth];
                let all = (0..height).flat_map(|a| {
                    (0..width)
                        .flat_map(move |b| (0..depth).map(move |c| of(c, height - 1 - a, width - 1 - b)))
                });
                (all.collect(), stored)
            }
        }
    }

    fn write_image(&self) {
        let [z, y, x] = [0, 1, 2].map(|axis| self.expected["spacing"][axis].as_f64().unwrap());
        let (voxels, shape) = self.voxels();
        let affine = Affine(match self.storage {
            Storage::Canonical => [[0.0, 0.0, x, 0.0], [0.0, y, 0.0, 0.0], [z, 0.0, 0.0, 0.0]],
            Storage::Turned => [[0.0, -x, 0.0, 0.0], [-y, 0.0, 0.0, 0.0], [0.0, 0.0, z, 0.0]],
        });
        let geometry = Geometry::new(shape, affine).unwrap();
        let image = self.expected["image"].as_array().unwrap();
        let values: Vec<i16> = image.iter().map(|value| value.as_i64().unwrap() as i16).collect();
        let bytes: Vec<u8> = voxels.iter().flat_map(|voxel| values[*voxel].to_ne_bytes()).collect();
        let path = self.folder.path().join("images/head_0000.nii.gz");
        let mut file = VolumeWriter::create(&path, &geometry, 1, ElementType::I16, None).unwrap();
        file.write_planes(&bytes).unwrap();
        file.finish().unwrap();
    }

    /// Predicts, and returns the number of voxels whose label is not deepbet's.
    fn differences(&self, options: &[&str]) -> usize {
        let (model, images, labels) =
            (self.path("model/model.toml"), self.path("images"), self.path("labels"));
        let mut arguments =
            vec!["predict", "-m", &model, "-i", &images, "-o", &labels, "--overwrite", "--ram", "256MiB"];
        arguments.extend(options);
        run_json(&arguments);
        let (voxels, _) = self.voxels();
        let mut expected = vec![0u8; voxels.len()];
        let runs = self.expected["brain"].as_array().unwrap();
        let ends: Vec<usize> = runs.iter().map(|end| end.as_u64().unwrap() as usize).collect();
        for ends in ends.chunks(2) {
            expected[ends[0]..ends[1]].fill(1);
        }
        let brain = expected.iter().filter(|label| **label == 1).count();
        assert!(brain > 5000 && brain < expected.len() / 2, "{brain}");
        let mut written = VolumeFile::open(self.folder.path().join("labels/head.nii.gz")).unwrap();
        let mut found = Vec::new();
        let visit = |_, plane: &[u8]| {
            found.extend_from_slice(plane);
            Ok::<(), VolumeError>(())
        };
        written.for_each_plane(0, &Budget::new(Bytes::mib(4)), visit).unwrap();
        assert_eq!(found.len(), expected.len());
        voxels.iter().zip(&found).filter(|(voxel, label)| expected[**voxel] != **label).count()
    }
}

/// The probability nearest to one half is off by 10⁻⁶, which f32 does not tell from it: 99.99 % of labels are equal at least.
#[test]
fn labels_are_those_of_deepbet() {
    let example = Example::new(Storage::Canonical);
    let all: usize = example.shape().iter().product();
    let differences = example.differences(&["--threads", "2"]);
    assert!(differences <= all / 10_000, "{differences} of {all}");
    assert_eq!(example.differences(&["--threads", "1"]), differences);
    // The networks are small and were not trained, so that many logits are close to each other.
    let differences = example.differences(&["--precision", "bf16"]);
    assert!(differences < all / 25, "{differences} of {all}");
}

#[test]
fn images_are_turned_to_the_axes_of_the_networks() {
    let example = Example::new(Storage::Turned);
    let all: usize = example.shape().iter().product();
    let differences = example.differences(&[]);
    assert!(differences <= all / 10_000, "{differences} of {all}");
}

#[test]
fn a_limit_that_is_too_low_is_refused_with_the_least_one_that_does() {
    let example = Example::new(Storage::Canonical);
    let (model, images, labels) =
        (example.path("model/model.toml"), example.path("images"), example.path("labels"));
    let arguments = ["predict", "-m", &model, "-i", &images, "-o", &labels, "--threads", "2", "--ram"];
    let limit = (64..120).find_map(|mebibytes| {
        let error = run_error(&[&arguments[..], &[&format!("{mebibytes}MiB")]].concat());
        assert!(!Path::new(&labels).join("head.nii.gz").exists());
        let (_, named) = error.split_once("raise the limit to --ram ")?;
        named.split([',', '\n']).next().map(str::to_string)
    });
    // Both networks have room below it.
    run_json(&[&arguments[..], &[&limit.unwrap()]].concat());
    assert!(Path::new(&labels).join("head.nii.gz").exists());
}

#[test]
fn what_cannot_be_marked_is_an_error_with_a_hint() {
    let example = Example::new(Storage::Canonical);
    let (model, images, labels) =
        (example.path("model/model.toml"), example.path("images"), example.path("labels"));
    let arguments = ["predict", "-m", &model, "-i", &images, "-o", &labels, "--ram", "256MiB"];
    let error = run_error(&[&arguments[..], &["--save_probabilities"]].concat());
    assert!(error.contains("head: its model keeps no probabilities"), "{error}");
    assert!(error.contains("hint: predict labels alone, without probabilities"), "{error}");
    // One value everywhere.
    let geometry =
        Geometry::new([9, 8, 7], Affine([[0.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]]));
    let path = example.folder.path().join("images/head_0000.nii.gz");
    let mut file = VolumeWriter::create(&path, &geometry.unwrap(), 1, ElementType::U8, None).unwrap();
    file.write_planes(&[7; 9 * 8 * 7]).unwrap();
    file.finish().unwrap();
    let error = run_error(&arguments);
    assert!(error.contains("head: its intensities cannot be normalised"), "{error}");
    assert!(error.contains("hint: check the image: it must have contrast"), "{error}");
    assert!(!Path::new(&labels).join("head.nii.gz").exists());
    fs::create_dir(example.path("networks")).unwrap();
    fs::copy(oracle("models/bbox_model.pt"), example.path("networks/bbox_model.pt")).unwrap();
    let error = run_error(&["models", "import", &example.path("networks"), "-o", &example.path("other")]);
    assert!(
        error.contains("model.pt is missing: deepbet has the networks bbox_model.pt and model.pt"),
        "{error}"
    );
    assert!(error.contains("hint: unpack the package deepbet again"), "{error}");
    assert!(!Path::new(&example.path("other")).exists());
}
