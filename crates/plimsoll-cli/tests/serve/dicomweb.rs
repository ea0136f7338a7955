//! Series of an archive that speaks DICOMweb: a stand-in that misbehaves on demand, and Orthanc.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use dicom_object::{OpenFileOptions, Tag};

use crate::client::{Answer, Server, answer, oracle};

/// The slices of a small series.
fn slices() -> Vec<Vec<u8>> {
    let files = fs::read_dir(oracle("dicom/short")).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = files.collect();
    files.sort();
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

/// Study and series.
fn uids() -> [String; 2] {
    let file = fs::read_dir(oracle("dicom/short")).unwrap().next().unwrap().unwrap().path();
    let object = OpenFileOptions::new().open_file(file).unwrap();
    [Tag(0x0020, 0x000D), Tag(0x0020, 0x000E)]
        .map(|tag| object.get(tag).unwrap().to_str().unwrap().trim_end_matches('\0').to_string())
}

fn model() -> PathBuf {
    oracle("total_segmentator/weights/Dataset297_TotalSegmentator_total_3mm_1559subj")
}

fn target([study, series]: &[String; 2]) -> String {
    format!("/v1/models/tiny/studies/{study}/series/{series}")
}

fn label(server: &Server, target: &str) -> Answer {
    server.send(server.head("POST", target, 0).as_bytes())
}

/// The misbehaviour of a stand-in.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// It has no such series.
    Unknown,
    /// It sends a slice less than it counts.
    Missing,
    /// It closes the connection within the last slice.
    Cut,
    /// It answers with a page.
    Page,
    /// It refuses to store.
    Full,
}

/// An archive with one series. Returns its address, and what is stored there.
fn stand_in(fault: Fault) -> (String, Arc<Mutex<Vec<Vec<u8>>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/dicom-web/", listener.local_addr().unwrap());
    let stored = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&stored);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, into) = (stream.unwrap(), Arc::clone(&into));
            thread::spawn(move || serve_one(stream, fault, &into));
        }
    });
    (url, stored)
}

fn serve_one(stream: TcpStream, fault: Fault, stored: &Mutex<Vec<Vec<u8>>>) {
    let mut input = BufReader::new(stream.try_clone().unwrap());
    let (mut head, mut length) = (String::new(), 0);
    while !head.ends_with("\r\n\r\n") {
        let mut line = String::new();
        if input.read_line(&mut line).unwrap() == 0 {
            return;
        }
        if let Some(text) = line.to_lowercase().strip_prefix("content-length: ") {
            length = text.trim().parse().unwrap();
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    input.read_exact(&mut body).unwrap();
    assert!(head.contains("authorization: Basic dTpw\r\n"), "{head}");
    let slices = slices();
    let mut output = stream;
    let mut send = |status: &str, kind: &str, body: &[u8], missing: usize| {
        let length = body.len() + missing;
        let head = format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n");
        let _ = output.write_all(&[head.as_bytes(), body].concat());
    };
    let [study, series] = uids();
    if head.starts_with(&format!("GET /dicom-web/studies/{study}/series?SeriesInstanceUID={series}&")) {
        let count = slices.len();
        let found = format!(r#"[{{"00201209": {{"vr": "IS", "Value": [{count}]}}}}]"#);
        let found = if fault == Fault::Unknown { "[]" } else { found.as_str() };
        send("200 OK", "application/dicom+json", found.as_bytes(), 0);
    } else if head.starts_with(&format!("GET /dicom-web/studies/{study}/series/{series} ")) {
        let kept = slices.len() - usize::from(fault == Fault::Missing);
        let mut parts = Vec::new();
        for slice in &slices[..kept] {
            parts.extend(b"\r\n--abc\r\nContent-Type: application/dicom\r\n\r\n");
            parts.extend(slice);
        }
        match fault {
            Fault::Page => send("200 OK", "text/html", b"<html></html>", 0),
            Fault::Cut => send("200 OK", "multipart/related; boundary=abc", &parts[..parts.len() - 100], 110),
            _ => {
                parts.extend(b"\r\n--abc--");
                send("200 OK", "multipart/related; type=\"application/dicom\"; boundary=\"abc\"", &parts, 0);
            }
        }
    } else if head.starts_with(&format!("POST /dicom-web/studies/{study} ")) {
        if fault == Fault::Full {
            return send("507 Insufficient Storage", "text/plain", b"", 0);
        }
        stored.lock().unwrap().push(body);
        send("200 OK", "application/dicom+json", b"{}", 0);
    } else {
        panic!("{head}");
    }
}

fn start(url: &str, folder: &Path) -> Server {
    let authorization = folder.join("authorization");
    fs::write(&authorization, "Basic dTpw\n").unwrap();
    fs::set_permissions(&authorization, fs::Permissions::from_mode(0o600)).unwrap();
    Server::start(
        &model(),
        &["--ram", "512MiB", "--dicomweb", url, "--dicomweb-authorization", authorization.to_str().unwrap()],
    )
}

#[test]
fn the_labels_of_a_series_are_stored_in_its_study_or_the_archive_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (url, stored) = stand_in(Fault::None);
    let server = start(&url, folder.path());
    let done = label(&server, &target(&uids()));
    assert_eq!(done.status, 200, "{}", String::from_utf8_lossy(&done.body));
    assert_eq!(done.json()["stored"], true);
    let stored = stored.lock().unwrap();
    let [segmentation] = &stored[..] else { panic!("{}", stored.len()) };
    let start_of = segmentation.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
    assert_eq!(&segmentation[start_of + 128..start_of + 132], b"DICM");
    for wrong in ["/v1/models/tiny/studies/1.2/series/a", "/v1/models/tiny/studies/1%2F2/series/3"] {
        assert_eq!(label(&server, wrong).status, 400, "{wrong}");
    }
    server.wait_until_idle();
}

#[test]
fn an_archive_that_fails_is_named_and_nothing_is_stored() {
    let folder = tempfile::tempdir().unwrap();
    for (fault, status, part) in [
        (Fault::Unknown, 404, "no such series"),
        (Fault::Missing, 502, "it sent 5 of 6 instances"),
        (Fault::Cut, 502, "closed the connection before the end"),
        (Fault::Page, 502, "it sends no parts"),
        (Fault::Full, 502, "nothing was stored, with status 507"),
    ] {
        let (url, stored) = stand_in(fault);
        let server = start(&url, folder.path());
        let answer = label(&server, &target(&uids()));
        assert_eq!(answer.status, status, "{fault:?}: {}", String::from_utf8_lossy(&answer.body));
        assert!(answer.problem().contains(part), "{fault:?}: {}", answer.problem());
        assert!(stored.lock().unwrap().is_empty());
        server.wait_until_idle();
    }
    let server = start("http://127.0.0.1:9/dicom-web", folder.path());
    let answer = label(&server, &target(&uids()));
    assert_eq!((answer.status, answer.problem().contains("cannot be reached")), (502, true));
    let without = Server::start(&model(), &["--ram", "512MiB"]);
    let answer = label(&without, &target(&uids()));
    assert_eq!((answer.status, answer.problem().as_str()), (404, "the server has no archive of images"));
}

/// Orthanc with its plugin for DICOMweb, which ends with the test.
struct Orthanc {
    child: Child,
    address: String,
}

impl Drop for Orthanc {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Orthanc {
    fn start(folder: &Path) -> Orthanc {
        let named = |name: &str, usual: &str| std::env::var(name).unwrap_or_else(|_| usual.into());
        let program = named("PLIMSOLL_TEST_ORTHANC", "/usr/sbin/Orthanc");
        let plugin =
            named("PLIMSOLL_TEST_ORTHANC_PLUGIN", "/usr/share/orthanc/plugins/libOrthancDicomWeb.so");
        let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (http, dicom) = (free(), free());
        let settings = serde_json::json!({
            "HttpPort": http, "DicomPort": dicom, "StorageDirectory": folder.join("storage"), "Plugins": [plugin],
            "AuthenticationEnabled": true, "RegisteredUsers": {"u": "p"}, "DicomWeb": {"Enable": true, "Root": "/dicom-web/"},
        });
        let file = folder.join("orthanc.json");
        fs::write(&file, settings.to_string()).unwrap();
        let mut command = Command::new(program);
        let child = command.arg(&file).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let orthanc = Orthanc { child, address: format!("127.0.0.1:{http}") };
        let start = Instant::now();
        while TcpStream::connect(&orthanc.address).is_err() {
            assert!(start.elapsed() < Duration::from_secs(30), "Orthanc does not answer");
            thread::sleep(Duration::from_millis(100));
        }
        orthanc
    }

    fn send(&self, method: &str, target: &str, body: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let head = format!(
            "{method} {target} HTTP/1.1\r\nHost: {}\r\nAuthorization: Basic dTpw\r\nAccept: */*\r\nConnection: close\r\n\
             Content-Length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
        answer(&mut stream)
    }
}

#[test]
#[ignore = "needs Orthanc with its plugin for DICOMweb: Debian's packages orthanc and orthanc-dicomweb"]
fn a_series_of_orthanc_gets_a_segmentation_in_its_study() {
    let folder = tempfile::tempdir().unwrap();
    let orthanc = Orthanc::start(folder.path());
    for slice in slices() {
        assert_eq!(orthanc.send("POST", "/instances", &slice).status, 200);
    }
    let server = start(&format!("http://{}/dicom-web", orthanc.address), folder.path());
    let [study, series] = uids();
    let done = label(&server, &target(&[study.clone(), series]));
    assert_eq!(done.status, 200, "{}", String::from_utf8_lossy(&done.body));
    let found = orthanc.send("GET", &format!("/dicom-web/studies/{study}/series?Modality=SEG"), b"").json();
    assert_eq!(found.as_array().map(Vec::len), Some(1), "{found}");
    // The same bytes as those that a client receives for the same slices.
    let query = br#"{"Level": "Instance", "Query": {"Modality": "SEG"}}"#;
    let instances = orthanc.send("POST", "/tools/find", query).json();
    let id = instances[0].as_str().unwrap();
    let kept = orthanc.send("GET", &format!("/instances/{id}/file"), b"").body;
    let sent = server.post("labels?form=dicom-seg", &archive(&slices()));
    let pixels = |bytes: &[u8]| {
        let path = folder.path().join("read.dcm");
        fs::write(&path, bytes).unwrap();
        let object = OpenFileOptions::new().open_file(&path).unwrap();
        let uid = object.get(Tag(0x0008, 0x0018)).unwrap().to_str().unwrap().to_string();
        (uid, object.get(Tag(0x7FE0, 0x0010)).unwrap().to_bytes().unwrap().to_vec())
    };
    assert_eq!(pixels(&kept), pixels(&sent.body));
    let missing = label(&server, &target(&[study, "1.2.3".into()]));
    assert_eq!(missing.status, 404, "{missing:?}");
}

fn archive(slices: &[Vec<u8>]) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options =
        zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
    for (number, slice) in slices.iter().enumerate() {
        zip.start_file(format!("{number:03}"), options).unwrap();
        zip.write_all(slice).unwrap();
    }
    zip.finish().unwrap().into_inner()
}
