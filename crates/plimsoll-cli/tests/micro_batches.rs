//! Validation depends on the weights and not on the micro-batch.

use crate::support;

use std::fs;
use std::path::Path;

use crate::support::Tiny;

/// The validation results of a run's epochs, as text.
fn validated(run: &Path) -> Vec<String> {
    let text = fs::read_to_string(run.join("fold_0/metrics.jsonl")).unwrap();
    let keys =
        ["validation_loss", "validation_loss_parts", "pseudo_dice", "mean_pseudo_dice", "ema_pseudo_dice"];
    let of_line = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        keys.map(|key| format!("{key} {}", line.get(key).unwrap())).join(", ")
    };
    text.lines().map(of_line).collect()
}

#[test]
fn validation_does_not_depend_on_the_micro_batch_the_limit_or_the_threads() {
    let tiny = Tiny::new();
    // So small that no weight changes: whatever the gradients were, the same weights are validated.
    let same_weights = ["--learning-rate", "1e-30", "--batch-size", "4", "--validation-iterations", "2"];
    let reference = tiny.path("reference");
    tiny.trained(&reference, &[&same_weights[..], &["--micro-batch", "4"]].concat());
    let expected = validated(&reference);
    assert_eq!(expected.len(), 2);
    assert!(!expected[0].contains("validation_loss null"), "{expected:?}");
    let ways: [&[&str]; 5] = [
        &["--micro-batch", "2"],
        &["--micro-batch", "1"],
        &["--micro-batch", "4", "--threads", "2"],
        &["--micro-batch", "4", "--ram", "1GiB"],
        &["--micro-batch", "1", "--threads", "3", "--loader-threads", "2", "--ram", "300MiB"],
    ];
    for (number, way) in ways.into_iter().enumerate() {
        let run = tiny.path(&number.to_string());
        tiny.trained(&run, &[&same_weights[..], way].concat());
        assert_eq!(validated(&run), expected, "{way:?}");
    }
}

#[test]
fn the_limit_and_threads_change_no_byte_of_a_run() {
    let tiny = Tiny::new();
    let reference = tiny.path("reference");
    tiny.trained(&reference, &["--micro-batch", "1"]);
    for (number, way) in [["--threads", "2"], ["--ram", "1GiB"], ["--loader-threads", "3"]].iter().enumerate()
    {
        let run = tiny.path(&number.to_string());
        tiny.trained(&run, &[&["--micro-batch", "1"][..], way].concat());
        support::expect_same(&run, &reference, &format!("with {way:?}"));
    }
}
