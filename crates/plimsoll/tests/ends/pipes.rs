//! Whoever reads what is printed may go away.

use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use crate::support::{Tiny, plimsoll};

/// What the system ends a process with that writes to no one.
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
