//! Errors end in a hint that fits them, and the program lists all settings.

use std::fs;

use crate::support::{run, run_error, run_json};

fn hint(args: &[&str]) -> String {
    let error = run_error(args);
    error.lines().find_map(|line| line.strip_prefix("hint: ")).unwrap().to_string()
}

#[test]
fn an_unknown_flag_is_answered_with_the_nearest_or_with_the_commands_own_help() {
    assert_eq!(hint(&["plan", "data", "--batchsize", "2"]), "did you mean `--batch-size`?");
    assert_eq!(hint(&["plan", "data", "--gpu"]), "`plimsoll plan --help` lists commands and options");
    assert_eq!(hint(&["bench", "step", "--gpu"]), "`plimsoll bench step --help` lists commands and options");
    assert_eq!(hint(&["trian", "data"]), "did you mean `train`?");
    assert!(hint(&["plan"]).starts_with("Usage: plimsoll plan"));
}

#[test]
fn a_memory_limit_without_its_unit_is_asked_back() {
    for (given, meant) in [("2", "2GiB"), ("1.5", "1.5GiB"), ("2000", "2000MiB")] {
        let error = run_error(&["plan", "data", "--ram", given]);
        assert!(error.contains(&format!("did you mean {meant}?")), "{error}");
    }
    let error = run_error(&["plan", "data", "--ram", "2"]);
    assert!(error.contains("--ram 2 is 2 bytes; did you mean 2GiB?"), "{error}");
    // With its unit, or as many bytes as memory has, a limit is a limit: what is missing is the data set.
    for given in ["1GiB", "1073741824"] {
        let error = run_error(&["plan", "/nowhere/at/all", "--ram", given]);
        assert!(error.contains("/nowhere/at/all"), "{error}");
    }
}

#[test]
fn a_number_of_threads_that_no_machine_has_is_refused_and_not_changed_silently() {
    for given in ["0", "257", "18446744073709551616"] {
        let error = run_error(&["plan", "data", "--threads", given]);
        assert!(error.contains("from 1 to 256 threads"), "{error}");
    }
}

#[test]
fn settings_are_listed_with_defaults_and_hints_say_where() {
    let list = run_json(&["settings"]);
    let line = |key: &str| list.as_array().unwrap().iter().find(|line| line["key"] == key).unwrap().clone();
    assert_eq!(line("epochs")["default"]["is"], "1000");
    assert_eq!(line("seed")["default"]["is"], "0");
    assert!(
        line("batch_size")["default"]["follows"].as_str().unwrap().starts_with("2; more where a patch holds")
    );
    assert!(line("learning_rate")["default"]["follows"].as_str().unwrap().contains("0.001 for adamw"));
    let printed = String::from_utf8(run(&["settings"]).stdout).unwrap();
    for said in ["[network]", "encoder_convs", "[[loss.components]]", "tolerance_mm", "[augmentation]"] {
        assert!(printed.contains(said), "{said}: {printed}");
    }
    let widest = printed.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(widest <= 100, "{widest} columns: {printed}");
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("plimsoll.toml");
    fs::write(&config, "learnig_rate = 0.1").unwrap();
    assert!(hint(&["plan", "data", "--config", config.to_str().unwrap()]).contains("`plimsoll settings`"));
}

#[test]
fn a_limit_below_the_process_itself_is_answered_with_the_least_one() {
    let said = hint(&["plan", "data", "--ram", "24MiB", "--threads", "2", "--config", "/dev/null"]);
    assert!(said.starts_with("raise --ram above ") && said.contains("without any data"), "{said}");
    let least = said.trim_start_matches("raise --ram above ").split(',').next().unwrap();
    let least: f64 = least.trim_end_matches(" MiB").parse().unwrap();
    // Above it, the next error is about the data set, which does not exist.
    let enough = format!("{}MiB", least.ceil() as u64 + 1);
    let args = ["plan", "data", "--ram", &enough, "--threads", "2", "--config", "/dev/null"];
    assert!(run_error(&args).contains("data does not exist"));
}
