//! The page, served to browsers of this machine.
//!
//! The address has a random part, without which the page is not found: other users of the machine can connect, and do not know it. Only `GET` of
//! that address has an answer, and nothing that a request says reaches the disk. A request must name this machine as its host, so that no page from
//! elsewhere can read this one through a name that it lets point here.

use std::fmt::Write as _;
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_report::live::{Watched, failed, page};

use crate::failure::{Failure, Outcome};

/// The most bytes of a request.
const MOST: usize = 8 << 10;
/// The time in which a request must arrive, and each part of its answer be taken.
const PATIENCE: Duration = Duration::from_secs(2);
/// The most connections at a time; more are closed at once.
const CONNECTIONS: usize = 64;
/// The stack of a thread that answers.
const STACK: usize = 512 << 10;
/// Random bytes of the address.
const TOKEN: usize = 16;

/// An answer to a request.
struct Answer {
    status: &'static str,
    html: String,
}

/// Serves the page on a port of this machine alone, 0 for any that is free, until the process is ended.
pub fn serve(watched: &mut Watched, port: u16) -> Outcome {
    let taken = |error: io::Error| {
        let message = format!("port {port} of 127.0.0.1: {error}");
        Failure::new(message, "--serve=PORT names another one, and --serve=0 takes any that is free")
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(taken)?;
    let path = format!("/{}/", token()?);
    println!("http://{}{path}", listener.local_addr()?);
    let (watched, open) = (Mutex::new(watched), AtomicUsize::new(0));
    thread::scope(|scope| {
        loop {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error.into()),
            };
            if open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS {
                open.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let (watched, open, path) = (&watched, &open, &path);
            let answering = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, move || {
                // A browser that goes away is no reason to end.
                let _ = answer(stream, path, watched);
                open.fetch_sub(1, Ordering::Relaxed);
            });
            if answering.is_err() {
                // The system has no thread for it now, and the connection is closed.
                open.fetch_sub(1, Ordering::Relaxed);
            }
        }
    })
}

/// Random hexadecimal digits from the system.
fn token() -> Outcome<String> {
    let mut bytes = [0; TOKEN];
    getrandom::fill(&mut bytes).map_err(io::Error::from)?;
    let mut text = String::with_capacity(2 * TOKEN);
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}

fn answer(mut stream: TcpStream, path: &str, watched: &Mutex<&mut Watched>) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let request = read(&mut stream)?;
    let Answer { status, html } = match request.as_deref().map(|request| asked(request, path)) {
        Some(Ok(())) => {
            let mut watched = watched.lock().unwrap_or_else(PoisonError::into_inner);
            match watched.refresh() {
                Ok(()) => Answer { status: "200 OK", html: page(&watched) },
                Err(failure) => Answer { status: "500 Internal Server Error", html: failed(&failure.line()) },
            }
        }
        Some(Err(status)) => Answer { status, html: failed(status) },
        None => {
            Answer { status: "431 Request Header Fields Too Large", html: failed("the request is too long") }
        }
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
         Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\nX-Content-Type-Options: nosniff\r\n\
         Referrer-Policy: no-referrer\r\nConnection: close\r\n\r\n",
        html.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(html.as_bytes())
}

/// Reads a request up to the end of its head; `None` if the head is too long.
fn read(stream: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let until = Instant::now() + PATIENCE;
    let mut request = Vec::new();
    let mut part = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        if request.len() > MOST {
            return Ok(None);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => request.extend(part.iter().take(count)),
        }
    }
    Ok(Some(request))
}

/// Checks that a request asks for the page at `path`.
///
/// # Errors
/// The status with which it is refused.
fn asked(request: &[u8], path: &str) -> Result<(), &'static str> {
    const BAD: &str = "400 Bad Request";
    let text = std::str::from_utf8(request).map_err(|_| BAD)?;
    let (head, _) = text.split_once("\r\n\r\n").ok_or(BAD)?;
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap_or("").split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(BAD);
    };
    if !version.starts_with("HTTP/1.") {
        return Err(BAD);
    }
    if method != "GET" {
        return Err("405 Method Not Allowed");
    }
    let mut hosts = Vec::new();
    for line in lines {
        let (name, value) = line.split_once(':').ok_or(BAD)?;
        // A name has no spaces: a line that begins with one would continue the line before it.
        if name.is_empty() || name.contains(char::is_whitespace) || value.contains(['\r', '\n']) {
            return Err(BAD);
        }
        if name.eq_ignore_ascii_case("host") {
            hosts.push(value.trim());
        }
    }
    match hosts[..] {
        [host] if is_this_machine(host) => {}
        [] | [_] => return Err("403 Forbidden"),
        _ => return Err(BAD),
    }
    if is_same(target.as_bytes(), path.as_bytes()) { Ok(()) } else { Err("404 Not Found") }
}

/// Returns `true` if a host is this machine's name, alone or with any port: the port of a tunnel may be another one.
fn is_this_machine(host: &str) -> bool {
    let (name, port) = match host.split_once(':') {
        Some((name, port)) => (name, Some(port)),
        None => (host, None),
    };
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
    (name == "127.0.0.1" || name.eq_ignore_ascii_case("localhost")) && port.is_none_or(is_port)
}

/// Compares two texts in a time that depends on their lengths alone, so that the time does not tell how much of a guess is right.
fn is_same(guess: &[u8], right: &[u8]) -> bool {
    let differs = guess.iter().zip(right).fold(0, |differs, (a, b)| black_box(differs | (a ^ b)));
    guess.len() == right.len() && differs == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_page_is_given_and_only_to_this_machine() {
        for (request, expected) in [
            ("GET /5ecret/ HTTP/1.1\r\nHost: 127.0.0.1:6007\r\n\r\n", Ok(())),
            ("GET /5ecret/ HTTP/1.0\r\nhost: localhost\r\n\r\n", Ok(())),
            ("GET / HTTP/1.1\r\nHost: 127.0.0.1:6007\r\n\r\n", Err("404 Not Found")),
            ("GET /5ecreT/ HTTP/1.1\r\nHost: localhost\r\n\r\n", Err("404 Not Found")),
            ("GET /5ecret HTTP/1.1\r\nHost: localhost\r\n\r\n", Err("404 Not Found")),
            ("GET /../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", Err("404 Not Found")),
            ("GET /5ecret/ HTTP/1.1\r\nHost: evil.example:6007\r\n\r\n", Err("403 Forbidden")),
            ("GET /5ecret/ HTTP/1.1\r\nHost: localhost:6007.evil\r\n\r\n", Err("403 Forbidden")),
            ("GET /5ecret/ HTTP/1.1\r\nHost: localhost:\u{661}\r\n\r\n", Err("403 Forbidden")),
            ("GET /5ecret/ HTTP/1.1\r\nHost: localhost:+1\r\n\r\n", Err("403 Forbidden")),
            ("GET /5ecret/ HTTP/1.1\r\nHost: localhost:70000\r\n\r\n", Err("403 Forbidden")),
            ("GET /5ecret/ HTTP/1.1\r\nHost: a:localhost:1\r\n\r\n", Err("403 Forbidden")),
            ("GET /5ecret/ HTTP/1.1\r\n\r\n", Err("403 Forbidden")),
            ("GET /5ecret/ HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n", Err("400 Bad Request")),
            ("GET /5ecret/ HTTP/1.1\r\nHost: localhost\r\nhost: localhost\r\n\r\n", Err("400 Bad Request")),
            ("GET /5ecret/ HTTP/1.1\r\nHost : localhost\r\n\r\n", Err("400 Bad Request")),
            ("GET /5ecret/ HTTP/1.1\r\nHost: localhost\r\n .evil\r\n\r\n", Err("400 Bad Request")),
            ("POST /5ecret/ HTTP/1.1\r\nHost: localhost\r\n\r\n", Err("405 Method Not Allowed")),
            ("GET /\r\n\r\n", Err("400 Bad Request")),
            ("GET / a HTTP/1.1\r\n\r\n", Err("400 Bad Request")),
            ("\r\n\r\n", Err("400 Bad Request")),
        ] {
            assert_eq!(asked(request.as_bytes(), "/5ecret/"), expected, "{request:?}");
        }
        assert_eq!(asked(b"GET /\xff HTTP/1.1\r\n\r\n", "/5ecret/"), Err("400 Bad Request"));
    }

    #[test]
    fn a_token_is_new_each_time() {
        let [one, other] = [token().unwrap(), token().unwrap()];
        assert!(one.len() == 32 && one != other, "{one} {other}");
    }
}
