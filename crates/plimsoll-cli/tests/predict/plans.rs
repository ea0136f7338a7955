//! The memory and the time of a prediction, printed before it.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{Folders, model, names, outcome, sound};
use crate::support::plimsoll;

#[test]
fn a_plan_is_made_of_headers_alone_says_what_each_case_takes_and_calls_out_the_one_that_is_unusual() {
    let folders = Folders::new();
    for case in ["a", "b", "done"] {
        folders.add_sound(case);
    }
    // Its header is whole; its voxels are not there.
    let whole = fs::read(sound()).unwrap();
    fs::write(folders.images().join("cut_0000.nii.gz"), &whole[..whole.len() / 2]).unwrap();
    // Seen at the spacing of training, a thousand times as large, and with more at its least limit than the others whatever its strips.
    folders.add("wide", [1e-2; 3]);
    fs::create_dir(folders.labels()).unwrap();
    fs::write(folders.labels().join("done.nii.gz"), "labels").unwrap();
    let (succeeded, plans, errors) = outcome(&folders.args(&model(), &["--plan", "--ram", "2GiB"]));
    assert!(succeeded, "{errors}");
    let plan = &plans[0];
    assert_eq!(names(plan, "cases"), ["a", "b", "cut", "wide"]);
    assert_eq!((&plan["kept"], plan["refused"].as_array().unwrap().len()), (&Value::from(1), 0));
    let windows = |case: usize| plan["cases"][case]["plan"]["windows"].as_u64().unwrap();
    assert_eq!((windows(0), windows(2)), (windows(1), windows(0)));
    assert!(windows(3) > 20 * windows(0), "{plan}");
    let outliers: Vec<bool> = (0..4).map(|case| !plan["cases"][case]["outlier"].is_null()).collect();
    assert_eq!(outliers, [false, false, false, true]);
    assert!(plan["predicted_seconds"].as_f64().unwrap() > 0.0);
    assert_eq!(folders.written(), ["done.nii.gz"]);

    // As people see it; and a limit that is too low for one of them.
    let seen = |ram: &str| {
        let output = plimsoll().args(folders.args(&model(), &["--plan", "--ram", ram])).output().unwrap();
        (
            output.status.success(),
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (succeeded, said, errors) = seen("2GiB");
    assert!(
        succeeded && said.contains("least limit") && said.contains("1 predictions already exist"),
        "{said}"
    );
    let warning = errors.lines().find(|line| line.starts_with("warning: wide has ")).unwrap();
    assert!(warning.contains("where the median is") && warning.contains("check the spacing"), "{warning}");
    let least = |case: usize| plan["cases"][case]["least_ram_bytes"].as_u64().unwrap();
    assert!(least(0) < least(3));
    let (succeeded, _, errors) = seen(&(least(3) - 1).to_string());
    assert!(!succeeded && errors.contains("error: 1 of 5 cases could not be predicted: wide"), "{errors}");
    assert!(errors.contains("hint: raise the limit to --ram"), "{errors}");

    // What was planned is what is done; what is not there is told at its turn.
    for case in ["wide", "done", "b"] {
        fs::remove_file(folders.images().join(format!("{case}_0000.nii.gz"))).unwrap();
    }
    let (succeeded, report, errors) = outcome(&folders.args(&model(), &["--ram", "2GiB"]));
    assert!(!succeeded && errors.contains("1 of 2 cases could not be predicted: cut"), "{errors}");
    assert_eq!(report["cases"][0]["windows"], windows(0));
    let times = &report["cases"][0]["times"];
    let seconds = |part: &str| times[format!("{part}_seconds")].as_f64().unwrap();
    let parts = ["read", "prepare", "pull", "forward", "sum", "export", "write"];
    let all: f64 = parts.into_iter().map(seconds).sum();
    let whole = report["cases"][0]["seconds"].as_f64().unwrap();
    assert!((all - whole).abs() < 0.05 * whole + 0.01, "{times} is not all of {whole} s");
}

/// The limit in MiB from which a hint says that one window at a time would do.
fn limit_for_one_window(said: &str) -> u64 {
    let hint = said.lines().find_map(|line| line.strip_prefix("hint: ")).unwrap();
    let of_one =
        hint.split(", or ").find(|way| way.contains("--window-batch 1")).unwrap_or_else(|| panic!("{hint}"));
    let before = of_one.split("MiB").next().unwrap();
    before.rsplit(|letter: char| !letter.is_ascii_digit()).next().unwrap().parse().unwrap()
}

#[test]
fn on_a_device_the_limit_from_which_one_window_would_do_is_the_least_that_does() {
    let folders = Folders::new();
    folders.add_sound("a");
    let own = (model(), folders.images());
    let of_monai = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles/monai/dynunet");
    let of_monai = (of_monai.join("model.toml").to_str().unwrap().to_string(), of_monai.join("images"));
    // The device sums windows of the one. Weights of the other are no products, so this process sums what is copied of all windows at once.
    for ((model, images), by_device) in [(own, true), (of_monai, false)] {
        let (images, labels) = (images.to_str().unwrap(), folders.labels());
        let plan = |ram: &str, windows: &str| {
            let of = ["predict", &model, "-i", images, "-o", labels.to_str().unwrap(), "--plan"];
            let on = ["--device", "sm_80", "--vram", "8GiB", "--ram", ram, "--window-batch", windows];
            outcome(&[&of[..], &on[..]].concat().iter().map(|arg| arg.to_string()).collect::<Vec<_>>())
        };
        let least = |windows: &str| {
            let (succeeded, plans, errors) = plan("4GiB", windows);
            assert!(succeeded, "{errors}");
            let case = &plans[0]["cases"][0];
            assert_eq!(case["plan"]["host_sums"].is_null(), by_device, "{case}");
            case["least_ram_bytes"].as_u64().unwrap()
        };
        let (of_one, of_many) = (least("1"), least("256"));
        assert!(of_many > of_one + (4 << 20), "{of_many} and {of_one}");
        let (succeeded, _, errors) = plan(&(of_many - 1).to_string(), "256");
        assert!(!succeeded, "{errors}");
        let said = limit_for_one_window(&errors);
        assert_eq!(said, of_one.div_ceil(1 << 20), "{errors}");
        let (succeeded, _, errors) = plan(&format!("{said}MiB"), "1");
        assert!(succeeded, "{errors}");
    }
}
