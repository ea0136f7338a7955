//! Hints are followed: what one proposes is accepted.

mod data;
mod known;
mod layouts;
mod predictions;
mod scores;
mod segments;
mod series;
mod volumes;

use std::fs;
use std::path::Path;

use plimsoll_data::pictures::phantom::{self, PhantomImages};

use crate::support::{Ended, Tiny, plimsoll};

/// Flags that a hint proposes, each with its value if it has one.
fn flags(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut words = text
        .split_whitespace()
        .map(|word| word.trim_matches(['`', ',', ';', '.', '?', '(', ')', ':']))
        .peekable();
    while let Some(word) = words.next() {
        if !word.starts_with("--") {
            continue;
        }
        found.push(word.to_string());
        let is_value = |next: &str| {
            next.starts_with(|first: char| first.is_ascii_digit())
                || ["bf16", "f32"].contains(&next)
                || word == "--allow"
        };
        if let Some(value) = words.next_if(|next| is_value(next)) {
            found.push(value.to_string());
        }
    }
    found
}

/// Texts between backticks.
fn quoted(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(String::from).collect()
}

fn ended(args: &[String]) -> Ended {
    Ended::run(plimsoll().args(args))
}

fn hint(args: &[String]) -> String {
    let ended = ended(args);
    let status = ended.status.unwrap();
    let said = ended.error(status);
    said.lines().find_map(|line| line.strip_prefix("hint: ")).unwrap().to_string()
}

fn expect_accepted(args: &[String], because: &str) {
    let ended = ended(args);
    assert_eq!(ended.status, Some(0), "{because}: {args:?}: {ended:?}");
}

/// The arguments with a flag set to a value, or without the flag's old one.
fn with(args: &[String], flags: &[String]) -> Vec<String> {
    let mut all = args.to_vec();
    for (at, flag) in flags.iter().enumerate().filter(|(_, flag)| flag.starts_with("--")) {
        if let Some(old) = all.iter().position(|arg| arg == flag) {
            all.drain(old..(old + 2).min(all.len()));
        }
        all.push(flag.clone());
        all.extend(flags.get(at + 1).filter(|value| !value.starts_with("--")).cloned());
    }
    all
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_string()).collect()
}

fn plan(data: &Path, more: &[&str]) -> Vec<String> {
    let mut all = words(&["plan", data.to_str().unwrap(), "--config", "/dev/null", "--threads", "1"]);
    all.extend(words(more));
    all
}

#[test]
fn every_way_to_make_a_run_fit_that_is_proposed_fits() {
    let tiny = Tiny::new();
    let images = tiny.path("images");
    phantom::write(&images, &PhantomImages { images: [4, 2, 1], side: 40, seed: 2 }).unwrap();
    let config = tiny.path("images.toml");
    fs::write(&config, "batch_size = 4\n[images]\nsize = [224, 224]\n").unwrap();
    let wide = ["--net", "dynunet", "--features", "32,64,128", "--patch-size", "64", "--ram", "100MiB"];
    let pictures =
        with(&plan(&images, &["--ram", "200MiB"]), &words(&["--config", config.to_str().unwrap()]));
    for (args, is_of_images) in [(plan(&tiny.data, &wide), false), (pictures, true)] {
        let hint = hint(&args);
        let ways = hint.strip_prefix("it would fit with ").unwrap_or_else(|| panic!("{hint}"));
        let ways: Vec<&str> = ways.split(", or ").collect();
        assert!(ways.len() > 1, "{hint}");
        assert!(!is_of_images || !hint.contains("--patch-size"), "{hint}");
        for way in ways {
            // What it needs stands in brackets.
            let proposed = flags(way.split(" (").next().unwrap());
            assert!(!proposed.is_empty(), "{way}");
            expect_accepted(&with(&args, &proposed), way);
        }
    }
}

#[test]
fn flags_and_settings_that_are_proposed_are_accepted() {
    let tiny = Tiny::new();
    let small = ["--net", "dynunet", "--features", "4,8", "--patch-size", "8", "--ram", "512MiB"];
    // A flag by another name.
    let right = plan(&tiny.data, &[&small[..], &["--batch-size", "2"]].concat());
    let mut wrong = right.clone();
    *wrong.iter_mut().find(|arg| *arg == "--batch-size").unwrap() = "--batchsize".into();
    let proposed = flags(&hint(&wrong));
    assert_eq!(proposed, ["--batch-size"]);
    expect_accepted(&right, "--batch-size");
    // A limit without its unit.
    let hint_of_ram = hint(&with(&right, &words(&["--ram", "2"])));
    let error = ended(&with(&right, &words(&["--ram", "2"]))).said;
    let meant = error.split("did you mean ").nth(1).unwrap().split('?').next().unwrap().to_string();
    expect_accepted(&with(&right, &["--ram".into(), meant]), &hint_of_ram);
    // A patch that does not fit the strides.
    let args = with(&right, &words(&["--patch-size", "9,8,8"]));
    let said = hint(&args);
    let size = said.strip_prefix("the next larger patch that fits is ").unwrap_or_else(|| panic!("{said}"));
    expect_accepted(&with(&args, &["--patch-size".into(), size.replace(" × ", ",")]), &said);
}

#[test]
fn settings_of_the_file_that_are_proposed_are_accepted() {
    let tiny = Tiny::new();
    let config = tiny.path("settings.toml");
    let args = with(
        &plan(&tiny.data, &["--patch-size", "32,32,64", "--ram", "4GiB"]),
        &words(&["--config", config.to_str().unwrap()]),
    );
    let network = "batch_size = 1\n[network]\nnet = \"swinunetr\"\n";
    fs::write(&config, format!("{network}feature_size = 32\n")).unwrap();
    let said = hint(&args);
    let proposed: Vec<String> = quoted(&said).into_iter().filter(|text| text.contains(" = ")).collect();
    assert_eq!(proposed, ["num_heads = [2, 4, 8, 16]", "feature_size = 33"], "{said}");
    for line in proposed {
        let size = if line.starts_with("feature_size") { "" } else { "feature_size = 32\n" };
        fs::write(&config, format!("{network}{size}{line}\n")).unwrap();
        expect_accepted(&args, &line);
    }
    // A setting that the network does not have, and one that is beyond its bound: without it, there is no error.
    for (setting, line) in [("feature_size", "feature_size = 24"), ("dropout", "dropout = 2.0")] {
        let network = "batch_size = 1\n[network]\nnet = \"dynunet\"\nfeatures = [4, 8]\n";
        fs::write(&config, format!("{network}{line}\n")).unwrap();
        let said = hint(&args);
        assert!(said.starts_with(&format!("leave `{setting}` out")), "{said}");
        fs::write(&config, network).unwrap();
        expect_accepted(&args, &said);
    }
    // A setting without a flag.
    let images = tiny.path("images");
    phantom::write(&images, &PhantomImages { images: [4, 2, 1], side: 40, seed: 2 }).unwrap();
    let args = plan(&images, &["--ram", "2GiB", "--image-size", "64,64"]);
    let said = hint(&args);
    assert!(said.contains("`size` of [images]") && said.contains("plimsoll.toml"), "{said}");
    fs::write(&config, "batch_size = 2\n[images]\nsize = [64, 64]\n").unwrap();
    let args = with(&plan(&images, &["--ram", "2GiB"]), &words(&["--config", config.to_str().unwrap()]));
    expect_accepted(&args, &said);
}

#[test]
fn ways_to_resume_that_are_proposed_are_accepted() {
    let tiny = Tiny::new();
    let run = tiny.path("run");
    let args = |more: &[&str]| {
        let command = tiny.train(&run, more);
        command.get_args().map(|arg| arg.to_str().unwrap().to_string()).collect::<Vec<_>>()
    };
    // Nothing to resume: without --resume it begins.
    let said = hint(&args(&["--resume"]));
    assert!(said.starts_with("leave --resume out"), "{said}");
    expect_accepted(&args(&[]), &said);
    // A run that is there: with --resume, or elsewhere.
    let said = hint(&args(&[]));
    assert_eq!(flags(&said), ["--resume", "--out"], "{said}");
    expect_accepted(&args(&["--resume"]), &said);
    let other = tiny.path("other");
    expect_accepted(&with(&args(&[]), &words(&["--out", other.to_str().unwrap()])), &said);
    // Settings that may not change: without them, or elsewhere.
    let said = hint(&args(&["--resume", "--features", "16,64"]));
    assert!(said.starts_with("leave these settings out") && flags(&said) == ["--out"], "{said}");
    expect_accepted(&args(&["--resume"]), &said);
    let other = tiny.path("another");
    expect_accepted(
        &with(&args(&["--features", "16,64"]), &words(&["--out", other.to_str().unwrap()])),
        &said,
    );
    // Too few epochs.
    let said = hint(&args(&["--resume", "--epochs", "1"]));
    let proposed = flags(&said);
    expect_accepted(&with(&args(&["--resume"]), &proposed), &said);
}
