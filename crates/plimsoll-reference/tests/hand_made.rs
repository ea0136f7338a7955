//! A program that was put together by hand, however wrong, is an error or a plan that runs.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use conformance::random::{Random, changed, options, run, valid};
use plimsoll_reference::ReferenceBackend;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_program_is_an_error_or_runs(seed in any::<u64>()) {
        let random = &mut Random(seed);
        let backend = ReferenceBackend::new().poisoned();
        let programs = valid(random);
        prop_assert!(run(&programs, &backend, options(random), random).unwrap());
        for _ in 0..20 {
            let Some(changed) = changed(&programs, random) else { continue };
            run(&changed, &backend, options(random), random).unwrap();
        }
    }
}
