//! Connections to an archive, one for each request.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response, StatusCode, Uri, header};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::access::expect_private;
use crate::error::ServeError;
use crate::http::expect_processor;
use crate::problem::Problem;
use crate::shares::CHUNK;

/// The most bytes of a file with certificates or a header.
const MOST: u64 = 1 << 20;

/// The address of an archive, and the right to use it.
#[derive(Clone)]
pub(crate) struct Endpoint {
    host: String,
    port: u16,
    /// The path of its DICOMweb services, without a slash at the end.
    path: String,
    tls: Option<TlsConnector>,
    authorization: Option<String>,
    idle: Duration,
}

/// A stream to an archive.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Endpoint {
    /// Reads the address, the file of the `Authorization` header, and for TLS the file of the authorities that are trusted.
    pub(crate) fn new(
        url: &str,
        authorization: Option<&Path>,
        authority: Option<&Path>,
        idle: Duration,
    ) -> Result<Endpoint, ServeError> {
        let fault = |why| ServeError::Archive { url: url.into(), why };
        let uri: Uri = url.parse().map_err(|_| fault("it is no address"))?;
        let host = uri.host().ok_or(fault("it has no host"))?.to_string();
        let tls = match (uri.scheme_str(), authority) {
            (Some("http"), None) => None,
            (Some("http"), Some(_)) => return Err(fault("it has no TLS, for which an authority is named")),
            (Some("https"), Some(authority)) => Some(connector(authority)?),
            (Some("https"), None) => return Err(fault("TLS needs the file of an authority")),
            _ => return Err(fault("it is neither http nor https")),
        };
        let port = uri.port_u16().unwrap_or(if tls.is_some() { 443 } else { 80 });
        let read = |path: &Path| {
            let text = plimsoll_disk::read_to_string(path, MOST);
            text.map_err(|source| ServeError::File { path: path.into(), source })
        };
        authorization.map(expect_private).transpose()?;
        let authorization = authorization.map(read).transpose()?.map(|text| text.trim().to_string());
        let path = uri.path().trim_end_matches('/').to_string();
        Ok(Endpoint { host, port, path, tls, authorization, idle })
    }

    /// The path of a service.
    pub(super) fn path(&self, service: &str) -> String {
        format!("{}{service}", self.path)
    }

    /// Sends a request, and waits for the head of the answer.
    pub(super) async fn send(&self, mut request: Request<Body>) -> Result<Response<Incoming>, Problem> {
        let headers = request.headers_mut();
        let mut set = |name, value: &str| -> Result<(), Problem> {
            headers.insert(name, value.parse().map_err(|_| unavailable("its header cannot be sent"))?);
            Ok(())
        };
        set(header::HOST, &format!("{}:{}", self.host, self.port))?;
        set(header::CONNECTION, "close")?;
        if let Some(authorization) = &self.authorization {
            set(header::AUTHORIZATION, authorization)?;
        }
        let exchange = async {
            let io = TokioIo::new(self.connect().await?);
            let mut builder = http1::Builder::new();
            let handshake = builder.max_buf_size(CHUNK).handshake(io).await;
            let (mut sender, connection) = handshake.map_err(|_| unavailable("it speaks no HTTP"))?;
            // Ends with the answer, or when its receiver is dropped.
            tokio::spawn(connection);
            sender.send_request(request).await.map_err(|_| unavailable("it closed the connection"))
        };
        exchange.await
    }

    async fn connect(&self) -> Result<Pin<Box<dyn Stream>>, Problem> {
        let open = TcpStream::connect((self.host.as_str(), self.port));
        let stream = match timeout(self.idle, open).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(_)) => return Err(unavailable("it cannot be reached")),
            Err(_) => return Err(unavailable("it does not answer")),
        };
        let Some(tls) = &self.tls else { return Ok(Box::pin(stream)) };
        let name = ServerName::try_from(self.host.clone()).map_err(|_| unavailable("its name is no host"))?;
        match timeout(self.idle, tls.connect(name, stream)).await {
            Ok(Ok(stream)) => Ok(Box::pin(stream)),
            _ => Err(unavailable("its certificate is not trusted, or it speaks no TLS")),
        }
    }

    /// The longest time without a byte.
    pub(super) fn idle(&self) -> Duration {
        self.idle
    }
}

fn connector(authority: &Path) -> Result<TlsConnector, ServeError> {
    expect_processor()?;
    let fault = |why: String| ServeError::Tls { path: authority.into(), why };
    let text = plimsoll_disk::read(authority, MOST)
        .map_err(|source| ServeError::File { path: authority.into(), source })?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let added = certificate
            .map_err(|error| error.to_string())
            .and_then(|certificate| roots.add(certificate).map_err(|error| error.to_string()));
        added.map_err(|error| fault(format!("it is no certificate in PEM: {error}")))?;
    }
    if roots.is_empty() {
        return Err(fault("it has no certificate in PEM".into()));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(rustls_graviola::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| fault(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// The archive fails.
pub(super) fn unavailable(why: &str) -> Problem {
    Problem::new(
        StatusCode::BAD_GATEWAY,
        format!("the archive of images failed: {why}"),
        "check the archive, and the address of `--dicomweb` of the server",
    )
}
