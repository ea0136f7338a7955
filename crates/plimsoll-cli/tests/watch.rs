//! Watching runs: what is written beside their files, the view, the page.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::support::{Ended, Tiny, expect_same, plimsoll, run_error, run_json};
use plimsoll_monitor::tensorboard::{Value, each_event};
use plimsoll_run::{Arm, FoldName, SweepFolder, Trials};
use serde_json::Value as Json;

/// The files of a fold whose names TensorBoard looks for, in their order.
fn event_files(fold: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(fold).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.to_string_lossy().contains("events.out.tfevents.")).collect();
    files.sort();
    files
}

/// Steps and numbers by their names.
type Scalars = BTreeMap<String, Vec<(i64, f32)>>;

/// All numbers, and the steps of pictures.
fn scalars(fold: &Path) -> (Scalars, Vec<(String, i64)>) {
    let (mut scalars, mut pictures) = (Scalars::new(), Vec::new());
    for file in event_files(fold) {
        each_event(&file, |event, _| {
            for Value { tag, simple_value, image } in
                event.summary.into_iter().flat_map(|summary| summary.value)
            {
                if let Some(image) = image {
                    assert!(image.width > 0 && image.encoded_image_string.starts_with(b"\x89PNG"), "{tag}");
                    pictures.push((tag.clone(), event.step));
                }
                if let Some(number) = simple_value {
                    scalars.entry(tag).or_default().push((event.step, number));
                }
            }
            true
        })
        .unwrap();
    }
    (scalars, pictures)
}

fn lines(path: &Path) -> Vec<Json> {
    fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn what_is_written_for_others_is_what_the_journal_has_and_changes_no_result() {
    let tiny = Tiny::new();
    let (plain, watched, prom) = (tiny.path("plain"), tiny.path("watched"), tiny.path("plimsoll.prom"));
    let more = ["--tensorboard", "--log-steps", "--openmetrics", prom.to_str().unwrap()];
    tiny.trained(&plain, &["--skip-validation"]);
    tiny.trained(&watched, &[&more[..], &["--skip-validation"]].concat());
    // Longer, as another process.
    tiny.trained(&plain, &["--resume", "--epochs", "4"]);
    tiny.trained(&watched, &[&more[..], &["--resume", "--epochs", "4"]].concat());
    let fold = watched.join("fold_0");
    // One of each process, and one of the validation.
    assert_eq!(event_files(&fold).len(), 3);
    let (found, pictures) = scalars(&fold);
    let epochs = lines(&fold.join("metrics.jsonl"));
    for (tag, key) in [("loss/train", "train_loss"), ("pseudo_dice/moving_average", "ema_pseudo_dice")] {
        let expected: Vec<(i64, f32)> = epochs
            .iter()
            .map(|epoch| (epoch["steps"].as_i64().unwrap(), epoch[key].as_f64().unwrap() as f32))
            .collect();
        assert_eq!(found[tag], expected, "{tag}");
    }
    let steps = lines(&fold.join("steps.jsonl"));
    let expected: Vec<(i64, f32)> = steps
        .iter()
        .map(|step| (step["steps"].as_i64().unwrap(), step["loss"].as_f64().unwrap() as f32))
        .collect();
    assert_eq!((&found["step/loss"], expected.len()), (&expected, 8));
    let (curves, cases): (Vec<_>, Vec<_>) = pictures.into_iter().partition(|(tag, _)| tag == "progress");
    assert_eq!(curves.iter().map(|(_, step)| *step).collect::<Vec<_>>(), [2, 4, 6, 8]);
    assert!(cases.len() == 1 && cases[0].0.starts_with("validation/") && cases[0].1 == 8, "{cases:?}");
    let samples: Vec<Json> = lines(&fold.join("events.jsonl"));
    let samples: Vec<&Json> = samples.iter().filter(|event| event["event"] == "sample").collect();
    assert_eq!(samples.len(), 4);
    let last = samples[3];
    assert_eq!(last["steps"], 8);
    let arena = last["held_bytes"]["arena"].as_u64().unwrap();
    assert!(arena > 0 && last["resident_bytes"].as_u64().unwrap() > arena, "{last}");
    assert!(last["system"]["processor_seconds"].as_f64().unwrap() > 0.0, "{last}");
    assert!(last["system"]["free_disk_bytes"].as_u64().unwrap() > 0, "{last}");
    assert!(last["op_seconds"].as_object().unwrap().len() > 3, "{last}");
    let text = fs::read_to_string(&prom).unwrap();
    let labels = format!("run=\"{}\",fold=\"0\"", watched.display());
    for line in
        [format!("plimsoll_epochs_total{{{labels}}} 4"), format!("plimsoll_steps_total{{{labels}}} 8")]
    {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    assert!(text.ends_with("# EOF\n"), "{text}");
    event_files(&fold).iter().for_each(|file| fs::remove_file(file).unwrap());
    expect_same(&watched, &plain, "when it is watched");
}

#[test]
fn a_text_file_that_cannot_be_written_is_refused_before_anything_is_trained() {
    let tiny = Tiny::new();
    let run = tiny.path("run");
    let missing = tiny.path("no/such/folder/plimsoll.prom");
    for path in [missing.to_str().unwrap(), tiny.data.to_str().unwrap(), "/"] {
        let ended = Ended::run(&mut tiny.train(&run, &["--openmetrics", path]));
        let error = ended.error(1);
        assert!(error.contains("--openmetrics") && error.contains("hint: name a file"), "{error}");
        assert!(!run.exists());
    }
}

#[test]
fn the_view_shows_runs_folds_and_sweeps() {
    let tiny = Tiny::new();
    let run = tiny.path("run");
    tiny.trained(&run, &["--folds", "0-1", "--skip-validation"]);
    let once = |paths: &[&Path]| {
        let output = plimsoll().arg("watch").args(paths).arg("--once").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let text = once(&[&run]);
    for expected in [
        "2 folds, 0 running",
        "loss of fold_1",
        "pseudo-Dice",
        "resident",
        "arena",
        "fold_0",
        "2/2",
        "4/4",
        "finished",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    assert!(once(&[&run.join("fold_0")]).contains("1 fold, 0 running"), "one fold");
    let data = run_json(&["watch", run.to_str().unwrap()]);
    assert_eq!(
        (data[1]["epochs"][1]["epoch"].as_u64(), data[1]["costs"].as_array().unwrap().len()),
        (Some(1), 2)
    );
    assert_eq!(data[1]["status"]["state"], "ended");
    let [limit, planned] = ["limit", "planned"].map(|key| data[1]["status"][key].as_u64().unwrap());
    assert!(limit >= planned && planned > 0, "{data}");
    // A sweep of which one trial is begun.
    let sweep = SweepFolder::new(tiny.path("sweep"));
    fs::create_dir_all(sweep.path()).unwrap();
    let arms = ["dice", "ce"].map(|name| Arm { name: name.into(), settings: BTreeMap::new() });
    let trials = Trials { arms: arms.into(), seeds: vec![0, 3], folds: vec![FoldName::Number(0)] };
    sweep.write(&trials).unwrap();
    assert!(once(&[sweep.path()]).contains("0 folds, 0 running, 4 not started"));
    let trial = sweep.trial("ce", 3, FoldName::Number(0));
    fs::create_dir_all(trial.path()).unwrap();
    for name in ["specification.json", "events.jsonl", "metrics.jsonl"] {
        fs::copy(run.join("fold_0").join(name), trial.path().join(name)).unwrap();
    }
    let both = once(&[sweep.path(), &run]);
    assert!(both.contains("ce/seed_3/fold_0") && both.contains("3 not started"), "{both}");
}

#[test]
fn a_narrow_terminal_keeps_bars_in_their_columns_whatever_holders_are_called() {
    let tiny = Tiny::new();
    let run = tiny.path("a_run_with_a_name_that_is_far_longer_than_any_narrow_terminal");
    tiny.trained(&run, &["--folds", "0-1", "--skip-validation"]);
    for fold in ["fold_0", "fold_1"] {
        let events = run.join(fold).join("events.jsonl");
        let text = fs::read_to_string(&events).unwrap();
        let held = "\"held_bytes\":{\"a holder whose name is longer than a bar\":734003200,";
        fs::write(&events, text.replace("\"held_bytes\":{", held)).unwrap();
    }
    let frame = |columns: &str, lines: &str| {
        let mut command = plimsoll();
        command.arg("watch").arg(&run).arg("--once").env("COLUMNS", columns).env("LINES", lines);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    for (columns, lines) in [(40, 10), (40, 30), (80, 24), (140, 50), (12, 10), (300, 60)] {
        let text = frame(&columns.to_string(), &lines.to_string());
        assert_eq!(text.lines().count(), lines, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= columns), "{text}");
        // Bars begin in one column and end in one.
        let ends = text.lines().filter(|line| line.contains('█')).map(|line| {
            let is_bar = |letter: char| letter == '█' || letter == '·';
            let place = |at: Option<usize>| at.map(|at| line[..at].chars().count());
            [place(line.find(is_bar)), place(line.rfind(is_bar))]
        });
        let ends: Vec<_> = ends.collect();
        assert!(ends.windows(2).all(|pair| pair[0] == pair[1]), "{text}");
        if columns >= 40 {
            assert!(!ends.is_empty() && text.contains("fold_1") && text.contains("2/2"), "{text}");
            assert!(text.contains("MiB") && text.contains("finished"), "{text}");
        }
    }
    assert!(frame("140", "50").contains("  a holder whose name…"));
}

#[test]
fn what_cannot_be_shown_is_an_error_with_a_way_out() {
    let dir = tempfile::tempdir().unwrap();
    let nothing = run_error(&["watch", dir.path().to_str().unwrap()]);
    assert!(nothing.contains("holds no run") && nothing.contains("name the folder"), "{nothing}");
    let tiny = Tiny::new();
    let run = tiny.path("run");
    tiny.trained(&run, &["--skip-validation"]);
    let piped = Ended::run(plimsoll().arg("watch").arg(&run).stdin(Stdio::null())).error(1);
    assert!(piped.contains("needs a terminal") && piped.contains("--once"), "{piped}");
    // Files that something else has written over.
    fs::write(run.join("fold_0/events.jsonl"), "\u{1b}[2J\n{}\n".repeat(9)).unwrap();
    fs::write(run.join("fold_0/metrics.jsonl"), [0xff; 300]).unwrap();
    let output = plimsoll().arg("watch").arg(&run).arg("--once").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("0/2") && !text.contains('\u{1b}'), "{text}");
    fs::write(run.join("fold_0/specification.json"), "{}").unwrap();
    let broken = run_error(&["status", run.to_str().unwrap()]);
    assert!(broken.contains("specification.json"), "{broken}");
}

/// Sends a request to an address and returns the answer.
fn ask(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn the_page_is_served_to_this_machine_alone_and_follows_the_run() {
    let tiny = Tiny::new();
    let run = tiny.path("run");
    tiny.trained(&run, &["--skip-validation"]);
    let mut server =
        plimsoll().arg("watch").arg(&run).arg("--serve=0").stdout(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let (address, path) = first.trim().strip_prefix("http://").unwrap().split_once('/').unwrap();
    let (address, page_path) = (address.to_string(), format!("/{path}"));
    assert!(path.len() > 32, "the address has a part that nobody can guess: {first}");
    assert!(address.starts_with("127.0.0.1:"), "{first}");
    let get = |path: &str| ask(&address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n"));
    assert!(get("/").starts_with("HTTP/1.1 404 "), "other users of the machine do not know the address");
    let page = get(&page_path);
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
    for expected in ["http-equiv=\"refresh\"", "<svg", "fold_0", "2/2", "finished", "Content-Security-Policy"]
    {
        assert!(page.contains(expected), "{expected}\n{page}");
    }
    assert!(!page.contains("<script") && !page.contains("src="), "{page}");
    tiny.trained(&run, &["--skip-validation", "--resume", "--epochs", "3"]);
    assert!(get(&page_path).contains("3/3"));
    assert!(get("/../../etc/passwd").starts_with("HTTP/1.1 404 "));
    let posted = ask(&address, &format!("POST / HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\n\r\n"));
    assert!(posted.starts_with("HTTP/1.1 405 "), "{posted}");
    assert!(ask(&address, "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n").starts_with("HTTP/1.1 403 "));
    let long = format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(8200));
    assert!(ask(&address, &long).starts_with("HTTP/1.1 431 "));
    // Those that say nothing delay no other.
    let _silent: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(&address).unwrap()).collect();
    let start = std::time::Instant::now();
    assert!(get(&page_path).contains("3/3"));
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
    let port = address.rsplit_once(':').unwrap().1;
    let taken = Ended::run(plimsoll().arg("watch").arg(&run).arg(format!("--serve={port}"))).error(1);
    assert!(taken.contains("127.0.0.1") && taken.contains("--serve=PORT"), "{taken}");
    server.kill().unwrap();
    server.wait().unwrap();
}
