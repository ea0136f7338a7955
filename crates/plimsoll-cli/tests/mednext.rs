//! MedNeXt from training to labels: its checkpoints have the tensors of MONAI's state dict, and start networks with larger kernels.

use std::fs;

use plimsoll_graph::Shape;

use crate::one_step::{Step, tensor};
use crate::support::run_error;

pub const SETTINGS: &str = "[network]
net = \"mednext\"
init_filters = 4
encoder_blocks = [1, 1, 1]
decoder_blocks = [1, 1]
encoder_expansion = [2, 2, 2]
decoder_expansion = [2, 2]
grn = true
";

/// `out_0.conv_out` is a transposed convolution in MONAI, `[inputs, outputs, 1, 1, 1]`.
const HEAD: &str = "out_0.conv_out.weight";
const DEPTHWISE: &str = "enc_stages.0.0.conv1.weight";

#[test]
fn a_trained_network_predicts_and_its_checkpoint_is_read_as_it_was_written() {
    let step = Step::new(SETTINGS);
    let first = step.train("first", &[]);
    let (shape, head) = tensor(&first, HEAD);
    assert_eq!(shape, Shape(vec![4, 2, 1, 1, 1]));
    assert_eq!(tensor(&first, "bottleneck.0.global_resp_gamma").0, Shape(vec![1, 32, 1, 1, 1]));
    // A step of no length.
    let second = step.train("second", &["--start", first.to_str().unwrap(), "--learning-rate", "1e-20"]);
    assert_eq!(tensor(&second, HEAD).1, head);
    step.expect_labels("first");
}

#[test]
fn larger_kernels_start_from_smaller_ones_if_that_is_asked_for() {
    let step = Step::new(SETTINGS);
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
