//! Plans of trainings by several ranks.

use std::fs;

use crate::support::{dataset, run, run_error, run_json};
use serde_json::Value;

const NET: [&str; 12] = [
    "--net",
    "dynunet",
    "--features",
    "8,16",
    "--patch-size",
    "16,16,16",
    "--config",
    "/dev/null",
    "--threads",
    "1",
    "--ram",
    "1GiB",
];

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap()
}

#[test]
fn a_plan_of_ranks_has_a_row_for_each_number_that_divides_the_shards() {
    let dir = tempfile::tempdir().unwrap();
    let data = dataset(dir.path());
    let data = data.to_str().unwrap();
    let plan = |more: &[&str]| run_json(&[&["plan", data][..], &NET, more].concat());
    let report = plan(&["--ranks", "4", "--network", "1Gbit"]);
    let scaling = &report["scaling"];
    let costs = scaling["costs"].as_array().unwrap();
    let column = |key: &str| costs.iter().map(|cost| number(cost, key)).collect::<Vec<_>>();
    assert_eq!(column("ranks"), [1.0, 2.0, 4.0]);
    // Each rank has at least a sample: as many shards as ranks, and a batch of them.
    assert_eq!((number(scaling, "shards"), number(scaling, "batch_size")), (4.0, 4.0));
    assert_eq!(column("samples"), [4.0, 2.0, 1.0]);
    // The first row is the run of a process alone, and the last the plan of a rank.
    let settings = dir.path().join("shards.toml");
    fs::write(&settings, "shards = 4\n").unwrap();
    let alone = NET.map(|word| if word == "/dev/null" { settings.to_str().unwrap() } else { word });
    let alone = run_json(&[&["plan", data, "--batch-size", "4"][..], &alone].concat());
    assert_eq!(costs[0]["minimum_ram_bytes"], alone["minimum_ram_bytes"]);
    assert_eq!(costs[0]["total_bytes"], alone["total_bytes"]);
    assert_eq!(report["numbers"]["total_bytes"], costs[2]["total_bytes"]);
    assert_eq!((column("sent_bytes_per_step")[0], column("communication_seconds_per_step")[0]), (0.0, 0.0));
    for cost in costs {
        let (computing, communication) =
            (number(cost, "compute_seconds_per_step"), number(cost, "communication_seconds_per_step"));
        assert!(number(cost, "predicted_seconds_per_step") == computing + communication, "{cost}");
        let bytes = number(cost, "received_bytes_per_step").max(number(cost, "sent_bytes_per_step"));
        // A third of the computing hides gradients at most.
        assert!(communication + computing / 3.0 >= bytes * 8.0 / 1e9, "faster than the network: {cost}");
    }
    // Half of the bandwidth takes longer, and the bytes stay.
    let slower = plan(&["--ranks", "4", "--network", "500Mbit,1ms"]);
    for (fast, slow) in costs.iter().zip(slower["scaling"]["costs"].as_array().unwrap()).skip(1) {
        assert_eq!(fast["sent_bytes_per_step"], slow["sent_bytes_per_step"]);
        let seconds = |cost| number(cost, "communication_seconds_per_step");
        assert!(seconds(slow) > 2.0 * seconds(fast));
    }
    let output = run(&[&["plan", data][..], &NET, &["--ranks", "2", "--network", "25Gbit"]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    for said in ["25 Gbit/s and 50 µs", "least limit", "efficiency", "does not hide", "10 % faster"] {
        assert!(text.contains(said), "{said}: {text}");
    }
}

#[test]
fn ranks_that_cannot_divide_a_batch_and_texts_that_are_no_network_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let data = dataset(dir.path());
    let data = data.to_str().unwrap();
    let error = |more: &[&str]| run_error(&[&["plan", data][..], &NET, more].concat());
    let batch = error(&["--ranks", "4", "--network", "25Gbit", "--batch-size", "6"]);
    for said in
        ["a batch of 6 sample(s) has no 4 equal shards for 4 ranks", "`batch_size` to 8, or plan 3 rank(s)"]
    {
        assert!(batch.contains(said), "{batch}");
    }
    let network = error(&["--ranks", "4", "--network", "25GB"]);
    assert!(network.contains("25Gbit or 25Gbit,30us"), "{network}");
    let alone = error(&["--ranks", "4"]);
    assert!(alone.contains("--network"), "{alone}");
    let many = error(&["--ranks", "1024", "--network", "25Gbit"]);
    assert!(many.contains("tensors are trained, but each of 1024 ranks updates one at least"), "{many}");
    // The proposed number can be planned.
    let proposed = many.split("plan ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    let network = ["--network", "25Gbit", "--ranks", proposed];
    run_json(&[&["plan", data][..], &NET, &network].concat());
}
