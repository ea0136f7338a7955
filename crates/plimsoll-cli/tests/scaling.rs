//! The numbers of `bench scaling` add up, for measured and for simulated threads.

use crate::support::run_json;
use serde_json::Value;

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

#[test]
fn threads_with_cores_are_measured_and_others_simulated() {
    let mut args = vec!["bench", "scaling", "--net", "plain", "--size", "16", "--features", "4,8"];
    args.extend(["--threads", "1,64", "--rounds", "1", "--forward"]);
    let report = run_json(&args);
    let cores = std::thread::available_parallelism().unwrap().get();
    assert_eq!(report["cores"], cores);
    assert_eq!(report["barrier"]["measured_with_threads"], cores.clamp(2, 64));
    assert!(number(&report["barrier"]["seconds"]) > 0.0);
    let on_one = number(&report["seconds_on_one_thread"]);
    assert!(on_one > 0.0);

    let scaled = report["threads"].as_array().unwrap();
    assert_eq!(scaled.len(), 2);
    for (scaled, threads) in scaled.iter().zip([1, 64]) {
        assert_eq!(scaled["threads"], threads);
        let measured = threads <= cores;
        assert_eq!(scaled["measured"], measured);
        let (seconds, efficiency) = (number(&scaled["seconds"]), number(&scaled["efficiency"]));
        assert!(efficiency > 0.0);
        if !measured {
            // Tasks take as long as on one thread, and barriers come on top.
            assert!(efficiency < 1.0, "{efficiency}");
            let shared = on_one / (threads as f64 * efficiency);
            assert!((seconds - shared).abs() <= 1e-9, "{seconds}, {shared}");
        }
        let kinds = scaled["kinds"].as_array().unwrap();
        let sum = |what: &str| kinds.iter().map(|kind| number(&kind[what])).sum::<f64>();
        assert!((sum("seconds") - seconds).abs() <= 1e-9, "{} is not {seconds}", sum("seconds"));
        if !measured {
            assert!((sum("seconds_on_one_thread") - on_one).abs() <= 1e-9);
        }
    }
}
