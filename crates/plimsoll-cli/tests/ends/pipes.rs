//! Whoever reads what is printed may go away.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use super::Running;
use crate::support::{Ended, Tiny, expect_same, plimsoll, warnings};

/// The signal that ends a process which writes into a closed pipe.
const SIGPIPE: i32 = 13;

#[test]
fn a_command_whose_reader_has_gone_ends_quietly() {
    let tiny = Tiny::new();
    let data = tiny.data.to_str().unwrap();
    let plan = ["plan", data, "--net", "dynunet", "--features", "4,8", "--patch-size", "8", "--threads", "1"];
    let commands: [&[&str]; 6] = [
        &["settings"],
        &["doctor"],
        &["doctor", "--json"],
        &["--help"],
        &["inspect", data],
        &[&plan[..], &["--ram", "512MiB", "--config", "/dev/null"]].concat(),
    ];
    for args in commands {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = plimsoll();
        let output = command.args(args).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.signal(), Some(SIGPIPE), "{args:?}: {output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("panicked") && !said.contains("error"), "{args:?}: {said}");
    }
}

#[test]
fn a_training_whose_output_cannot_be_written_goes_on_and_its_journal_says_so_once() {
    let tiny = Tiny::new();
    let whole = tiny.path("whole");
    let settings = ["--epochs", "40"];
    tiny.trained(&whole, &settings);
    let full = || fs::File::options().write(true).open("/dev/full").unwrap();
    let run = tiny.path("full");
    let status = tiny.train(&run, &settings).stdout(full()).stderr(full()).status().unwrap();
    assert_eq!(status.code(), Some(0), "{status:?}");
    // A reader that goes away once there is something to save.
    let closed = tiny.path("closed");
    let metrics = closed.join("fold_0/metrics.jsonl");
    let running = Running::start(&mut tiny.train(&closed, &settings));
    let mut running = running.until(|| fs::read(&metrics).is_ok_and(|lines| !lines.is_empty()));
    drop((running.child().stdout.take(), running.child().stderr.take()));
    assert_eq!(running.child().wait().unwrap().code(), Some(0));
    for (run, said) in [(run, "No space left on device"), (closed, "Broken pipe")] {
        let warned = warnings(&run.join("fold_0"));
        assert!(
            warned.len() == 1 && warned[0].contains("is dropped") && warned[0].contains(said),
            "{warned:?}"
        );
        expect_same(&run, &whole, said);
    }
}

#[test]
fn a_result_that_cannot_be_printed_is_an_error() {
    let full = || fs::File::options().write(true).open("/dev/full").unwrap();
    for args in [&["settings"][..], &["doctor", "--json"]] {
        let error = Ended::run_printing_to(plimsoll().args(args), full()).error(1);
        assert!(error.contains("standard output: No space left on device"), "{error}");
    }
    // Nobody is told, and nothing panics.
    let status = plimsoll().arg("no-command").stdout(full()).stderr(full()).status().unwrap();
    assert_eq!(status.code(), Some(2));
}

#[test]
fn a_file_beyond_the_limit_of_file_sizes_is_an_error_and_the_run_goes_on_without_the_limit() {
    let tiny = Tiny::new();
    let (run, whole) = (tiny.path("run"), tiny.path("whole"));
    let settings = ["--features", "8,16"];
    tiny.trained(&whole, &settings);
    let train = tiny.train(&run, &settings);
    // In units of 1 KiB: checkpoints are longer, and all that is written before them is shorter.
    let mut limited = Command::new("bash");
    limited.args(["-c", "ulimit -f 64; exec \"$0\" \"$@\""]).arg(train.get_program()).args(train.get_args());
    limited.envs(train.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let error = Ended::run(limited.current_dir(std::env::temp_dir())).error(1);
    assert!(error.contains("File too large") && error.contains("ulimit -f"), "{error}");
    tiny.trained(&run, &[&settings[..], &["--resume"]].concat());
    expect_same(&run, &whole, "after a file was too large");
}
