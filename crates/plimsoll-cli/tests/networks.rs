//! Networks from a file of settings to labels: their checkpoints have the tensors of their authors' state dicts.

use plimsoll_graph::Shape;

use crate::one_step::{Step, tensor};
use crate::support::{run_error, run_json};

/// Trains, predicts with the result, and starts a step of no length from it: a tensor of the checkpoint has a shape, and is
/// read as it was written.
fn trains_and_predicts(step: &Step, name: &str, shape: &[usize]) {
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
    trains_and_predicts(&Step::new(ATTENTION_UNET), gate, &[3, 6, 1, 1, 1]);
}

#[test]
fn settings_that_an_attention_unet_cannot_have_are_refused_by_name() {
    let even = refusal(&format!("{ATTENTION_UNET}kernel_size = 4\n"), &[]);
    assert!(even.contains("`kernel_size` is 4") && even.contains("odd"), "{even}");
    let supervised = refusal(&format!("{ATTENTION_UNET}deep_supervision = 1\n"), &[]);
    assert!(supervised.contains("deep_supervision") && supervised.contains("attentionunet"), "{supervised}");
}

#[test]
fn networks_with_gates_positions_and_attention_are_planned_for_a_gpu() {
    let card = ["--patch-size", "16,16,16", "--device", "sm_80", "--vram", "4GiB"];
    for settings in [ATTENTION_UNET, UNETR, PRIMUS, crate::mednext::SETTINGS] {
        let step = Step::new(settings);
        let [data, config] = [&step.tiny.data, &step.settings].map(|path| path.to_str().unwrap());
        let plan = run_json(&[&["plan", data, "--config", config, "--ram", "1GiB"], &card[..]].concat());
        assert_eq!(plan["feasible"], true, "{plan}");
    }
    let wide =
        PRIMUS.replace("hidden_size = 12", "hidden_size = 102").replace("num_heads = [2]", "num_heads = [1]");
    let said = refusal(&wide, &card);
    assert!(
        said.contains("rotary_attention") && said.contains("102 channels") && said.contains("at most 96"),
        "{said}"
    );
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
    trains_and_predicts(&Step::new(STUNET), "upsample_layers.0.conv.weight", &[4, 6, 1, 1, 1]);
}

#[test]
fn settings_that_a_stunet_cannot_have_are_refused_by_name() {
    let medium = refusal(&format!("{STUNET}size = \"m\"\n"), &[]);
    assert!(medium.contains("`size` is m") && medium.contains("s, b, l"), "{medium}");
    let grn = refusal(&format!("{STUNET}grn = true\n"), &[]);
    assert!(grn.contains("grn") && grn.contains("stunet"), "{grn}");
}

const UNETR: &str = "[network]
net = \"unetr\"
feature_size = 2
hidden_size = 12
num_heads = [2]
mlp_ratio = 2.0
";

#[test]
fn a_unetr_trains_predicts_and_is_read_as_it_was_written() {
    let step = Step { patch: "16,16,16", ..Step::new(UNETR) };
    trains_and_predicts(&step, "vit.patch_embedding.position_embeddings", &[1, 1, 12]);
    let qkv =
        tensor(&step.tiny.path("first/fold_0/checkpoint_final.safetensors"), "vit.blocks.11.attn.qkv.weight");
    assert_eq!(qkv.0, Shape(vec![36, 12]));
}

#[test]
fn settings_that_a_unetr_cannot_have_are_refused_by_name() {
    let heads = refusal(&UNETR.replace("[2]", "[5]"), &[]);
    assert!(heads.contains("`num_heads` is 5") && heads.contains("12 channels"), "{heads}");
    let patch = refusal(UNETR, &["--patch-size", "16,20,16"]);
    assert!(patch.contains("a multiple of [16, 16, 16]") && patch.contains("16 × 32 × 16"), "{patch}");
}

const PRIMUS: &str = "[network]
net = \"primus\"
version = 2
hidden_size = 12
depths = [2]
num_heads = [2]
";

#[test]
fn a_primus_trains_predicts_and_is_read_as_it_was_written() {
    let step = Step { patch: "16,16,16", ..Step::new(PRIMUS) };
    trains_and_predicts(&step, "eva.pos_embed", &[1, 8, 12]);
    let checkpoint = step.tiny.path("first/fold_0/checkpoint_final.safetensors");
    let shape = |name: &str| tensor(&checkpoint, name).0.0;
    assert_eq!(shape("mask_token"), [1, 1, 12]);
    assert_eq!(shape("eva.blocks.1.attn.q_proj.weight"), [12, 12]);
    assert_eq!(shape("down_projection.stem.blocks.0.conv1.conv.bias"), [32]);
    assert_eq!(shape("up_projection.decode.2.weight")[2..], [2, 2, 2]);

    // Weights of another depth, of another version, or cut short.
    let start = |settings: &str, weights: &str| {
        let other = Step { patch: "16,16,16", ..Step::new(settings) };
        let arguments = other.arguments("other", &["--start", weights]);
        run_error(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let weights = checkpoint.to_str().unwrap();
    let deeper = start(&PRIMUS.replace("depths = [2]", "depths = [3]"), weights);
    assert!(deeper.contains("eva.blocks.2.") && deeper.contains(weights), "{deeper}");
    let version = start(&PRIMUS.replace("version = 2", "version = 1"), weights);
    assert!(version.contains("down_projection.proj.weight"), "{version}");
    let whole = std::fs::read(&checkpoint).unwrap();
    let cut = step.tiny.path("cut.safetensors");
    std::fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    let cut = cut.to_str().unwrap();
    assert!(start(PRIMUS, cut).contains(cut));
}

#[test]
fn settings_that_a_primus_cannot_have_are_refused_by_name() {
    let heads = refusal(&PRIMUS.replace("num_heads = [2]", "num_heads = [3]"), &[]);
    assert!(heads.contains("`num_heads` is 3") && heads.contains("12 channels"), "{heads}");
    let version = refusal(&PRIMUS.replace("version = 2", "version = 4"), &[]);
    assert!(version.contains("`version` is 4") && version.contains("from 1 to 3"), "{version}");
    let patch = refusal(PRIMUS, &["--patch-size", "16,20,16"]);
    assert!(patch.contains("a multiple of [8, 8, 8]") && patch.contains("16 × 24 × 16"), "{patch}");
    let slices = refusal(PRIMUS, &["--patch-size", "1,16,16"]);
    assert!(slices.contains("slices"), "{slices}");
}
