//! The page, served to browsers of this machine.
//!
//! One request at a time: only `GET /` has an answer, and nothing that a request says reaches the disk. A request must name this machine as its
//! host, so that no page from elsewhere can read this one through a name that it lets point here.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::page::{failed, page};
use super::watched::Watched;
use crate::failure::{Failure, Outcome};

/// The most bytes of a request.
const MOST: usize = 8 << 10;
/// How long a request may take to come, and each part of its answer to go.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is answered.
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
    println!("http://{}/", listener.local_addr()?);
    loop {
        match listener.accept() {
            // A browser that goes away is no reason to end.
            Ok((stream, _)) => drop(answer(stream, watched)),
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn answer(mut stream: TcpStream, watched: &mut Watched) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let request = read(&mut stream)?;
    let Answer { status, html } = match request.as_deref().map(asked) {
        Some(Ok(())) => match watched.refresh() {
            Ok(()) => Answer { status: "200 OK", html: page(watched) },
            Err(failure) => Answer { status: "500 Internal Server Error", html: failed(&failure.line()) },
        },
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

/// Reads a request up to the end of its head; none if that is too long.
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

/// Whether the page is asked for; else with what the request is refused.
fn asked(request: &[u8]) -> Result<(), &'static str> {
    let text = std::str::from_utf8(request).map_err(|_| "400 Bad Request")?;
    let mut lines = text.split("\r\n");
    let mut words = lines.next().unwrap_or("").split(' ');
    let (Some(method), Some(path), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err("400 Bad Request");
    };
    if !version.starts_with("HTTP/1.") {
        return Err("400 Bad Request");
    }
    if method != "GET" {
        return Err("405 Method Not Allowed");
    }
    let mut fields = lines.filter_map(|line| line.split_once(':'));
    let host = fields.find(|(name, _)| name.eq_ignore_ascii_case("host")).map(|(_, host)| host.trim());
    let name = host.map(|host| host.rsplit_once(':').map_or(host, |(name, _)| name));
    if !name.is_some_and(|name| name == "127.0.0.1" || name.eq_ignore_ascii_case("localhost")) {
        return Err("403 Forbidden");
    }
    if path == "/" { Ok(()) } else { Err("404 Not Found") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_page_is_given_and_only_to_this_machine() {
        for (request, expected) in [
            ("GET / HTTP/1.1\r\nHost: 127.0.0.1:6007\r\n\r\n", Ok(())),
            ("GET / HTTP/1.0\r\nhost: localhost\r\n\r\n", Ok(())),
            ("GET /../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", Err("404 Not Found")),
            ("GET / HTTP/1.1\r\nHost: evil.example:6007\r\n\r\n", Err("403 Forbidden")),
            ("GET / HTTP/1.1\r\n\r\n", Err("403 Forbidden")),
            ("POST / HTTP/1.1\r\nHost: localhost\r\n\r\n", Err("405 Method Not Allowed")),
            ("GET /\r\n\r\n", Err("400 Bad Request")),
            ("GET / a HTTP/1.1\r\n\r\n", Err("400 Bad Request")),
            ("\r\n\r\n", Err("400 Bad Request")),
        ] {
            assert_eq!(asked(request.as_bytes()), expected, "{request:?}");
        }
        assert_eq!(asked(b"GET /\xff HTTP/1.1\r\n\r\n"), Err("400 Bad Request"));
    }
}
