//! Requests of clients, good and bad.

use std::fs;
use std::io::{Read, Write};
use std::thread;
use std::time::Duration;

use zip::write::SimpleFileOptions;

use crate::client::{Server, Trained, answer, oracle};
use crate::support::{plimsoll, run_error};

/// The labels that the command line writes for the image.
fn expected(trained: &Trained) -> Vec<u8> {
    let labels = trained.tiny.path("labels");
    let mut command = plimsoll();
    command.arg("predict").arg(&trained.run).arg("-i").arg(trained.image_path()).arg("-o").arg(&labels);
    assert!(command.args(["--ram", "512MiB"]).output().unwrap().status.success());
    let mut files = fs::read_dir(&labels).unwrap().map(|entry| entry.unwrap().path());
    let file = files.find(|path| path.to_string_lossy().ends_with(".nii.gz")).unwrap();
    decompressed(&fs::read(file).unwrap())
}

fn decompressed(bytes: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    flate2::read::MultiGzDecoder::new(bytes).read_to_end(&mut all).unwrap();
    all
}

fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}

/// A ZIP archive.
fn archive<'a>(files: impl IntoIterator<Item = (&'a str, Vec<u8>)>) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
    for (name, content) in files {
        zip.start_file(name, options).unwrap();
        zip.write_all(&content).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

/// The slices of a small series, in an archive.
fn series() -> Vec<u8> {
    let mut slices: Vec<_> =
        fs::read_dir(oracle("dicom/short")).unwrap().map(|entry| entry.unwrap().path()).collect();
    slices.sort();
    let names: Vec<String> = (0..slices.len()).map(|number| format!("series/{number:03}")).collect();
    archive(names.iter().map(String::as_str).zip(slices.iter().map(|slice| fs::read(slice).unwrap())))
}

#[test]
fn an_image_becomes_the_labels_that_the_command_line_writes() {
    let trained = Trained::new();
    let server = Server::start(&trained.run, &["--ram", "512MiB"]);
    let (image, expected) = (trained.image(), expected(&trained));
    let labels = server.post("labels", &image);
    assert_eq!(labels.status, 200, "{labels:?}");
    assert_eq!(labels.header("content-type"), Some("application/gzip"));
    assert_eq!(decompressed(&labels.body), expected);
    // Uncompressed images get uncompressed labels.
    let plain = server.post("labels", &decompressed(&image));
    assert_eq!(plain.header("content-type"), Some("application/octet-stream"));
    assert_eq!(plain.body, expected);
    // One channel in a file of its own is an image, too.
    let channels = archive([("Ann_Smith_0000.nii.gz", image.clone())]);
    let zipped = server.post("labels?form=nifti", &channels);
    assert_eq!(decompressed(&zipped.body), expected, "{}", zipped.head);
    let plan = server.post("plan", &image).json();
    let number = |name: &str| plan[name].as_u64().unwrap();
    assert!(number("needed_ram_bytes") <= number("planned_ram_bytes"), "{plan}");
    assert!(number("planned_ram_bytes") <= 512 << 20, "{plan}");
    server.wait_until_idle();
}

#[test]
fn a_series_becomes_a_segmentation_of_its_slices_or_a_label_map() {
    let model = oracle("total_segmentator/weights/Dataset297_TotalSegmentator_total_3mm_1559subj");
    let server = Server::start(&model, &["--ram", "512MiB"]);
    let folder = tempfile::tempdir().unwrap();
    let series = series();
    let segmentation = server.post("labels?form=dicom-seg", &series);
    assert_eq!(segmentation.status, 200, "{segmentation:?}");
    assert_eq!(segmentation.header("content-type"), Some("application/dicom"));
    let file = folder.path().join("labels.dcm");
    fs::write(&file, &segmentation.body).unwrap();
    let object = dicom_object::OpenFileOptions::new().open_file(&file).unwrap();
    let text =
        |group, element| object.get(dicom_object::Tag(group, element)).unwrap().to_str().unwrap().to_string();
    assert_eq!(text(0x0008, 0x0016).trim_end_matches('\0'), "1.2.840.10008.5.1.4.1.1.66.4");
    let slice = oracle("dicom/short");
    let slice = fs::read_dir(slice).unwrap().map(|entry| entry.unwrap().path()).next().unwrap();
    let slice = dicom_object::OpenFileOptions::new().open_file(slice).unwrap();
    let study = slice.get(dicom_object::Tag(0x0020, 0x000D)).unwrap().to_str().unwrap().to_string();
    assert_eq!(text(0x0020, 0x000D), study);
    let map = server.post("labels", &series);
    assert_eq!(map.header("content-type"), Some("application/gzip"), "{map:?}");
    assert!(decompressed(&map.body).len() > 352);
    let nifti = server.post("labels?form=dicom-seg", &Trained::new().image());
    assert_eq!(nifti.status, 422);
    assert!(nifti.problem().contains("refer to the slices of a DICOM series"), "{nifti:?}");
    server.wait_until_idle();
}

#[test]
fn the_interface_describes_itself_and_only_a_right_token_sees_the_rest() {
    let trained = Trained::new();
    let server = Server::start(&trained.run, &["--ram", "512MiB", "--upload-limit", "2MiB"]);
    assert_eq!(server.get("/health").json()["status"], "ok");
    let document = server.get("/openapi.json").json();
    assert_eq!(document["openapi"], "3.1.0");
    let model = server.get("/v1/models/tiny").json();
    assert_eq!(server.get("/v1/models").json()["models"][0], model);
    assert_eq!(model["labels"][0]["value"], 1, "{model}");
    assert_eq!(model["channels"].as_array().unwrap().len(), 1);
    for (target, status) in
        [("/", 404), ("/v1/models/other", 404), ("/v1/models/%ff", 400), ("/v1/models/tiny/labels", 405)]
    {
        let answer = server.get(target);
        assert_eq!(answer.status, status, "{target}");
        answer.problem();
    }
    // Neither without a token nor with a wrong one, and the answer arrives although the upload was not read.
    let body = vec![0; 1 << 20];
    for authorization in
        ["", "Authorization: Bearer 00000000000000000000\r\n", "Authorization: Basic QTpC\r\n"]
    {
        for (method, target) in
            [("GET", "/v1/models"), ("POST", "/v1/models/tiny/labels"), ("GET", "/nowhere")]
        {
            let head = format!(
                "{method} {target} HTTP/1.1\r\nHost: x\r\n{authorization}Content-Length: {}\r\n\r\n",
                body.len()
            );
            let answer = server.send(&[head.as_bytes(), &body].concat());
            assert_eq!(answer.status, 401, "{target} {authorization}");
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
            answer.problem();
        }
    }
    server.wait_until_idle();
}

#[test]
fn bad_uploads_are_refused_with_reasons_and_the_server_stays_up() {
    let trained = Trained::new();
    let image = trained.image();
    let plain = decompressed(&image);
    let server = Server::start(
        &trained.run,
        &["--ram", "512MiB", "--upload-limit", "4MiB", "--unpacked-limit", "64MiB"],
    );
    let with = |place: usize, bytes: &[u8]| {
        let mut changed = plain.clone();
        changed[place..place + bytes.len()].copy_from_slice(bytes);
        changed
    };
    let dims = |dims: [i16; 8]| dims.iter().flat_map(|dim| dim.to_le_bytes()).collect::<Vec<u8>>();
    let zeros = |count: usize| vec![0u8; count];
    // Each: what it is, the upload, the status, a part of the error.
    let huge = with(40, &dims([3, 2000, 2000, 2000, 1, 1, 1, 1]));
    let bytes = i16::from_le_bytes([plain[72], plain[73]]) / 8;
    let bomb_head = with(40, &dims([3, 100, 100, 7200 / bytes, 1, 1, 1, 1]))[..352].to_vec();
    let slices: Vec<(String, Vec<u8>)> = (0..3).map(|at| (format!("{at}.dcm"), zeros(40 << 20))).collect();
    let bomb = archive(slices.iter().map(|(name, content)| (name.as_str(), content.clone())));
    let mut lying = archive([("a_0000.nii", zeros(8 << 20))]);
    let directory = lying.windows(4).rposition(|window| window == b"PK\x01\x02").unwrap();
    lying[directory + 24..directory + 28].copy_from_slice(&1000u32.to_le_bytes());
    let half = |bytes: &[u8]| bytes[..bytes.len() / 2].to_vec();
    let series = series();
    let cases: Vec<(&str, Vec<u8>, u16, &str)> = vec![
        ("empty", Vec::new(), 415, "the upload is empty"),
        ("a page", b"<html></html>".to_vec(), 415, "neither NIfTI nor DICOM nor a ZIP archive"),
        ("half of a compressed image", half(&image), 422, "image"),
        ("half of an image", half(&plain), 422, "image.nii"),
        ("a header alone", plain[..200].to_vec(), 422, "image.nii"),
        ("two channels", two_channels(&plain), 422, "channel"),
        ("a channel that is missing", archive([("a_0001.nii.gz", image.clone())]), 422, "0000"),
        (
            "two images",
            archive([("a_0000.nii.gz", image.clone()), ("b_0000.nii.gz", image.clone())]),
            422,
            "several images",
        ),
        ("a header that claims 16 GB", huge.clone(), 422, "image.nii"),
        ("the same, compressed", compressed(&huge), 422, "its header says"),
        (
            "a bomb of an image",
            compressed(&[&bomb_head[..], &zeros(72_000_000)].concat()),
            413,
            "the limit is 64.0 MiB",
        ),
        ("a bomb of slices", bomb, 413, "the limit is 64.0 MiB"),
        ("a bomb of a channel", archive([("a_0000.nii", zeros(80 << 20))]), 413, "the limit is 64.0 MiB"),
        ("a file that is longer than stated", lying, 422, "longer than its directory states"),
        ("half of an archive", half(&series), 422, "damaged or incomplete"),
        ("an archive without slices", archive([("notes.txt", b"none".to_vec())]), 422, "no DICOM slices"),
        ("more than the limit", zeros(5 << 20), 413, "the upload has more than 4.0 MiB"),
    ];
    for (what, upload, status, part) in cases {
        let answer = server.post("labels", &upload);
        assert_eq!(answer.status, status, "{what}: {}", String::from_utf8_lossy(&answer.body));
        let error = answer.problem();
        assert!(error.contains(part), "{what}: {error}");
        assert!(!error.contains(server.scratch.path().to_str().unwrap()), "{what}: {error}");
        assert!(!answer.json()["hint"].as_str().unwrap().contains('‹'), "{what}: {answer:?}");
    }
    let wrong = server.post("labels?shape=round", &image);
    assert_eq!((wrong.status, wrong.problem().as_str()), (400, "the query has an unknown field or value"));
    server.wait_until_idle();
    assert_eq!(server.post("labels", &image).status, 200);
}

/// The image with a second channel.
fn two_channels(plain: &[u8]) -> Vec<u8> {
    let mut both = [plain, &plain[352..]].concat();
    both[40..42].copy_from_slice(&5i16.to_le_bytes());
    both[48..50].copy_from_slice(&1i16.to_le_bytes());
    both[50..52].copy_from_slice(&2i16.to_le_bytes());
    both
}

#[test]
fn clients_that_lie_or_dawdle_or_vanish_hold_nothing() {
    let trained = Trained::new();
    let image = trained.image();
    let mut server = Server::start(
        &trained.run,
        &["--ram", "512MiB", "--upload-limit", "4MiB", "--idle", "1", "--queue", "3"],
    );
    let head =
        |length: &str| server.head("POST", "/v1/models/tiny/labels", 0).replace("Content-Length: 0", length);
    // A huge length is refused before a byte of it arrives.
    for length in ["Content-Length: 10000000000000", "Content-Length: 18446744073709551615"] {
        let answer = server.send(head(length).as_bytes());
        assert!([400, 413, 431].contains(&answer.status), "{length}: {answer:?}");
    }
    assert_eq!(server.send(head("Content-Length: 99999999999999999999999").as_bytes()).status, 400);
    // Without a length, bytes are counted as they arrive.
    let chunk = [format!("{:x}\r\n", 1 << 20).as_bytes(), &vec![0; 1 << 20], b"\r\n"].concat();
    let mut chunked = head("Transfer-Encoding: chunked").into_bytes();
    (0..6).for_each(|_| chunked.extend(&chunk));
    let answer = server.send(&chunked);
    assert_eq!(answer.status, 413, "{answer:?}");
    // A client that stops sending.
    let mut slow = server.connect();
    let request = [server.head("POST", "/v1/models/tiny/labels", image.len()).as_bytes(), &image].concat();
    slow.write_all(&request[..request.len() - 10]).unwrap();
    let late = self::answer(&mut slow);
    assert_eq!(late.status, 408, "{late:?}");
    assert!(late.problem().contains("too slow"), "{late:?}");
    // Clients that vanish while they send.
    for _ in 0..8 {
        let mut gone = server.connect();
        gone.write_all(&request[..request.len() / 2]).unwrap();
        drop(gone);
        thread::sleep(Duration::from_millis(20));
    }
    // Bytes that are no HTTP.
    for garbage in [&b"\x16\x03\x01\x02\x00"[..], b"\0\0\0\0\r\n\r\n", b"GET\r\n\r\n"] {
        let mut stream = server.connect();
        stream.write_all(garbage).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut end = Vec::new();
        let _ = stream.read_to_end(&mut end);
    }
    server.wait_until_idle();
    assert!(server.is_running());
    assert_eq!(server.post("labels", &image).status, 200);
}

#[cfg(unix)]
#[test]
fn a_signal_ends_the_server_in_order_and_its_log_has_no_text_of_a_client() {
    let trained = Trained::new();
    let server = Server::start(&trained.run, &["--ram", "512MiB"]);
    assert_eq!(server.post("labels", &trained.image()).status, 200);
    assert_eq!(server.get("/v1/models/Ann-Smith").status, 404);
    assert_eq!(server.get("/Ann-Smith").status, 404);
    let broken = archive([("Ann-Smith_0000.nii.gz", b"broken".to_vec())]);
    assert_eq!(server.post("labels", &broken).status, 422);
    let folder = server.scratch.path().to_path_buf();
    let (status, log) = server.end();
    assert_eq!(status, Some(0), "{log}");
    assert!(log.contains("127.0.0.1 /v1/models/{model}/labels 200"), "{log}");
    assert!(log.contains("127.0.0.1 unknown 404"), "{log}");
    assert!(!log.contains("Ann") && !log.contains("case"), "{log}");
    assert!(!folder.exists() || fs::read_dir(&folder).unwrap().next().is_none(), "{folder:?}");
}

#[test]
fn what_would_expose_images_or_cannot_run_is_refused_at_the_start() {
    let trained = Trained::new();
    let model = format!("tiny={}", trained.run.display());
    let refused = |more: &[&str]| {
        let limit = if more.contains(&"--ram") { &[][..] } else { &["--ram", "512MiB"] };
        run_error(&[&["serve", "--model", &model], limit, more].concat())
    };
    let exposed = refused(&["--listen", "0.0.0.0:0"]);
    assert!(exposed.contains("can be reached from other machines, and TLS is missing"), "{exposed}");
    let open = refused(&["--listen", "0.0.0.0:0", "--no-token"]);
    assert!(open.contains("TLS and a token are missing"), "{open}");
    let low = refused(&["--ram", "100MiB", "--queue", "4000"]);
    assert!(low.contains("4016 connections need"), "{low}");
    assert!(refused(&["--model", &model]).contains("two models have the name tiny"));
    let nothing = run_error(&["serve", "--model", "no=/nonexistent/model", "--ram", "512MiB"]);
    assert!(nothing.contains("/nonexistent/model"), "{nothing}");
}
