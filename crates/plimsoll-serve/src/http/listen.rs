//! Connections: accepted while there is room, one request each, ended by the stop token.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use plimsoll::StopToken;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::patient::PatientStream;
use super::remainder::Remainder;
use super::router::{ROUTES, router};
use super::series::Archive;
use super::tls;
use crate::access::Access;
use crate::dicomweb::Endpoint;
use crate::error::ServeError;
use crate::service::Service;
use crate::settings::{ArchiveSettings, Bounds, HttpSettings};
use crate::shares::{CHUNK, FILE_STACK, FILE_THREADS};

/// The time between two looks at the stop token.
const TICK: Duration = Duration::from_millis(100);
/// The time in which connections may end after the service was asked to stop.
const GRACE: Duration = Duration::from_secs(5);
/// The most headers of a request.
const MOST_HEADERS: usize = 64;

/// A request that was answered. It has no text that a client sent.
#[derive(Clone, Copy, Debug)]
pub struct Answered {
    /// The address of the client.
    pub peer: IpAddr,
    /// The route, such as `/v1/models/{model}/labels`; `None` if there is none at the requested address.
    pub route: Option<&'static str>,
    /// The status of HTTP.
    pub status: u16,
    /// Seconds from the head of the request to the head of the answer.
    pub seconds: f64,
}

/// An observer of answers.
type Observer = dyn Fn(&Answered) + Send + Sync;

/// Answers requests on a socket until it is asked to stop. `listening` is called once with the address, `observe` with each answer.
///
/// # Errors
/// Returns an error if the address is not of this machine alone and TLS or a token is missing, the socket cannot be opened, or the
/// certificate cannot be used.
pub fn serve_http(
    service: Service,
    settings: HttpSettings,
    stop: &StopToken,
    listening: impl FnOnce(SocketAddr),
    observe: impl Fn(&Answered) + Send + Sync + 'static,
) -> Result<(), ServeError> {
    let HttpSettings { listen, access, tls, archive, allow_insecure } = settings;
    if !allow_insecure {
        expect_protected(listen, tls.is_some(), &access)?;
    }
    let acceptor = tls.as_ref().map(tls::acceptor).transpose()?;
    let idle = service.bounds().idle;
    let archive = archive.map(|archive| {
        let ArchiveSettings { url, authorization, authority } = archive;
        Endpoint::new(&url, authorization.as_deref(), authority.as_deref(), idle).map(Archive::new)
    });
    let archive = archive.transpose()?;
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(FILE_THREADS)
        .thread_stack_size(FILE_STACK)
        .build()
        .map_err(|source| ServeError::System { what: "the timer", source })?;
    let server = Server {
        bounds: *service.bounds(),
        service: Arc::new(service),
        acceptor,
        observe: Arc::new(observe),
    };
    runtime.block_on(async {
        let fault = |source| ServeError::Listen { address: listen, source };
        let listener = TcpListener::bind(listen).await.map_err(fault)?;
        listening(listener.local_addr().map_err(fault)?);
        server.run(&listener, router(Arc::clone(&server.service), access, archive), stop).await;
        Ok::<(), ServeError>(())
    })?;
    // So that the folder of a prediction that ends late is removed as well.
    server.service.worker().wait_until_idle();
    Ok(())
}

/// Refuses to be reached from other machines without encryption and a token.
fn expect_protected(address: SocketAddr, has_tls: bool, access: &Access) -> Result<(), ServeError> {
    let missing = match (has_tls, access) {
        _ if address.ip().is_loopback() => return Ok(()),
        (true, Access::Tokens(_)) => return Ok(()),
        (false, Access::Tokens(_)) => "TLS is missing",
        (true, Access::Open) => "a token is missing",
        (false, Access::Open) => "TLS and a token are missing",
    };
    Err(ServeError::Exposed { address, missing })
}

struct Server {
    service: Arc<Service>,
    bounds: Bounds,
    acceptor: Option<TlsAcceptor>,
    observe: Arc<Observer>,
}

impl Server {
    async fn run(&self, listener: &TcpListener, router: Router, stop: &StopToken) {
        let slots = Arc::new(Semaphore::new(self.bounds.connections));
        while !stop.is_asked() {
            // Clients for which there is no room wait in the system's queue.
            let Ok(Ok(slot)) = timeout(TICK, Arc::clone(&slots).acquire_owned()).await else { continue };
            match timeout(TICK, listener.accept()).await {
                Err(_) => {}
                // The client is gone already, or there are too many open files.
                Ok(Err(_)) => sleep(TICK).await,
                Ok(Ok((stream, peer))) => self.answer(stream, peer.ip(), router.clone(), slot),
            }
        }
        self.service.worker().close();
        let all = u32::try_from(self.bounds.connections).unwrap_or(u32::MAX);
        // Those that are still sending are cut off.
        let _ = timeout(GRACE, slots.acquire_many(all)).await;
    }

    /// Answers the request of a connection in a task of its own.
    fn answer(&self, stream: TcpStream, peer: IpAddr, router: Router, slot: OwnedSemaphorePermit) {
        let (bounds, observe) = (self.bounds, Arc::clone(&self.observe));
        let acceptor = self.acceptor.clone();
        let exchange = Exchange { peer, router, bounds, observe };
        tokio::spawn(async move {
            let _slot = slot;
            let stream = PatientStream::new(stream, bounds.idle);
            match acceptor {
                None => exchange.run(stream).await,
                Some(acceptor) => {
                    let handshake = acceptor.accept_with(stream, tls::limit_buffers);
                    // A client that speaks no TLS, or trusts no certificate, gets no answer.
                    if let Ok(Ok(stream)) = timeout(bounds.head, handshake).await {
                        exchange.run(stream).await;
                    }
                }
            }
        });
    }
}

/// The request and the answer of a connection.
struct Exchange {
    peer: IpAddr,
    router: Router,
    bounds: Bounds,
    observe: Arc<Observer>,
}

impl Exchange {
    async fn run(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let Exchange { peer, router, bounds, observe } = self;
        let service = service_fn(move |request: Request<Incoming>| {
            let (router, observe) = (router.clone(), Arc::clone(&observe));
            async move {
                let (start, route) = (Instant::now(), route_of(request.uri().path()));
                let response = respond(router, request).await;
                let status = response.status().as_u16();
                observe(&Answered { peer, route, status, seconds: start.elapsed().as_secs_f64() });
                Ok::<_, Infallible>(response)
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(bounds.head)
            .keep_alive(false)
            .max_buf_size(CHUNK)
            .max_headers(MOST_HEADERS)
            .serve_connection(TokioIo::new(stream), service);
        // A client that goes away, or sends no HTTP, is no reason to end.
        let _ = pin!(connection).await;
    }
}

async fn respond(router: Router, request: Request<Incoming>) -> Response<Body> {
    let request = request.map(|body| Body::new(Remainder::new(body)));
    match TowerToHyperService::new(router).call(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// The route of a path, without what the client put in its place.
fn route_of(path: &str) -> Option<&'static str> {
    let is_of = |route: &&str| {
        let (mut own, mut given) = (route.split('/'), path.split('/'));
        loop {
            match (own.next(), given.next()) {
                (None, None) => return true,
                (Some(own), Some(given)) if own == given || own.starts_with('{') => {}
                _ => return false,
            }
        }
    };
    ROUTES.into_iter().find(|route| is_of(route))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Token;

    #[test]
    fn an_observer_gets_routes_and_no_text_of_a_client() {
        assert_eq!(route_of("/v1/models/liver/labels"), Some("/v1/models/{model}/labels"));
        assert_eq!(route_of("/v1/models"), Some("/v1/models"));
        assert_eq!(route_of("/Ann/Smith"), None);
    }

    #[test]
    fn other_machines_are_only_served_with_tls_and_a_token() {
        let tokens = Access::Tokens(vec![Token::new("0123456789abcdef").unwrap()]);
        let outside: SocketAddr = "0.0.0.0:8780".parse().unwrap();
        expect_protected(outside, true, &tokens).unwrap();
        expect_protected("[::1]:8780".parse().unwrap(), false, &Access::Open).unwrap();
        for (has_tls, access, missing) in [
            (false, &tokens, "TLS is missing"),
            (true, &Access::Open, "a token is missing"),
            (false, &Access::Open, "TLS and a token are missing"),
        ] {
            let error = expect_protected(outside, has_tls, access).unwrap_err().to_string();
            assert!(error.ends_with(missing), "{error}");
        }
    }
}
