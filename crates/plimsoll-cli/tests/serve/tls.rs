//! TLS: the certificate of the server, and clients that do without.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::client::{Server, Trained, answer};
use crate::support::run_error;

/// A certificate for localhost of 2026 to 2126, its key, and the authority that signed it; made by OpenSSL for these tests.
fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/serve/tls").join(name)
}

fn client(authorities: &[&str]) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(CertificateDer::from_pem_file(file(authority)).unwrap()).unwrap();
    }
    ClientConfig::builder_with_provider(Arc::new(rustls_graviola::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

#[test]
fn requests_are_answered_over_tls_and_a_client_without_it_or_without_trust_gets_nothing() {
    let trained = Trained::new();
    let [certificate, key] = ["certificate.pem", "key.pem"].map(|name| file(name).display().to_string());
    let tls = ["--tls-certificate", &certificate, "--tls-key", &key, "--ram", "512MiB"];
    let mut server = Server::start(&trained.run, &tls);
    let image = trained.image();
    let request = [server.head("POST", "/v1/models/tiny/labels", image.len()).as_bytes(), &image].concat();
    let name = "localhost".try_into().unwrap();
    let connection = ClientConnection::new(Arc::new(client(&["authority.pem"])), name).unwrap();
    let mut stream = StreamOwned::new(connection, server.connect());
    stream.write_all(&request).unwrap();
    let labels = answer(&mut stream);
    assert_eq!(labels.status, 200, "{labels:?}");
    assert_eq!(stream.conn.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_3));
    // A client that does not know the authority.
    let name = "localhost".try_into().unwrap();
    let connection = ClientConnection::new(Arc::new(client(&[])), name).unwrap();
    let mut stream = StreamOwned::new(connection, server.connect());
    assert!(stream.write_all(b"GET /health HTTP/1.1\r\n\r\n").is_err());
    // Plain HTTP gets an alert of TLS, and no word of HTTP.
    let mut plain = server.connect();
    plain.write_all(&request[..500]).unwrap();
    let mut bytes = Vec::new();
    let _ = plain.read_to_end(&mut bytes);
    assert!(!bytes.starts_with(b"HTTP"), "{bytes:?}");
    assert!(server.is_running());
}

#[test]
fn a_certificate_without_its_key_is_refused_at_the_start() {
    let trained = Trained::new();
    let model = format!("tiny={}", trained.run.display());
    let [certificate, key, other] =
        ["certificate.pem", "key.pem", "authority.pem"].map(|name| file(name).display().to_string());
    let missing = trained.tiny.path("missing.pem").display().to_string();
    for (certificate, key, part) in [
        (&other, &key, "authority.pem"),
        (&certificate, &other, "has no private key in PEM"),
        (&key, &key, "has no certificate in PEM"),
        (&certificate, &missing, "missing.pem"),
    ] {
        let tls = ["--tls-certificate", certificate, "--tls-key", key];
        let error = run_error(&[&["serve", "--model", &model, "--ram", "512MiB"], &tls[..]].concat());
        assert!(error.contains(part), "{error}");
    }
}
