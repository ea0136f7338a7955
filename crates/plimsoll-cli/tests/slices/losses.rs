//! Losses that see shapes, on single slices.

use std::fs;

use super::discs;
use crate::support::run_json;

#[test]
fn losses_that_see_shapes_are_those_of_the_plane() {
    let dir = tempfile::tempdir().unwrap();
    let data = discs::volumes(dir.path());
    let settings = dir.path().join("settings.toml");
    for name in [
        "boundary",
        "hausdorff_dt",
        "log_hausdorff_dt",
        "surface_distance",
        "cldice",
        "morph_skeleton",
        "toploss_simple",
        "skeleton_recall",
    ] {
        let toml = format!(
            "[[loss.components]]\nname = \"cross_entropy\"\n[[loss.components]]\nname = \"{name}\"\nscale = 2\n"
        );
        fs::write(&settings, toml).unwrap();
        let out = dir.path().join(name);
        let mut args =
            vec!["train", data.to_str().unwrap(), "--out", out.to_str().unwrap(), "--ram", "512MiB"];
        args.extend(["--threads", "1", "--config", settings.to_str().unwrap(), "--dimensions", "2"]);
        args.extend(["--features", "4,8", "--patch-size", "1,32,32", "--batch-size", "2", "--epochs", "1"]);
        args.extend(["--iterations", "2", "--validation-iterations", "1", "--skip-validation"]);
        let record = run_json(&args);
        assert_eq!(record["steps"], 2, "{name}");
    }
}
