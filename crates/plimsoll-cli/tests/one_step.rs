//! A training of one step with the settings of a network, and what it leaves.

use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_graph::Shape;
use plimsoll_nn::weights::SafetensorsFile;

use crate::support::{Tiny, run_json};

/// A training of one fold and one step.
pub struct Step {
    pub tiny: Tiny,
    /// The file of settings.
    pub settings: PathBuf,
    /// The patch, along depth, height and width.
    pub patch: &'static str,
}

impl Step {
    /// The data of the training, and a file of settings.
    pub fn new(settings: &str) -> Step {
        let tiny = Tiny::new();
        let path = tiny.path("network.toml");
        fs::write(&path, settings).unwrap();
        Step { tiny, settings: path, patch: "8,8,8" }
    }

    /// The path of a file or folder beside the data.
    pub fn path(&self, name: &str) -> String {
        self.tiny.path(name).to_str().unwrap().to_string()
    }

    /// The arguments of a run in a folder.
    pub fn arguments(&self, run: &str, more: &[&str]) -> Vec<String> {
        let [data, settings] =
            [&self.tiny.data, &self.settings].map(|path| path.to_str().unwrap().to_string());
        let mut all =
            vec!["train".to_string(), data, "--out".into(), self.path(run), "--config".into(), settings];
        let usual = [
            "--fold",
            "0",
            "--ram",
            "512MiB",
            "--threads",
            "1",
            "--patch-size",
            self.patch,
            "--epochs",
            "1",
            "--iterations",
            "1",
            "--validation-iterations",
            "1",
            "--skip-validation",
        ];
        all.extend(usual.iter().chain(more).map(ToString::to_string));
        all
    }

    /// Trains, and returns the checkpoint.
    pub fn train(&self, run: &str, more: &[&str]) -> PathBuf {
        let arguments = self.arguments(run, more);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        assert_eq!(run_json(&arguments)["steps"], 1);
        self.tiny.path(run).join("fold_0/checkpoint_final.safetensors")
    }

    /// Predicts with a run, and checks that there is a label map for each image.
    pub fn expect_labels(&self, run: &str) {
        let labels = self.path(&format!("labels of {run}"));
        let images = self.tiny.data.join("imagesTs");
        run_json(&[
            "predict",
            &self.path(run),
            "-i",
            images.to_str().unwrap(),
            "-o",
            &labels,
            "--ram",
            "512MiB",
        ]);
        let count = |folder: &Path| {
            let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
            names.filter(|name| name.to_str().unwrap().ends_with(".nii.gz")).count()
        };
        assert_eq!(count(Path::new(&labels)), count(&images));
        assert!(count(&images) > 0);
    }
}

/// The shape and the values of a tensor of a checkpoint.
pub fn tensor(file: &Path, name: &str) -> (Shape, Vec<f32>) {
    let mut file = SafetensorsFile::open(file).unwrap();
    let shape = file.shape(name).unwrap();
    let mut values = vec![0.0; shape.count()];
    file.read(name, &shape, &mut values).unwrap();
    (shape, values)
}
