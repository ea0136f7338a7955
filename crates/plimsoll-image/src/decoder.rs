//! Panics of decoders that are libraries': they become errors, and nothing else is said of them.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

/// A decoder panicked, which no file should make it do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Panicked;

thread_local! {
    /// Whether a decoder runs on this thread.
    static DECODING: Cell<bool> = const { Cell::new(false) };
}

/// Runs a decoder and catches its panics. The hook of panics, which would print a message and a trace beside the error that follows, is
/// passed over for this thread meanwhile: whatever panics elsewhere goes to the hook that was there before the first decoder ran.
///
/// # Errors
/// If the decoder panicked.
pub fn run_decoder<T>(decode: impl FnOnce() -> T) -> Result<T, Panicked> {
    static HOOKED: Once = Once::new();
    HOOKED.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |panic| {
            if !DECODING.get() {
                before(panic);
            }
        }));
    });
    DECODING.set(true);
    let decoded = catch_unwind(AssertUnwindSafe(decode));
    DECODING.set(false);
    decoded.map_err(|_| Panicked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::thread;

    /// The variable by which the test runs itself as a process of its own, whose error stream is looked at.
    const CHILD: &str = "PLIMSOLL_TEST_OF_QUIET_PANICS";

    #[test]
    fn a_panic_of_a_decoder_prints_nothing_and_any_other_does() {
        if std::env::var_os(CHILD).is_some() {
            assert_eq!(run_decoder(|| -> u8 { panic!("of a decoder") }), Err(Panicked));
            assert_eq!(run_decoder(|| 3), Ok(3));
            assert!(thread::spawn(|| panic!("of another thread")).join().is_err());
            assert!(catch_unwind(|| panic!("after a decoder")).is_err());
            return;
        }
        let name = "decoder::tests::a_panic_of_a_decoder_prints_nothing_and_any_other_does";
        let mut child = Command::new(std::env::current_exe().unwrap());
        let output = child.args([name, "--exact", "--nocapture"]).env(CHILD, "1").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!said.contains("of a decoder"), "{said}");
        assert!(said.contains("of another thread") && said.contains("after a decoder"), "{said}");
    }
}
