//! The record beside labels of the calls that predicted them.

use std::fs;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Folders, model, names, nifti, outcome, shared, spoilt_model};
use crate::support::plimsoll;

#[test]
fn what_the_time_was_spent_on_is_in_a_file_beside_labels_and_is_no_more_than_passed() {
    let folders = Folders::new();
    folders.add_sound("a");
    folders.add_sound("b");
    let predict = |rest: &[&str]| {
        let start = Instant::now();
        let (succeeded, report, errors) = outcome(&folders.args(&model(), rest));
        assert!(succeeded, "{errors}");
        (report, start.elapsed().as_secs_f64())
    };
    let written = || -> Value {
        serde_json::from_slice(&fs::read(folders.labels().join("run.json")).unwrap()).unwrap()
    };
    let (report, passed) = predict(&["--window-batch", "2"]);
    assert_eq!(written(), report);
    let parts = ["read", "prepare", "pull", "forward", "sum", "export", "write"];
    let seconds = |times: &Value| {
        assert_eq!(times.as_object().unwrap().len(), parts.len());
        parts.map(|part| times[format!("{part}_seconds")].as_f64().unwrap())
    };
    let (mut all, mut shares) = ([0.0; 7], Vec::new());
    for case in report["cases"].as_array().unwrap() {
        let times = seconds(&case["times"]);
        let (sum, of_case) = (times.iter().sum::<f64>(), case["seconds"].as_f64().unwrap());
        assert!(times.iter().all(|part| *part >= 0.0) && sum <= of_case, "{case}");
        shares.push(sum / of_case);
        // Windows are pulled, looked at, summed, and become labels.
        assert!(times[2..6].iter().all(|part| *part > 0.0), "{case}");
        all.iter_mut().zip(times).for_each(|(all, part)| *all += part);
    }
    // No part that takes long is left out. On a busy machine the process may have waited between two parts of a case.
    assert!(shares.iter().any(|share| *share >= 0.85), "{shares:?}");
    let total = seconds(&report["times"]);
    assert!(all.iter().zip(total).all(|(all, total)| (all - total).abs() < 1e-9), "{report}");
    let took = report["seconds"].as_f64().unwrap();
    assert!(total.iter().sum::<f64>() <= took && took <= passed, "{report}");
    assert!(report["threads"].as_u64() >= Some(1));

    // Where all is there already, what is there tells how it was made; else the last call does, with what it kept.
    let (kept, _) = predict(&[]);
    assert_eq!((names(&kept, "kept").len(), written()), (2, report));
    folders.add_sound("c");
    let (more, _) = predict(&[]);
    assert_eq!(written(), more);
    assert_eq!(
        (names(&more, "cases"), names(&more, "kept")),
        (vec!["c".into()], vec!["a".into(), "b".into()])
    );
}

#[test]
fn kept_labels_keep_their_record_and_replaced_labels_lose_theirs() {
    let folders = Folders::new();
    let record = folders.labels().join("run.json");
    let predict = |rest: &[&str]| {
        let (succeeded, report, errors) = outcome(&folders.args(&model(), rest));
        assert!(succeeded, "{errors}");
        assert_eq!(serde_json::from_slice::<Value>(&fs::read(&record).unwrap()).unwrap(), report);
        report
    };
    folders.add_sound("a");
    let of_a = predict(&["--window-batch", "2", "--threads", "1"]);
    folders.add_sound("b");
    let of_b = predict(&["--threads", "2"]);
    // However many calls have kept them since.
    folders.add_sound("c");
    let of_c = predict(&["--threads", "2"]);
    for (place, by) in [&of_a, &of_b].into_iter().enumerate() {
        let earlier = &of_c["kept"][place]["earlier"];
        assert_eq!(earlier["predicted"], by["cases"][0]);
        assert_eq!((&earlier["threads"], &earlier["engine"]), (&by["threads"], &by["engine"]));
    }
    // A call that does not come to its end leaves nothing of labels that it was to replace.
    let spoilt = spoilt_model(folders.dir.path());
    fs::remove_file(folders.labels().join("b.nii.gz")).unwrap();
    assert!(!outcome(&folders.args(&spoilt, &[])).0);
    let left: Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
    assert_eq!((names(&left, "cases"), names(&left, "kept")), (vec!["c".into()], vec!["a".into()]));
    assert!(!outcome(&folders.args(&spoilt, &["--overwrite"])).0 && !record.exists());
    // What another program, or a training, has written there is not replaced.
    for text in ["{\"steps\": 3}", "no JSON", "[]"] {
        fs::write(&record, text).unwrap();
        for rest in [&["--overwrite"][..], &[], &["--plan"]] {
            let (succeeded, _, errors) = outcome(&folders.args(&model(), rest));
            assert!(!succeeded && errors.contains("run.json is not a record of predictions"), "{errors}");
        }
        assert_eq!(fs::read_to_string(&record).unwrap(), text);
    }
}

/// Kills a call when it has written the line of its first case.
fn kill_behind_first_case(folders: &Folders, args: &[String]) {
    let lines = folders.labels().join("run.cases.jsonl");
    let mut child = plimsoll().args(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let start = Instant::now();
    while !fs::read(&lines).is_ok_and(|text| text.contains(&b'\n')) {
        assert!(start.elapsed() < Duration::from_secs(300), "no case is finished");
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        sleep(Duration::from_micros(200));
    }
    // `kill` is SIGKILL.
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_killed_call_has_recorded_each_finished_case() {
    let folders = Folders::new();
    let cases = ["a", "b", "c", "d", "e", "f"];
    cases.iter().for_each(|case| folders.add_sound(case));
    let (lines, record) = (folders.labels().join("run.cases.jsonl"), folders.labels().join("run.json"));
    kill_behind_first_case(&folders, &folders.args(&model(), &["--threads", "1"]));
    let finished = fs::read_to_string(&lines).unwrap();
    let finished: Vec<Value> = finished.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(!record.exists() && finished.len() < cases.len(), "it was killed before its end: {finished:?}");

    let (succeeded, report, errors) = outcome(&folders.args(&model(), &["--threads", "2"]));
    assert!(succeeded && !lines.exists(), "{errors}");
    assert_eq!(serde_json::from_slice::<Value>(&fs::read(&record).unwrap()).unwrap(), report);
    let mut all = [names(&report, "cases"), names(&report, "kept")].concat();
    all.sort();
    assert_eq!(all, cases);
    for line in finished {
        let kept = report["kept"].as_array().unwrap().iter();
        let mut kept = kept.filter(|kept| kept["case"] == line["predicted"]["case"]);
        assert_eq!(kept.next().unwrap()["earlier"], line);
        assert_eq!((&line["threads"], &line["folds"]), (&Value::from(1), &report["folds"]));
        let [windows, forward] = ["/predicted/windows", "/predicted/times/forward_seconds"];
        assert_eq!(line.pointer(windows), report.pointer("/cases/0/windows"));
        assert!(line.pointer(forward).unwrap().as_f64().unwrap() > 0.0, "{line}");
    }
}

#[test]
fn previews_and_probabilities_of_labels_that_a_killed_call_replaced_are_not_left_beside_new_ones() {
    let steps = "[[steps]]\nstep = \"keep_largest\"\nlabels = [1]\n";
    for with_steps in [false, true] {
        let folders = Folders::new();
        let cases = ["a", "b", "c", "d"];
        cases.iter().for_each(|case| folders.add_sound(case));
        let file = folders.dir.path().join("steps.toml");
        fs::write(&file, steps).unwrap();
        let of_steps = ["--postprocessing", file.to_str().unwrap()];
        let mut args = folders.args(&model(), &["--threads", "1"]);
        args.extend(of_steps.iter().filter(|_| with_steps).map(|arg| (*arg).to_string()));
        let with = |more: &[&str]| {
            let more = more.iter().map(|arg| (*arg).to_string());
            args.iter().cloned().chain(more).collect::<Vec<_>>()
        };
        let preview = |case: &str| folders.labels().join(format!("{case}.preview.png"));
        let probabilities = |case: &str| match with_steps {
            true => folders.labels().join(format!("unprocessed/{case}.npz")),
            false => folders.labels().join(format!("{case}.npz")),
        };
        let (succeeded, _, errors) = outcome(&with(&["--preview", "--save-probabilities"]));
        assert!(succeeded, "{errors}");
        let expected = cases.map(|case| fs::read(preview(case)).unwrap());
        for case in cases {
            assert!(probabilities(case).is_file());
            fs::write(preview(case), "of other labels").unwrap();
        }
        // A call that was to replace labels, without previews or probabilities of its own.
        kill_behind_first_case(&folders, &with(&["--overwrite"]));
        for case in cases {
            assert!(!preview(case).exists() && !probabilities(case).exists(), "{case}, {with_steps}");
        }
        let (succeeded, report, errors) = outcome(&with(&["--preview"]));
        assert!(succeeded, "{errors}");
        assert_eq!(cases.map(|case| fs::read(preview(case)).unwrap()), expected, "{report}");
    }
}

#[test]
fn labels_of_steps_are_never_kept_as_those_of_labels_that_a_killed_call_replaced() {
    let cases = ["a", "b", "c", "d", "e", "f"];
    let steps = "[[steps]]\nstep = \"keep_largest\"\nlabels = [1]\n";
    let expect_made_anew = |second: Option<&str>| {
        let folders = Folders::new();
        cases.iter().for_each(|case| folders.add_sound(case));
        let file = folders.dir.path().join("steps.toml");
        fs::write(&file, steps).unwrap();
        let more = ["--threads", "1", "--postprocessing", file.to_str().unwrap()];
        let mut args = folders.args(&model(), &more);
        if let Some(second) = second {
            args.splice(1..2, ["-m", &model(), "-m", second].map(String::from));
        }
        let (succeeded, report, errors) = outcome(&args);
        assert!(succeeded && names(&report, "cases") == cases, "{errors}");
        let processed = |case: &str| folders.labels().join(format!("{case}.nii.gz"));
        let expected = cases.map(|case| fs::read(processed(case)).unwrap());
        cases.iter().for_each(|case| fs::write(processed(case), "of other labels").unwrap());
        kill_behind_first_case(&folders, &[&args[..], &["--overwrite".into()]].concat());
        let (succeeded, report, errors) = outcome(&args);
        assert!(succeeded && names(&report, "kept").contains(&"a".into()), "{errors}");
        let unprocessed = folders.labels().join("unprocessed/a.nii.gz");
        assert!(unprocessed.is_file() && fs::read(processed("a")).unwrap() == expected[0], "{report}");
    };
    expect_made_anew(None);
    let second = tempfile::tempdir().unwrap();
    let copy = second.path().join("second/fold_all");
    fs::create_dir_all(&copy).unwrap();
    for file in ["specification.json", "checkpoint_final.safetensors"] {
        fs::copy(shared().join("run/fold_all").join(file), copy.join(file)).unwrap();
    }
    expect_made_anew(second.path().join("second").to_str());
}

#[test]
#[cfg(target_os = "linux")]
fn labels_are_put_in_place_when_the_next_case_is_not_waited_for_any_more() {
    let folders = Folders::new();
    folders.add("a", [1e-3; 3]);
    let large = nifti([300; 3], [1e-3; 3]);
    fs::write(folders.images().join("b_0000.nii.gz"), large).unwrap();
    let args = folders.args(&model(), &["--threads", "1"]);
    let mut child = plimsoll().args(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let looks_ahead = || {
        let threads = fs::read_dir(format!("/proc/{}/task", child.id())).unwrap().flatten();
        let mut names = threads.flat_map(|thread| fs::read_to_string(thread.path().join("comm")));
        names.any(|name| name.trim() == "next case")
    };
    let (start, mut has_looked) = (Instant::now(), false);
    while !folders.labels().join("a.nii.gz").exists() {
        has_looked |= looks_ahead();
        assert!(start.elapsed() < Duration::from_secs(300), "no case is finished");
        sleep(Duration::from_micros(200));
    }
    let is_waited_for = looks_ahead();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(has_looked && !is_waited_for);
}

#[test]
fn behind_a_call_that_was_killed_after_its_last_case_the_record_is_whole_again() {
    let folders = Folders::new();
    ["a", "b"].iter().for_each(|case| folders.add_sound(case));
    let steps = folders.dir.path().join("steps.toml");
    fs::write(&steps, "[[steps]]\nstep = \"keep_largest\"\nlabels = [1]\n").unwrap();
    let args = folders.args(&model(), &["--postprocessing", steps.to_str().unwrap()]);
    let (lines, record) = (folders.labels().join("run.cases.jsonl"), folders.labels().join("run.json"));
    let predict = || {
        let (succeeded, report, errors) = outcome(&args);
        assert!(succeeded && !lines.exists(), "{errors}");
        report
    };
    let written = || -> Value { serde_json::from_slice(&fs::read(&record).unwrap()).unwrap() };
    let first = predict();
    // A kill behind the last line leaves labels that steps were done on or not, and no record.
    let line = |predicted: &Value| {
        let [folds, engine, threads] = ["folds", "engine", "threads"].map(|what| first[what].clone());
        let mut predicted = predicted.clone();
        let name = format!("{}.nii.gz", predicted["case"].as_str().unwrap());
        predicted["file"] = folders.labels().join("unprocessed").join(name).to_str().into();
        let line =
            serde_json::json!({"folds": folds, "engine": engine, "threads": threads, "predicted": predicted});
        format!("{line}\n")
    };
    let left: String = first["cases"].as_array().unwrap().iter().map(line).collect();
    let labels = folders.labels().join("a.nii.gz");
    let expect_whole = || {
        let report = predict();
        assert_eq!(written(), report);
        assert_eq!((names(&report, "kept").len(), report["kept"][0]["file"].as_str()), (2, labels.to_str()));
        assert_eq!(report["kept"][0]["earlier"]["predicted"]["file"].as_str(), labels.to_str(), "{report}");
        predict();
        assert_eq!(written(), report, "nothing is to be changed any more");
    };
    for is_processed in [false, true] {
        fs::write(&lines, &left).unwrap();
        fs::remove_file(&record).unwrap();
        if !is_processed {
            fs::remove_file(&labels).unwrap();
        }
        expect_whole();
    }
    // So does one behind that, when lines are in a record which the call that takes them in has not replaced yet.
    let mut torn = written();
    torn.as_object_mut().unwrap().remove("seconds");
    fs::write(&record, torn.to_string()).unwrap();
    expect_whole();
    fs::remove_file(&labels).unwrap();
    let before = written();
    assert!(predict() == written() && written() != before, "steps were done");
}

#[test]
fn two_calls_into_one_folder_keep_the_lines_of_each_other() {
    let folders = Folders::new();
    ["a", "b"].iter().for_each(|case| folders.add_sound(case));
    fs::create_dir(folders.labels()).unwrap();
    let lines = folders.labels().join("run.cases.jsonl");
    let predicted = "{\"case\": \"z\", \"file\": \"z.nii.gz\", \"windows\": 1, \"seconds\": 1.0, \"times\": null, \"plan\": null, \
         \"other_spacings\": []}";
    let of_another =
        format!("{{\"folds\": 1, \"engine\": \"cpu\", \"threads\": 1, \"predicted\": {predicted}}}\n");
    fs::write(&lines, &of_another).unwrap();
    let other = fs::File::options().append(true).open(&lines).unwrap();
    other.try_lock().unwrap();
    let warning = "run.cases.jsonl belongs to another process that predicts into this folder";
    let (succeeded, report, errors) = outcome(&folders.args(&model(), &[]));
    assert!(succeeded && errors.matches(warning).count() == 1, "{errors}");
    assert_eq!(names(&report, "cases"), ["a", "b"]);
    let written = || -> Value {
        serde_json::from_slice(&fs::read(folders.labels().join("run.json")).unwrap()).unwrap()
    };
    assert_eq!(written(), report);
    let (succeeded, kept, errors) = outcome(&folders.args(&model(), &[]));
    assert!(succeeded && !errors.contains(warning), "without cases of its own it needs no lines: {errors}");
    assert_eq!((names(&kept, "kept").len(), written()), (2, report));
    assert_eq!(fs::read_to_string(&lines).unwrap(), of_another);
    // Once the other has ended without a record, they are treated as lines of a killed call.
    drop(other);
    let (succeeded, report, errors) = outcome(&folders.args(&model(), &["--overwrite"]));
    assert!(succeeded && !errors.contains(warning) && !lines.exists(), "{errors}");
    assert_eq!(written(), report);
}
