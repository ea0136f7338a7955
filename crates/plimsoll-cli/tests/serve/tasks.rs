//! Tasks of TotalSegmentator of several networks: the labels that `segment` writes.

use std::fs;
use std::io::{Read, Write};

use zip::write::SimpleFileOptions;

use crate::client::{Server, oracle};
use crate::support::{run_error, run_json};

fn weights() -> String {
    oracle("total_segmentator/weights").to_str().unwrap().to_string()
}

fn image() -> Vec<u8> {
    fs::read(oracle("total_segmentator/ct.nii.gz")).unwrap()
}

fn decompressed(bytes: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    flate2::read::MultiGzDecoder::new(bytes).read_to_end(&mut all).unwrap();
    all
}

/// An archive of the channels of an image.
fn channels(count: usize) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for channel in 0..count {
        zip.start_file(format!("ct_{channel:04}.nii.gz"), SimpleFileOptions::default()).unwrap();
        zip.write_all(&image()).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

#[test]
fn a_task_of_five_networks_has_the_labels_that_segment_writes() {
    let dir = tempfile::tempdir().unwrap();
    let expected = dir.path().join("labels.nii.gz");
    let (ct, weights) = (oracle("total_segmentator/ct.nii.gz"), weights());
    let (ct, out) = (ct.to_str().unwrap(), expected.to_str().unwrap());
    run_json(&["segment", "total", "-i", ct, "-o", out, "--ml", "--weights", &weights, "--ram", "400MiB"]);
    let tasks = ["--task", "tiny=total", "--task", "total:fast", "--weights", &weights];
    let mut server = Server::start_with(&tasks, &["--ram", "512MiB"]);
    let all = server.get("/v1/models").json();
    assert_eq!(
        (&all["models"][0]["name"], &all["models"][1]["name"]),
        (&"tiny".into(), &"total-fast".into())
    );
    assert_eq!(all["models"][0]["labels"].as_array().unwrap().len(), 117);
    assert_eq!(all["models"][0]["license"], "Apache-2.0");
    let plan = server.post("plan", &image()).json();
    assert!(plan["needed_ram_bytes"].as_u64() <= plan["planned_ram_bytes"].as_u64(), "{plan}");
    let expected = decompressed(&fs::read(&expected).unwrap());
    let labels = server.post("labels", &image());
    assert_eq!(labels.status, 200, "{labels:?}");
    assert!(decompressed(&labels.body) == expected);
    // Uncompressed, and as the file of a channel.
    let plain = server.post("labels", &decompressed(&image()));
    assert_eq!((plain.status, plain.header("content-type")), (200, Some("application/octet-stream")));
    assert!(plain.body == expected);
    let zipped = server.post("labels", &channels(1));
    assert!(zipped.status == 200 && decompressed(&zipped.body) == expected, "{}", zipped.head);
    let two = server.post("labels", &channels(2));
    assert_eq!(two.status, 422, "{two:?}");
    assert!(two.problem().contains("2 channels"), "{two:?}");
    let half = server.post("labels", &image()[..image().len() / 2]);
    assert_eq!(half.status, 422, "{half:?}");
    assert!(!half.problem().contains(server.scratch.path().to_str().unwrap()), "{half:?}");
    server.wait_until_idle();
    assert!(server.is_running());
}

#[test]
fn a_task_below_its_limit_is_refused_with_one_that_suffices() {
    let weights = weights();
    let tasks = ["--task", "tiny=total:fast", "--weights", &weights];
    // Less than the process itself needs, and a little more than that, which no network fits beside.
    let error = run_error(&[&["serve", "--queue", "2", "--ram", "16MiB"], &tasks[..]].concat());
    let (_, own) = error.split_once("the process itself needs ").unwrap();
    let own: f64 = own.split_once(" MiB").unwrap().0.parse().unwrap();
    let start = |limit: u64| Server::start_with(&tasks, &["--ram", &format!("{limit}MiB"), "--queue", "2"]);
    let refused = start(own as u64 + 12).post("labels", &image());
    assert_eq!((refused.status, refused.header("retry-after")), (503, None), "{refused:?}");
    let needed = refused.json()["needed_ram_bytes"].as_u64().unwrap();
    refused.problem();
    let server = start(needed.div_ceil(1 << 20));
    let labels = server.post("labels", &image());
    assert_eq!(labels.status, 200, "{labels:?}");
    assert!(server.peak() <= needed.div_ceil(1 << 20) << 20);
}

#[test]
fn tasks_that_cannot_run_are_refused_at_the_start() {
    let weights = weights();
    let refused = |task: &str, weights: &str, expected: &str| {
        let error = run_error(&["serve", "--task", task, "--weights", weights, "--ram", "512MiB"]);
        assert!(error.contains(expected) && error.contains("hint: "), "{error}");
    };
    refused("heart", &weights, "`heart` is not a supported task");
    refused("total:coarse", &weights, "`coarse` is not a resolution");
    refused("breasts", &weights, "Dataset527_*");
    refused("total", "/nowhere", "/nowhere");
    // Those of the task that finds where it looks.
    refused("abdominal_muscles", &weights, "Dataset");
    refused("a/b=total", &weights, "cannot be a name in addresses");
    let twice =
        run_error(&["serve", "--task", "total", "--task", "total", "--weights", &weights, "--ram", "512MiB"]);
    assert!(twice.contains("two models have the name total"), "{twice}");
}
