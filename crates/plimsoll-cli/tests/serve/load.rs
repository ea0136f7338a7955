//! Many requests at a time, and large ones, within one memory limit.

use std::fs;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_volume::{Affine, ElementType, Geometry, Spacing, VolumeFile, VolumeWriter};

use crate::client::{Answer, Server, Trained};
use crate::support::run_error;

/// Requests at a time.
const REQUESTS: usize = 200;
/// The number of requests of which one has a large image.
const LARGE_EVERY: usize = 100;
const LIMIT: u64 = 1 << 30;

/// An image of 16-bit numbers that compresses well, whose voxels are some times finer than in training along each axis: it then has
/// less windows, and all of its voxels are held.
fn image(trained: &Trained, shape: [usize; 3], finer: f64) -> Vec<u8> {
    let path = trained.tiny.path(&format!("image_{}.nii.gz", shape[0]));
    let training = VolumeFile::open(trained.image_path()).unwrap().geometry().spacing();
    let affine = Affine::from_spacing(Spacing(training.0.map(|length| length / finer)));
    let geometry = Geometry::new(shape, affine).unwrap();
    let mut writer = VolumeWriter::create(&path, &geometry, 1, ElementType::I16, None).unwrap();
    let plane = shape[1] * shape[2];
    for depth in 0..shape[0] {
        let values: Vec<i16> = (0..plane).map(|at| ((at / 64 + depth) % 32) as i16).collect();
        writer
            .write_planes(&values.iter().flat_map(|value| value.to_ne_bytes()).collect::<Vec<u8>>())
            .unwrap();
    }
    writer.finish().unwrap();
    fs::read(path).unwrap()
}

fn together(send: impl Fn(usize) -> Answer + Sync) -> Vec<Answer> {
    thread::scope(|scope| {
        let send = &send;
        let threads: Vec<_> = (0..REQUESTS).map(|number| scope.spawn(move || send(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[cfg(target_os = "linux")]
#[test]
fn two_hundred_requests_at_a_time_stay_below_the_limit() {
    let trained = Trained::new_with(&["--patch-size", "32"]);
    let (small, large) = (trained.image(), image(&trained, [160, 1000, 1000], 8.0));
    let queue = REQUESTS.to_string();
    let server = Server::start(&trained.run, &["--ram", "1GiB", "--queue", &queue, "--overlap", "0"]);
    let plan = server.post("plan", &large).json();
    // Two at a time would exceed the limit.
    let planned = plan["planned_ram_bytes"].as_u64().unwrap();
    assert!(LIMIT / 2 < planned && planned <= LIMIT, "{plan}");
    let start = Instant::now();
    let answers =
        together(|number| server.post("labels", if number % LARGE_EVERY == 0 { &large } else { &small }));
    let seconds = start.elapsed().as_secs_f64();
    let labelled = answers.iter().filter(|answer| answer.status == 200).count();
    assert_eq!(labelled, REQUESTS, "{:?}", answers.iter().find(|answer| answer.status != 200));
    let peak = server.peak();
    println!(
        "{REQUESTS} requests in {seconds:.1} s: peak {} MiB of {} MiB, planned {} MiB",
        peak >> 20,
        LIMIT >> 20,
        planned >> 20
    );
    assert!(peak <= LIMIT, "{peak}");
    server.wait_until_idle();
}

#[test]
fn requests_beyond_the_queue_are_refused_with_a_time_to_try_again() {
    let trained = Trained::new();
    let server = Server::start(&trained.run, &["--ram", "1GiB", "--queue", "4"]);
    let image = trained.image();
    let answers = together(|_| server.post("labels", &image));
    let mut refused = 0;
    for answer in &answers {
        match answer.status {
            200 => {}
            503 => {
                refused += 1;
                assert!(answer.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1, "{answer:?}");
                assert!(answer.problem().contains("all of its 4 places are taken"), "{answer:?}");
            }
            status => panic!("{status}: {answer:?}"),
        }
    }
    assert!(0 < refused && refused < REQUESTS, "{refused}");
    server.wait_until_idle();
    assert_eq!(server.post("labels", &image).status, 200);
}

/// Many requests at a time, of which those with a large image need more than the limit.
#[cfg(target_os = "linux")]
#[test]
fn under_load_some_requests_queue_and_others_are_refused_with_a_limit_that_suffices() {
    const QUEUE: usize = 40;
    let trained = Trained::new_with(&["--patch-size", "32", "--features", "16,32"]);
    let (small, large) = (trained.image(), image(&trained, [8, 3000, 3000], 8.0));
    let queue = QUEUE.to_string();
    let start = |ram: u64| {
        Server::start(&trained.run, &["--ram", &ram.to_string(), "--queue", &queue, "--overlap", "0"])
    };
    let [least, most] = {
        let server = start(LIMIT);
        [&small, &large].map(|image| server.post("plan", image).json()["needed_ram_bytes"].as_u64().unwrap())
    };
    assert!(least + (2 << 20) < most && most < LIMIT, "{least} {most}");
    let limit = least.midpoint(most);
    let mut server = start(limit);
    let is_done = AtomicBool::new(false);
    let (answers, waiting) = thread::scope(|scope| {
        // How many wait behind the one that runs.
        let watching = scope.spawn(|| {
            let mut most = 0;
            while !is_done.load(Ordering::Relaxed) {
                most = most.max(server.get("/v1/status").json()["waiting"].as_u64().unwrap());
                thread::sleep(Duration::from_millis(20));
            }
            most
        });
        let answers = together(|number| server.post("labels", if number % 5 == 0 { &large } else { &small }));
        is_done.store(true, Ordering::Relaxed);
        (answers, watching.join().unwrap())
    });
    let (mut labelled, mut full, mut too_large) = (0, 0, None);
    for (number, answer) in answers.iter().enumerate() {
        match (answer.status, answer.header("retry-after")) {
            (200, _) => {
                assert!(number % 5 > 0, "{}", answer.head);
                labelled += 1;
            }
            (503, Some(_)) => {
                assert!(answer.problem().contains("all of its 40 places are taken"), "{answer:?}");
                full += 1;
            }
            (503, None) => {
                assert_eq!(number % 5, 0, "{answer:?}");
                too_large = answer.json()["needed_ram_bytes"].as_u64();
            }
            _ => panic!("{answer:?}"),
        }
    }
    println!(
        "{labelled} labelled, {full} refused by the queue, {waiting} waited at a time, limit {} MiB",
        limit >> 20
    );
    assert!(labelled > 0 && full > 0 && waiting > 1, "{labelled} {full} {waiting}");
    assert!(server.peak() <= limit && server.is_running());
    server.wait_until_idle();
    // The limit that an answer named suffices.
    let suffices = too_large.unwrap();
    assert!(suffices > limit, "{suffices} {limit}");
    let server = start(suffices);
    assert_eq!(server.post("labels", &large).status, 200);
    assert!(server.peak() <= suffices);
}

#[test]
fn a_limit_that_is_too_low_is_refused_with_one_that_suffices() {
    let trained = Trained::new_with(&["--patch-size", "32", "--features", "16,32"]);
    let large = image(&trained, [32, 256, 256], 1.0);
    // Less than a window needs beside the process, whose code is larger in builds for tests.
    let model = format!("tiny={}", trained.run.display());
    let error = run_error(&["serve", "--model", &model, "--queue", "2", "--ram", "16MiB"]);
    let (_, own) = error.split_once("the process itself needs ").unwrap();
    let own: f64 = own.split_once(" MiB").unwrap().0.parse().unwrap();
    let (mut limit, mut needed) = (own as u64 + 12, 0);
    for _ in 0..2 {
        let server =
            Server::start(&trained.run, &["--ram", &format!("{limit}MiB"), "--queue", "2", "--overlap", "0"]);
        let answer = server.post("plan", &large);
        if needed > 0 {
            assert_eq!(answer.status, 200, "{answer:?}");
            // Planned, and then predicted.
            assert_eq!(server.post("labels", &large).status, 200);
            return;
        }
        assert_eq!(answer.status, 503, "{answer:?}");
        assert_eq!(answer.header("retry-after"), None);
        needed = answer.json()["needed_ram_bytes"].as_u64().unwrap();
        assert!(answer.json()["hint"].as_str().unwrap().contains("of the server"), "{answer:?}");
        limit = needed.div_ceil(1 << 20);
    }
}

#[test]
fn a_client_that_goes_away_ends_its_prediction() {
    let trained = Trained::new();
    // Hundreds of thousands of windows, for which nobody would wait.
    let large = image(&trained, [256, 320, 320], 1.0);
    let server = Server::start(&trained.run, &["--ram", "1GiB", "--queue", "2"]);
    let request = [server.head("POST", "/v1/models/tiny/labels", large.len()).as_bytes(), &large].concat();
    let mut gone = server.connect();
    gone.write_all(&request).unwrap();
    let start = Instant::now();
    while server.get("/v1/status").json()["predicted_seconds"] == 0.0 {
        assert!(start.elapsed() < Duration::from_secs(60));
        thread::sleep(Duration::from_millis(20));
    }
    let predicted = server.get("/v1/status").json()["predicted_seconds"].as_f64().unwrap();
    // One that waits, and goes away as well.
    let mut waiting = server.connect();
    waiting.write_all(&request).unwrap();
    while server.get("/v1/status").json()["taken_places"] != 2 {
        assert!(start.elapsed() < Duration::from_secs(120));
        thread::sleep(Duration::from_millis(20));
    }
    drop((gone, waiting));
    let left = Instant::now();
    server.wait_until_idle();
    assert!(left.elapsed().as_secs_f64() < predicted / 2.0 + 5.0, "{predicted}");
    assert_eq!(server.post("labels", &trained.image()).status, 200);
}

#[test]
fn clients_that_send_nothing_or_do_not_read_their_labels_lose_their_connections() {
    let trained = Trained::new();
    // Uncompressed, so that the labels do not fit into the buffers of the system.
    let mut plain = Vec::new();
    flate2::read::MultiGzDecoder::new(&image(&trained, [16, 1500, 1500], 32.0)[..])
        .read_to_end(&mut plain)
        .unwrap();
    let server = Server::start(&trained.run, &["--ram", "1GiB", "--queue", "1", "--idle", "1"]);
    let mut deaf = server.connect();
    deaf.write_all(&[server.head("POST", "/v1/models/tiny/labels", plain.len()).as_bytes(), &plain].concat())
        .unwrap();
    server.wait_until_idle();
    let mut some = [0; 12];
    deaf.read_exact(&mut some).unwrap();
    assert_eq!(&some, b"HTTP/1.1 200");
    // As many as may be connected at a time: the next one waits until they are closed.
    let silent: Vec<_> = (0..17).map(|_| server.connect()).collect();
    let start = Instant::now();
    assert_eq!(server.get("/health").status, 200);
    assert!(start.elapsed() < Duration::from_secs(60));
    drop(silent);
}
