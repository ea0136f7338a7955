//! A server under test, and a client of plain sockets, which can do what proper clients do not.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Tiny, plimsoll};

/// A server that ends with the test.
pub struct Server {
    child: Child,
    pub address: String,
    pub token: String,
    /// Its folder of requests.
    pub scratch: tempfile::TempDir,
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The error of a problem, which always has a hint.
    pub fn problem(&self) -> String {
        let problem = self.json();
        assert!(problem["hint"].as_str().is_some_and(|hint| !hint.is_empty()), "{problem}");
        problem["error"].as_str().unwrap().to_string()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (own, value) = line.split_once(": ")?;
            own.eq_ignore_ascii_case(name).then_some(value)
        })
    }
}

impl Server {
    /// Starts a server of one model.
    pub fn start(model: &Path, more: &[&str]) -> Server {
        Server::start_with(&["--model", &format!("tiny={}", model.display())], more)
    }

    /// Starts a server of models or tasks.
    pub fn start_with(models: &[&str], more: &[&str]) -> Server {
        let scratch = tempfile::tempdir().unwrap();
        let mut command = plimsoll();
        command.args(["serve", "--json", "--listen", "127.0.0.1:0", "--scratch"]).arg(scratch.path());
        command.args(models).args(more);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut text = String::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        while !text.ends_with("}\n") {
            if lines.read_line(&mut text).unwrap() == 0 {
                let mut errors = String::new();
                child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
                panic!("{text}{errors}");
            }
        }
        let shown: Value = serde_json::from_str(&text).unwrap();
        let (_, address) = shown["url"].as_str().unwrap().split_once("//").unwrap();
        let token = shown["token"].as_str().unwrap_or("").to_string();
        Server { child, address: address.into(), token, scratch }
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(300))).unwrap();
        stream
    }

    /// The head of a request with the right token.
    pub fn head(&self, method: &str, target: &str, length: usize) -> String {
        format!(
            "{method} {target} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Length: {length}\r\n\r\n",
            self.address, self.token
        )
    }

    pub fn get(&self, target: &str) -> Answer {
        self.send(self.head("GET", target, 0).as_bytes())
    }

    /// Sends an image to the model.
    pub fn post(&self, target: &str, body: &[u8]) -> Answer {
        self.send(
            &[self.head("POST", &format!("/v1/models/tiny/{target}"), body.len()).as_bytes(), body].concat(),
        )
    }

    /// Sends bytes, and reads the answer to its end.
    pub fn send(&self, request: &[u8]) -> Answer {
        let mut stream = self.connect();
        // A server that refuses early may not read all.
        let _ = stream.write_all(request);
        answer(&mut stream)
    }

    /// Waits until no request has a place or a folder.
    pub fn wait_until_idle(&self) {
        let start = Instant::now();
        loop {
            let status = self.get("/v1/status").json();
            if status["taken_places"] == 0 && self.folders().is_empty() {
                return;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "{status} {:?}", self.folders());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The folders of requests.
    pub fn folders(&self) -> Vec<PathBuf> {
        let entries = |folder: &Path| -> Vec<PathBuf> {
            std::fs::read_dir(folder)
                .map(|all| all.map(|entry| entry.unwrap().path()).collect())
                .unwrap_or_default()
        };
        let own = entries(self.scratch.path());
        own.iter().flat_map(|own| entries(own)).filter(|path| path.is_dir()).collect()
    }

    /// The most resident memory so far in bytes.
    pub fn peak(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        1024 * line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Asks it to end. Returns its exit status and what it wrote to its standard error stream.
    #[cfg(unix)]
    pub fn end(mut self) -> (Option<i32>, String) {
        let killed = std::process::Command::new("kill").arg(self.child.id().to_string()).status().unwrap();
        assert!(killed.success());
        let mut errors = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        (self.child.wait().unwrap().code(), errors)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads an answer to its end.
pub fn answer(stream: &mut impl Read) -> Answer {
    let mut all = Vec::new();
    // TLS without a farewell, or a reset behind the answer, ends it as well.
    let _ = stream.read_to_end(&mut all);
    let end = all.windows(4).position(|end| end == b"\r\n\r\n");
    let end = end.unwrap_or_else(|| panic!("no answer: {:?}", String::from_utf8_lossy(&all)));
    let head = String::from_utf8(all[..end].to_vec()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let answer = Answer { status, head, body: all[end + 4..].to_vec() };
    if let Some(length) = answer.header("content-length") {
        assert_eq!(length.parse::<usize>().unwrap(), answer.body.len(), "{}", answer.head);
    }
    answer
}

/// A small trained model and its images.
pub struct Trained {
    pub tiny: Tiny,
    pub run: PathBuf,
}

impl Trained {
    pub fn new() -> Trained {
        Trained::new_with(&[])
    }

    /// A model that is trained with other settings.
    pub fn new_with(settings: &[&str]) -> Trained {
        let tiny = Tiny::new();
        let run = tiny.path("run");
        tiny.trained(&run, &[&["--fold", "all", "--skip-validation"], settings].concat());
        Trained { tiny, run }
    }

    /// An image of the data set, as it is stored.
    pub fn image(&self) -> Vec<u8> {
        std::fs::read(self.image_path()).unwrap()
    }

    pub fn image_path(&self) -> PathBuf {
        let mut images: Vec<PathBuf> = std::fs::read_dir(self.tiny.data.join("imagesTs"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        images.sort();
        images.remove(0)
    }
}

/// A file or folder of the oracles.
pub fn oracle(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracles").join(name)
}
