//! Numbers that no run can have are refused at once, each by its name and with its bound.

use std::fs;
use std::path::Path;

use crate::support::{dataset, error_of, within_a_second};

/// Runs a command that must fail within one second of processor time, however busy the machine is.
fn refused_at_once(args: &[&str]) -> String {
    error_of(&mut within_a_second(), args)
}

fn expect_named(error: &str, setting: &str, case: &str) {
    assert!(error.contains(&format!("`{setting}` is ")), "{case}: {error}");
    assert!(!error.contains("panicked"), "{case}: {error}");
}

#[test]
fn settings_beyond_their_bounds_are_refused_at_once_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let data = dataset(dir.path());
    let config = dir.path().join("hostile.toml");
    let (data, config_path) = (data.to_str().unwrap(), config.to_str().unwrap());
    let sixteen = vec!["[16, 16, 16]"; 16].join(", ");
    let strides = format!("[network]\nstrides = [{sixteen}]");
    let many = format!("[network]\nfeatures = [{}]", vec!["8"; 8_000].join(", "));
    let table: &[(&str, &str)] = &[
        ("encoder_convs", "[network]\nencoder_convs = [2, 3000]"),
        ("encoder_convs", "[network]\nencoder_convs = [0, 2]"),
        ("decoder_convs", "[network]\ndecoder_convs = [9223372036854775807]"),
        ("features", "[network]\nfeatures = [1000000, 8]"),
        ("features", &many),
        ("kernels", "[network]\nkernels = [[1000000001, 3, 3], [3, 3, 3]]"),
        ("strides", "[network]\nstrides = [[1, 1, 1], [9223372036854775807, 2, 2]]"),
        ("strides", &strides),
        ("deep_supervision", "[network]\ndeep_supervision = 9223372036854775807"),
        ("dropout", "[network]\ndropout = nan"),
        ("dropout", "[network]\ndropout = -0.1"),
        ("patch_size", "patch_size = [9223372036854775807, 1, 1]"),
        ("patch_size", "patch_size = [4096, 4096, 4096]"),
        ("patch_size", "patch_size = [0, 16, 16]"),
        ("batch_size", "batch_size = 9223372036854775807"),
        ("batch_size", "batch_size = 0"),
        ("micro_batch", "micro_batch = 9223372036854775807"),
        ("epochs", "epochs = 9223372036854775807"),
        ("epochs", "epochs = 4294967296\niterations_per_epoch = 4294967296"),
        ("iterations_per_epoch", "iterations_per_epoch = 0"),
        ("validation_iterations", "validation_iterations = 9223372036854775807"),
        ("oversample_foreground", "oversample_foreground = nan"),
        ("oversample_foreground", "oversample_foreground = 1.5"),
        ("spacing", "spacing = [nan, 1.0, 1.0]"),
        ("spacing", "spacing = [1.0, -1.0, 1.0]"),
        ("spacing", "spacing = [inf, 1.0, 1.0]"),
        ("spacing", "spacing = [1e-300, 1.0, 1.0]"),
        ("p_rotation", "[augmentation]\np_rotation = inf"),
        ("scaling", "[augmentation]\nscaling = [0.0, 1.0]"),
        ("gamma", "[augmentation]\ngamma = [nan, nan]"),
    ];
    for (setting, toml) in table {
        fs::write(&config, toml).unwrap();
        let error = refused_at_once(&["plan", data, "--ram", "512MiB", "--config", config_path]);
        expect_named(&error, setting, &toml[..toml.len().min(80)]);
        let out = dir.path().join("run");
        let train = ["train", data, "--out", out.to_str().unwrap(), "--config", config_path];
        expect_named(&refused_at_once(&train), setting, toml);
        assert!(!out.exists(), "a run was begun with {toml}");
    }
    // Too large to be a number of the file format at all.
    fs::write(&config, "seed = 1\nepochs = 18446744073709551616").unwrap();
    let error = refused_at_once(&["plan", data, "--config", config_path]);
    assert!(error.contains("hostile.toml, line 2"), "{error}");
}

#[test]
fn flags_beyond_their_bounds_are_refused_at_once_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let data = dataset(dir.path());
    let data = data.to_str().unwrap();
    let largest = u64::MAX.to_string();
    for (setting, flags) in [
        ("features", ["--features", "1000000,8"]),
        ("features", ["--features", &largest]),
        ("patch_size", ["--patch-size", &largest]),
        ("batch_size", ["--batch-size", &largest]),
        ("micro_batch", ["--micro-batch", &largest]),
        ("epochs", ["--epochs", &largest]),
        ("iterations_per_epoch", ["--iterations", &largest]),
        ("validation_iterations", ["--validation-iterations", &largest]),
        ("dropout", ["--dropout", "nan"]),
        ("spacing", ["--spacing", "inf"]),
        ("spacing", ["--spacing", "0"]),
    ] {
        let args = [&["plan", data, "--ram", "512MiB", "--config", "/dev/null"][..], &flags].concat();
        expect_named(&refused_at_once(&args), setting, &flags.join(" "));
    }
    // Nothing is read where a setting is refused: not even whether there is a data set.
    let nowhere = Path::new("/nowhere/at/all").to_str().unwrap();
    let error = refused_at_once(&["plan", nowhere, "--config", "/dev/null", "--batch-size", "5000"]);
    assert!(error.contains("`batch_size` is 5000, but it must be from 1 to 4096"), "{error}");
}

#[test]
fn measurements_have_the_bounds_of_runs() {
    for (setting, flags) in [
        ("features", &["--features", "1000000,8"][..]),
        ("patch_size", &["--size", "18446744073709551615"]),
        ("batch_size", &["--batch", "18446744073709551615"]),
        ("batch_size", &["--size", "1024", "--batch", "4096"]),
    ] {
        let error = refused_at_once(&[&["bench", "step"][..], flags].concat());
        expect_named(&error, setting, &flags.join(" "));
    }
}
