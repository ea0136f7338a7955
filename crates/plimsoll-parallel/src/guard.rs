//! Panics of libraries that read untrusted files: they become errors, and print nothing.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

/// A call panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Panicked;

thread_local! {
    /// `true` if the panics of this thread are caught.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Calls a function and catches its panic, which no file should cause in a decoder but some do. The panic hook, which would print a
/// message and a trace beside the error that follows, is skipped on this thread meanwhile; a panic elsewhere goes to the hook that was set
/// before the first call. Calls may be nested.
///
/// # Errors
/// Returns an error if the function panicked.
pub fn catch_panic<T>(call: impl FnOnce() -> T) -> Result<T, Panicked> {
    static HOOKED: Once = Once::new();
    HOOKED.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |panic| {
            if !GUARDED.get() {
                before(panic);
            }
        }));
    });
    let outer = GUARDED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(call));
    GUARDED.set(outer);
    result.map_err(|_| Panicked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::thread;

    /// The variable by which the test runs itself as a process of its own, whose error stream it reads.
    const CHILD: &str = "PLIMSOLL_TEST_OF_QUIET_PANICS";

    #[test]
    fn a_panic_that_is_caught_prints_nothing_and_any_other_does() {
        if std::env::var_os(CHILD).is_some() {
            assert_eq!(catch_panic(|| -> u8 { panic!("of a decoder") }), Err(Panicked));
            assert_eq!(catch_panic(|| 3), Ok(3));
            let nested = catch_panic(|| -> u8 {
                assert_eq!(catch_panic(|| 3), Ok(3));
                panic!("of a decoder, after one within it")
            });
            assert_eq!(nested, Err(Panicked));
            assert!(thread::spawn(|| panic!("of another thread")).join().is_err());
            assert!(catch_unwind(|| panic!("after a decoder")).is_err());
            return;
        }
        let name = "guard::tests::a_panic_that_is_caught_prints_nothing_and_any_other_does";
        let mut child = Command::new(std::env::current_exe().unwrap());
        let output = child.args([name, "--exact", "--nocapture"]).env(CHILD, "1").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!said.contains("of a decoder"), "{said}");
        assert!(said.contains("of another thread") && said.contains("after a decoder"), "{said}");
    }
}
