//! Networks from a file of settings to labels: their checkpoints have the tensors of their authors' state dicts.

use plimsoll_graph::Shape;

use crate::one_step::{Step, tensor};
use crate::support::run_error;

/// Trains with settings, predicts with the result, and starts a step of no length from it: a tensor of the checkpoint has a shape, and is
/// read as it was written.
fn trains_and_predicts(settings: &str, name: &str, shape: &[usize]) {
    let step = Step::new(settings);
    let first = step.train("first", &[]);
    let (found, values) = tensor(&first, name);
    assert_eq!(found, Shape(shape.to_vec()));
    let second = step.train("second", &["--start", first.to_str().unwrap(), "--learning-rate", "1e-20"]);
    assert_eq!(tensor(&second, name).1, values);
    step.expect_labels("first");
}

/// The error of a plan with settings, and more arguments.
fn refusal(settings: &str, more: &[&str]) -> String {
    let step = Step::new(settings);
    let [data, settings] = [&step.tiny.data, &step.settings].map(|path| path.to_str().unwrap());
    run_error(&[&["plan", data, "--config", settings, "--ram", "1GiB"], more].concat())
}

const ATTENTION_UNET: &str = "[network]
net = \"attentionunet\"
features = [4, 6, 8]
";

#[test]
fn an_attention_unet_trains_predicts_and_is_read_as_it_was_written() {
    let gate = "model.1.submodule.1.attention.W_g.0.conv.weight";
    trains_and_predicts(ATTENTION_UNET, gate, &[3, 6, 1, 1, 1]);
}

#[test]
fn settings_that_an_attention_unet_cannot_have_are_refused_by_name() {
    let even = refusal(&format!("{ATTENTION_UNET}kernel_size = 4\n"), &[]);
    assert!(even.contains("`kernel_size` is 4") && even.contains("odd"), "{even}");
    let supervised = refusal(&format!("{ATTENTION_UNET}deep_supervision = 1\n"), &[]);
    assert!(supervised.contains("deep_supervision") && supervised.contains("attentionunet"), "{supervised}");
}

#[test]
fn a_plan_of_an_attention_unet_for_a_gpu_names_the_op_that_is_missing() {
    let said = refusal(ATTENTION_UNET, &["--device", "sm_80", "--vram", "4GiB"]);
    assert!(said.contains("voxel_gate") && said.contains("--device"), "{said}");
}

const STUNET: &str = "[network]
net = \"stunet\"
features = [4, 6]
strides = [[1, 1, 1], [2, 2, 2]]
encoder_blocks = [2, 1]
deep_supervision = 0
";

#[test]
fn a_stunet_trains_predicts_and_is_read_as_it_was_written() {
    trains_and_predicts(STUNET, "upsample_layers.0.conv.weight", &[4, 6, 1, 1, 1]);
}

#[test]
fn settings_that_a_stunet_cannot_have_are_refused_by_name() {
    let medium = refusal(&format!("{STUNET}size = \"m\"\n"), &[]);
    assert!(medium.contains("`size` is m") && medium.contains("s, b, l"), "{medium}");
    let grn = refusal(&format!("{STUNET}grn = true\n"), &[]);
    assert!(grn.contains("grn") && grn.contains("stunet"), "{grn}");
}
