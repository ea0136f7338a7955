//! The ends of runs in real situations, and their resumption.

mod at_once;
mod bad_numbers;
mod changes;
mod damage;
mod disks;
mod pipes;
mod signals;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::Ended;
use plimsoll_nn::weights::SafetensorsFile;

/// The longest that anything is waited for.
const PATIENCE: Duration = Duration::from_secs(120);

/// A process that runs. It is killed where a test fails, so that it does not go on in a folder that is gone.
struct Running(Option<Child>);

impl Running {
    fn start(command: &mut Command) -> Running {
        Running::with_its_output(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
    }

    /// A process that writes where its command says.
    fn with_its_output(command: &mut Command) -> Running {
        Running(Some(command.spawn().unwrap()))
    }

    fn child(&mut self) -> &mut Child {
        self.0.as_mut().unwrap()
    }

    /// Waits until something is so.
    fn until(mut self, mut is_so: impl FnMut() -> bool) -> Running {
        let start = Instant::now();
        while !is_so() {
            if self.child().try_wait().unwrap().is_some() {
                panic!("it ended by itself: {:?}", self.end());
            }
            assert!(start.elapsed() < PATIENCE, "nothing happens");
            std::thread::sleep(Duration::from_millis(2));
        }
        self
    }

    fn signal(mut self, name: &str) -> Running {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child().id().to_string()]).status();
        assert!(sent.unwrap().success());
        self
    }

    fn end(mut self) -> Ended {
        self.0.take().unwrap().wait_with_output().unwrap().into()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Checks that all numbers of a checkpoint are finite.
fn expect_finite(checkpoint: &Path) {
    let mut file = SafetensorsFile::open(checkpoint).unwrap();
    let tensors: Vec<_> = file.tensors().map(|(name, shape)| (name.to_string(), shape)).collect();
    assert!(tensors.len() > 10);
    for (name, shape) in tensors {
        let mut values = vec![0.0; shape.count()];
        file.read(&name, &shape, &mut values).unwrap();
        assert!(values.iter().all(|value: &f32| value.is_finite()), "{name} of {}", checkpoint.display());
    }
}
