//! Pages about runs and sweeps: what they say, and that they need nothing else.

use crate::support;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::support::{Tiny, run_error, run_json};
use plimsoll_data::pictures::phantom::{self, PhantomImages};
use plimsoll_run::{Arm, FoldName, SweepFolder, Trial, Trials};
use serde_json::json;

/// Writes the page of a run, and returns it.
fn page(run: &Path, more: &[&str]) -> String {
    let path = run.with_extension("html");
    let args = ["report", run.to_str().unwrap(), "-o", path.to_str().unwrap(), "--ram", "256MiB"];
    let written = run_json(&[&args[..], more].concat());
    let html = fs::read_to_string(&path).unwrap();
    assert_eq!(written["bytes"], html.len());
    expect_offline(&html);
    expect_well_formed(&html);
    expect_distinct_rows(&html);
    html
}

/// Checks that no table has a row twice.
fn expect_distinct_rows(html: &str) {
    for table in html.split("<table").skip(1) {
        let table = table.split("</table>").next().unwrap();
        let mut rows: Vec<&str> = table.split("<tr>").skip(1).collect();
        let count = rows.len();
        rows.sort_unstable();
        rows.dedup();
        assert_eq!(rows.len(), count, "{table}");
    }
}

/// Checks that nothing is loaded from elsewhere.
fn expect_offline(html: &str) {
    for address in ["http:", "https:", "//cdn", "@import", "<link", "src=\"/", "url("] {
        assert!(!html.contains(address), "{address}");
    }
    let sources: Vec<&str> = html.split(" src=\"").skip(1).collect();
    let is_within = |rest: &&str| {
        ["png", "svg+xml"].iter().any(|kind| rest.starts_with(&format!("data:image/{kind};base64,")))
    };
    assert!(sources.iter().all(is_within));
}

/// Checks that every element that begins also ends, in order, and that attributes are quoted.
fn expect_well_formed(html: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = html.strip_prefix("<!DOCTYPE html>").unwrap();
    while let Some(at) = rest.find('<') {
        assert!(!rest[..at].contains('>') || open.last() == Some(&"script"), "{}", &rest[..at]);
        rest = &rest[at + 1..];
        if open.last() == Some(&"script") && !rest.starts_with("/script>") {
            continue;
        }
        let end = rest.find('>').unwrap();
        let tag = &rest[..end];
        assert!(tag.matches('"').count().is_multiple_of(2), "{tag}");
        let name = tag.trim_start_matches('/').split([' ', '\n', '/']).next().unwrap();
        match tag {
            _ if tag.starts_with('/') => assert_eq!(open.pop(), Some(name), "{tag}"),
            _ if tag.ends_with('/') || ["meta", "img", "br"].contains(&name) => {}
            _ => open.push(name),
        }
        rest = &rest[end + 1..];
    }
    assert!(open.is_empty(), "{open:?}");
}

/// A data set whose first case and whose class have names that would be elements.
fn named_badly() -> Tiny {
    let tiny = Tiny::new();
    for (folder, ending) in [("imagesTr", "_0000.nii.gz"), ("labelsTr", ".nii.gz")] {
        let path = |case: &str| tiny.data.join(folder).join(format!("{case}{ending}"));
        fs::rename(path("vessel_000"), path("<u>x&")).unwrap();
    }
    let described = tiny.data.join("dataset.json");
    let text = fs::read_to_string(&described).unwrap();
    fs::write(&described, text.replace("\"vessel\"", "\"<i>tube\"")).unwrap();
    tiny
}

#[test]
fn a_page_of_all_folds_holds_their_numbers_and_needs_nothing_else() {
    let tiny = named_badly();
    let run = tiny.path("run");
    tiny.trained(&run, &["--folds", "all", "--ram", "512MiB"]);
    let before = support::results(&run);
    let html = page(&run, &[]);
    assert!(support::results(&run) == before, "a page changes nothing of its run");
    assert!(html.len() < 3_000_000, "{} bytes", html.len());
    assert!(html.contains("&lt;u&gt;x&amp;") && html.contains("&lt;i&gt;tube"));
    assert!(!html.contains("<u>") && !html.contains("<i>tube"));
    let cross: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(run.join("cv.json")).unwrap()).unwrap();
    let mut dice = Vec::new();
    for fold in 0..3 {
        let folder = run.join(format!("fold_{fold}"));
        let json = |name: &str| -> serde_json::Value {
            serde_json::from_str(&fs::read_to_string(folder.join(name)).unwrap()).unwrap()
        };
        let score = json("validation/summary.json")["foreground_mean"]["Dice"].as_f64().unwrap();
        dice.push(score);
        assert!(html.contains(&format!(">{score:.4}<")), "fold {fold}: {score}");
        let record = json("run.json");
        assert!(html.contains(&format!("<code>{}</code>", record["identity"].as_str().unwrap())));
        let contents = json("specification.json")["data"]["<u>x&"].as_str().unwrap().to_string();
        assert!(html.contains(&contents), "the contents of a case");
    }
    let mean = dice.iter().sum::<f64>() / 3.0;
    assert!(html.contains(&format!("<b>{mean:.4}</b>Dice, mean of 3 cases")), "{mean}");
    let sd = cross["foreground"]["Dice"]["sd"].as_f64().unwrap();
    assert!(html.contains(&format!(">{sd:.4}<")), "{sd}");
    // The arena of one fold, as an image that runs no scripts.
    assert_eq!(html.matches("data:image/svg+xml;base64,").count(), 1);
    // The worst cases are drawn: all three, so that none is left to be the best.
    assert_eq!(html.matches("data:image/png;base64,").count(), 3);
    assert!(html.contains("The 3 worst") && !html.contains(" best</h3>"));
    for said in [
        "plimsoll train ",
        "seed 0",
        "soft dice + cross entropy",
        "MONAI's DynUNet",
        "Limit 512.0 MiB",
        "planned",
        "3 folds of a cross-validation",
        "memory over steps, by holder",
        "<title>arena: ",
    ] {
        assert!(html.contains(said), "{said}");
    }
    // Of a fold alone, and twice the same bytes.
    let of_fold = page(&run.join("fold_1"), &["--cases", "0"]);
    assert!(of_fold.contains("1 of 1") && !of_fold.contains("data:image/png"));
    assert_eq!(html, page(&run, &[]));
}

#[test]
fn plan_record_and_page_state_one_figure_of_the_arena() {
    let tiny = Tiny::new();
    let run = tiny.path("run");
    let shape = ["--net", "dynunet", "--features", "4,8", "--patch-size", "8", "--threads", "1"];
    let short = ["--epochs", "2", "--iterations", "2", "--validation-iterations", "1"];
    let start = ["plan", tiny.data.to_str().unwrap(), "--ram", "512MiB", "--config", "/dev/null"];
    let plan = run_json(&[&start[..], &shape, &short].concat());
    tiny.trained(&run, &["--fold", "0", "--skip-validation"]);
    let fold = run.join("fold_0");
    let text = |name: &str| fs::read_to_string(fold.join(name)).unwrap();
    let record: serde_json::Value = serde_json::from_str(&text("run.json")).unwrap();
    let arena = plan["arena_bytes"].as_u64().unwrap();
    assert_eq!(record["arena_bytes"], arena);
    assert_eq!(record["planned_bytes"], plan["total_bytes"]);
    let of = |list: &str, key: &str, bytes: &str| {
        let found = record[list].as_array().unwrap().iter().find(|part| part[key] == "arena");
        found.unwrap()[bytes].as_u64().unwrap()
    };
    assert_eq!(of("planned", "name", "bytes"), arena);
    assert_eq!(of("held", "holder", "peak"), arena);
    let events = text("events.jsonl");
    let events = events.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let (samples, others): (Vec<_>, Vec<_>) = events.partition(|event| event["event"] == "sample");
    assert!(!samples.is_empty() && samples.iter().all(|sample| sample["held_bytes"]["arena"] == arena));
    // The peak of each epoch grows towards the record's, below the limit.
    let epochs: Vec<_> = others.iter().filter(|event| event["event"] == "epoch").collect();
    let peaks: Vec<u64> = epochs.iter().map(|epoch| epoch["peak_resident_bytes"].as_u64().unwrap()).collect();
    assert!(peaks.len() == 2 && peaks.is_sorted(), "{peaks:?}");
    assert!(peaks[1] <= record["peak_rss_bytes"].as_u64().unwrap() && peaks[0] > arena, "{peaks:?}");
    assert!(epochs.iter().all(|epoch| epoch["ram_budget_bytes"] == 512 << 20));
    let shown = plimsoll_memory::Bytes(arena).to_string();
    assert!(text("arena.svg").contains(&format!("arena {shown}, lower bound")));
    let number = |bytes: u64| format!("{:.1} of 512.0 MiB", bytes as f64 / f64::from(1 << 20));
    for peak in peaks {
        assert!(text("log.txt").contains(&format!(", {}, ", number(peak))), "{}", text("log.txt"));
    }
    let html = page(&run, &[]);
    let row = html.split("<td>arena</td>").nth(1).unwrap().split("</tr>").next().unwrap();
    assert_eq!(row.matches(&format!("{shown}<")).count(), 2, "planned and held: {row}");
}

#[test]
fn what_is_missing_is_said_on_the_page() {
    let tiny = Tiny::new();
    let run = tiny.path("run");
    tiny.trained(&run, &["--fold", "0"]);
    let moved = tiny.path("elsewhere");
    fs::rename(&tiny.data, &moved).unwrap();
    let html = page(&run, &[]);
    assert!(html.contains("Pictures are left out: ") && !html.contains("data:image/png"), "{html}");
    let html = page(&run, &["--dataset", moved.to_str().unwrap()]);
    assert_eq!(html.matches("data:image/png").count(), 1);
    let fold = run.join("fold_0");
    // Volumes of the worst case, gzip in base 64; where one of them cannot be read, that is said.
    let with_volumes = || {
        let path = tiny.path("volumes.html");
        let (run, to, data) = (run.to_str().unwrap(), path.to_str().unwrap(), moved.to_str().unwrap());
        run_json(&["report", run, "-o", to, "--dataset", data, "--volumes", "1", "--ram", "256MiB"]);
        fs::read_to_string(path).unwrap()
    };
    let html = with_volumes();
    for what in ["image", "reference", "prediction"] {
        assert!(html.contains(&format!("id=\"volume-0-{what}\">H4sI")), "{what}");
    }
    let summary = fs::read_to_string(fold.join("validation/summary.json")).unwrap();
    fs::remove_dir_all(fold.join("validation")).unwrap();
    fs::create_dir(fold.join("validation")).unwrap();
    fs::write(fold.join("validation/summary.json"), summary).unwrap();
    let html = with_volumes();
    assert!(html.contains(" cannot be shown: ") && !html.contains("id=\"volume-0-"));
    fs::remove_dir_all(fold.join("validation")).unwrap();
    let html = page(&run, &[]);
    assert!(html.contains("its validation cases are not predicted whole and scored"), "{html}");
    // As a process leaves it that is killed after its first epoch.
    for name in ["run.json", "checkpoint_final.safetensors"] {
        fs::remove_file(fold.join(name)).unwrap();
    }
    for name in ["metrics.jsonl", "events.jsonl"] {
        let text = fs::read_to_string(fold.join(name)).unwrap();
        let lines: Vec<&str> = text.lines().take_while(|line| !line.contains("\"epoch\":1")).collect();
        fs::write(fold.join(name), lines.join("\n") + "\n").unwrap();
    }
    let html = page(&run, &[]);
    for said in [
        "fold 0 is not finished: 1 of 2 epochs",
        "ended without an error message",
        "peak memory is not recorded",
        "fold 0, as far as samples saw it: Limit 512.0 MiB; planned ",
    ] {
        assert!(html.contains(said), "{said}: {html}");
    }
}

#[test]
fn what_is_no_run_is_an_error_and_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("page.html");
    let args = ["report", dir.path().to_str().unwrap(), "-o", out.to_str().unwrap()];
    let error = run_error(&args);
    assert!(error.contains("holds no run and no sweep") && error.contains("plimsoll train --out"), "{error}");
    fs::create_dir(dir.path().join("fold_0")).unwrap();
    fs::write(dir.path().join("fold_0/specification.json"), "{}").unwrap();
    let error = run_error(&args);
    assert!(error.contains("specification.json"), "{error}");
    assert!(!out.exists());
}

#[test]
fn a_page_of_a_sweep_ranks_its_arms_and_names_what_is_not_done() {
    let tiny = Tiny::new();
    let folder = SweepFolder::new(tiny.path("sweep"));
    let arm = |name: &str, rate: f64| Arm {
        name: name.into(),
        settings: BTreeMap::from([("learning_rate".to_string(), rate.into())]),
    };
    let trials = Trials {
        arms: vec![arm("rate-0.01", 0.01), arm("rate-0.1", 0.1)],
        seeds: vec![0, 3],
        folds: vec![FoldName::Number(0)],
    };
    for (seed, name) in [(0, "0"), (3, "3")] {
        tiny.trained(folder.run("rate-0.01", seed).path(), &["--seed", name, "--learning-rate", "0.01"]);
    }
    tiny.trained(folder.run("rate-0.1", 0).path(), &["--learning-rate", "0.1"]);
    // A folder that holds a sweep takes no other run, so that it becomes one last.
    fs::write(folder.request(), "base = \"<tiny>\"\n").unwrap();
    folder.write(&trials).unwrap();
    let html = page(folder.path(), &[]);
    let dice: Vec<f64> = [0, 3]
        .map(|seed| {
            let summary = folder.run("rate-0.01", seed).path().join("fold_0/validation/summary.json");
            let summary: serde_json::Value =
                serde_json::from_str(&fs::read_to_string(summary).unwrap()).unwrap();
            summary["foreground_mean"]["Dice"].as_f64().unwrap()
        })
        .into();
    let mean = (dice[0] + dice[1]) / 2.0;
    assert!(html.contains(&format!(">{mean:.4}<")), "one case in two seeds: {mean} of {dice:?}");
    assert!(html.contains("<p>No trial.</p>"), "{html}");
    // An arm of which a trial has no score comes behind one that has all, whatever its score; cases of the first are drawn.
    let place = |arm: &str| html.find(&format!("<td>{arm}</td>")).unwrap();
    assert!(place("rate-0.01") < place("rate-0.1"));
    assert!(
        html.contains("data:image/png;base64,") && html.contains("Cases of <b>rate-0.01</b> with seed 0")
    );
    let trial = folder.trial("rate-0.01", 0, FoldName::Number(0));
    assert!(html.contains(&format!("<a href=\"file://{}/\">seed 0, fold 0</a>", trial.path().display())));
    // What failed is named with its error, before it began and after it was trained.
    let failed = |seed: u64, error: &str| {
        let trial = Trial { arm: "rate-0.1".into(), seed, fold: FoldName::Number(0) };
        let failure = json!({"time": "2026-01-02T03:04:05Z", "error": error, "hint": "<mend> it"});
        let path = folder.failure(&trial);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, failure.to_string()).unwrap();
    };
    failed(3, "case_1.nii.gz: no such file");
    failed(0, "the scores cannot be written");
    let with_failures = page(folder.path(), &[]);
    for said in [
        "trials trained, 2 failed",
        "2 trials failed at their last attempt",
        "case_1.nii.gz: no such file",
        "&lt;mend&gt; it",
        "failed before it began",
        "trained; its validation failed",
    ] {
        assert!(with_failures.contains(said), "{said}: {with_failures}");
    }
    for said in ["3 of 4", "rate-0.01", "not started", "base = &quot;&lt;tiny&gt;&quot;", "learning_rate"] {
        assert!(html.contains(said), "{said}");
    }
    assert_eq!(html.matches("<svg ").count(), 2, "a chart for each arm");
}

#[test]
fn a_page_of_a_classifier_shows_its_confusion_and_its_mistakes() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("images");
    phantom::write(&data, &PhantomImages { images: [4, 4, 0], side: 40, seed: 2 }).unwrap();
    let settings = dir.path().join("settings.toml");
    let text =
        "batch_size = 4\nepochs = 1\n[network]\nfeatures = [128, 128, 128, 128]\n[images]\nsize = [32, 32]\n";
    fs::write(&settings, text).unwrap();
    let run = dir.path().join("run");
    let [data, settings, out] = [&data, &settings, &run].map(|path| path.to_str().unwrap());
    run_json(&["train", data, "--config", settings, "--out", out, "--ram", "512MiB", "--threads", "1"]);
    let validation = run.join("fold_0/validation");
    let table = fs::read_to_string(validation.join("predictions.csv")).unwrap();
    assert_eq!(table.lines().count(), 1 + 4 * phantom::GRADES.len(), "the validation images alone");
    let html = page(&run, &[]);
    for said in ["Confusion matrix, 20 cases", "ROC, each class against the rest", "Reliability", "Grad-CAM"]
    {
        assert!(html.contains(said), "{said}");
    }
    // Beside the arena.
    assert_eq!(
        html.matches("data:image/svg+xml;base64,").count(),
        2,
        "after one epoch some images are wrong"
    );
    assert!(html.contains("to tell apart 0_none"), "the methods");
    assert!(html.contains(&format!("Data set: <code>{data}</code>")), "the data set");
    // An empty list of statistics means the statistics of ImageNet, and a score without an interval has no brackets.
    assert!(html.contains("&quot;normalisation&quot;:&quot;ImageNet&quot;"), "the statistics");
    assert!(!html.contains("–, –") && !html.contains("(–"), "an interval of nothing");
}

#[test]
fn a_page_of_a_run_and_a_page_of_an_inspection_never_replace_each_other() {
    let tiny = Tiny::new();
    let run = tiny.path("run");
    tiny.trained(&run, &["--fold", "0", "--skip-validation"]);
    let (page, of_data) = (tiny.path("run.html"), tiny.path("data.html"));
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let data = text(&tiny.data);
    let report = |page: &Path| vec!["report".to_owned(), text(&run), "--output".into(), text(page)];
    let inspect = |page: &Path| {
        let args = ["inspect", &data, "--config", "/dev/null", "--page"];
        args.map(String::from).into_iter().chain([text(page)]).collect::<Vec<_>>()
    };
    for args in [report(&page), inspect(&of_data), report(&page), inspect(&of_data)] {
        let output = support::plimsoll().args(&args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let (before, before_of_data) = (fs::read(&page).unwrap(), fs::read(&of_data).unwrap());
    for (args, kind) in
        [(report(&of_data), "a page about a run"), (inspect(&page), "a page about an inspection")]
    {
        let error = run_error(&args.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(error.contains(&format!("exists and is not {kind}")), "{error}");
    }
    assert!(before == fs::read(&page).unwrap() && before_of_data == fs::read(&of_data).unwrap());
}
