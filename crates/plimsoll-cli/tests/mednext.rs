//! MedNeXt from training to labels: its checkpoints have the tensors of MONAI's state dict, and start networks with larger kernels.

use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_graph::Shape;
use plimsoll_nn::weights::SafetensorsFile;

use crate::support::{Tiny, run_error, run_json};

const SETTINGS: &str = "[network]
net = \"mednext\"
init_filters = 4
encoder_blocks = [1, 1, 1]
decoder_blocks = [1, 1]
encoder_expansion = [2, 2, 2]
decoder_expansion = [2, 2]
grn = true
";

/// A training of one fold and one step.
struct Step {
    tiny: Tiny,
    settings: PathBuf,
}

impl Step {
    fn new() -> Step {
        let tiny = Tiny::new();
        let settings = tiny.path("mednext.toml");
        fs::write(&settings, SETTINGS).unwrap();
        Step { tiny, settings }
    }

    fn path(&self, name: &str) -> String {
        self.tiny.path(name).to_str().unwrap().to_string()
    }

    /// The arguments of a run in a folder.
    fn arguments(&self, run: &str, more: &[&str]) -> Vec<String> {
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
            "8,8,8",
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

    fn train(&self, run: &str, more: &[&str]) -> PathBuf {
        let arguments = self.arguments(run, more);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        assert_eq!(run_json(&arguments)["steps"], 1);
        self.tiny.path(run).join("fold_0/checkpoint_final.safetensors")
    }
}

fn tensor(file: &Path, name: &str) -> (Shape, Vec<f32>) {
    let mut file = SafetensorsFile::open(file).unwrap();
    let shape = file.shape(name).unwrap();
    let mut values = vec![0.0; shape.count()];
    file.read(name, &shape, &mut values).unwrap();
    (shape, values)
}

/// `out_0.conv_out` is a transposed convolution in MONAI, `[inputs, outputs, 1, 1, 1]`.
const HEAD: &str = "out_0.conv_out.weight";
const DEPTHWISE: &str = "enc_stages.0.0.conv1.weight";

#[test]
fn a_trained_network_predicts_and_its_checkpoint_is_read_as_it_was_written() {
    let step = Step::new();
    let first = step.train("first", &[]);
    let (shape, head) = tensor(&first, HEAD);
    assert_eq!(shape, Shape(vec![4, 2, 1, 1, 1]));
    assert_eq!(tensor(&first, "bottleneck.0.global_resp_gamma").0, Shape(vec![1, 32, 1, 1, 1]));
    // A step of no length.
    let second = step.train("second", &["--start", first.to_str().unwrap(), "--learning-rate", "1e-20"]);
    assert_eq!(tensor(&second, HEAD).1, head);
    let labels = step.path("labels");
    let images = step.tiny.data.join("imagesTs");
    run_json(&[
        "predict",
        &step.path("first"),
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

#[test]
fn larger_kernels_start_from_smaller_ones_if_that_is_asked_for() {
    let step = Step::new();
    let small = step.train("small", &[]);
    fs::write(&step.settings, format!("{SETTINGS}kernel_size = 5\n")).unwrap();
    let weights = ["--start", small.to_str().unwrap(), "--learning-rate", "1e-20"];
    let arguments = step.arguments("refused", &weights);
    let said = run_error(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(said.contains("has shape [4×1×3×3×3], but the network needs [4×1×5×5×5]"), "{said}");
    let large = step.train("large", &[&weights[..], &["--upkern"]].concat());
    let ((_, small), (shape, large)) = (tensor(&small, DEPTHWISE), tensor(&large, DEPTHWISE));
    assert_eq!(shape, Shape(vec![4, 1, 5, 5, 5]));
    // The corner and the centre of a kernel of five lie nearest to the corner and the centre of one of three.
    for (small, large) in small.chunks(27).zip(large.chunks(125)) {
        assert!((small[0] - large[0]).abs() < 1e-6 && (small[13] - large[62]).abs() < 1e-6);
    }
}

#[test]
fn a_plan_for_a_gpu_refuses_it_by_the_name_of_what_is_missing() {
    let step = Step::new();
    let [data, settings] = [&step.tiny.data, &step.settings].map(|path| path.to_str().unwrap());
    let said = run_error(&[
        "plan", data, "--config", settings, "--device", "sm_80", "--ram", "1GiB", "--vram", "4GiB",
    ]);
    assert!(said.contains("response_norm") && said.contains("--device"), "{said}");
}
