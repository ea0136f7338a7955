//! The settings of a service.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_data::LengthUnit;
use plimsoll_infer::PredictOptions;
use plimsoll_memory::Bytes;
use plimsoll_plan::Backend;
use plimsoll_run::CacheFolder;

use crate::access::Access;
use crate::models::NamedModel;
use crate::tasks::NamedTask;

/// The settings of a service, whichever way requests come.
#[derive(Clone)]
pub struct ServiceSettings {
    /// The models, each with a name of its own.
    pub models: Vec<NamedModel>,
    /// Tasks of TotalSegmentator, likewise. The options below that set windows and units apply to models alone.
    pub tasks: Vec<NamedTask>,
    /// The memory limit of the process; `None` for what the machine leaves.
    pub ram: Option<Bytes>,
    /// The backend that runs programs.
    pub backend: Arc<dyn Backend>,
    /// The options of windows; `mirror` is replaced by `mirror` below.
    pub options: PredictOptions,
    /// Looks at mirrored windows as well; `None` for what the program that trained a model does.
    pub mirror: Option<bool>,
    /// The unit of lengths in headers of images; `None` for the one that they state.
    pub unit: Option<LengthUnit>,
    /// The limits of requests.
    pub bounds: Bounds,
    /// The folder in which each request has a folder while it lasts.
    pub scratch: PathBuf,
    /// The folder of files that can be computed again.
    pub cache: Option<CacheFolder>,
}

/// The limits of requests.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The most bytes of an upload.
    pub upload: Bytes,
    /// The most bytes of an image, or of the files of an archive, unpacked.
    pub unpacked: Bytes,
    /// The most requests that are received, planned, queued, predicted and sent at a time.
    pub queue: usize,
    /// The most connections at a time; others wait until one is closed.
    pub connections: usize,
    /// The longest time without a byte from or to a client.
    pub idle: Duration,
    /// The longest time in which the head of a request, or a TLS handshake, must arrive.
    pub head: Duration,
}

impl Bounds {
    /// Requests that are queued by default.
    pub const QUEUE: usize = 32;
    /// Connections beside the queued requests, to answer what is not queued.
    const MORE_CONNECTIONS: usize = 16;

    /// The limits for a queue of this length: uploads of 1 GiB, 8 GiB unpacked, 30 seconds without a byte.
    pub fn for_queue(queue: usize) -> Bounds {
        Bounds {
            upload: Bytes::mib(1024),
            unpacked: Bytes::mib(8192),
            queue,
            connections: queue + Bounds::MORE_CONNECTIONS,
            idle: Duration::from_secs(30),
            head: Duration::from_secs(10),
        }
    }
}

/// The settings of a service over HTTP.
#[derive(Clone)]
pub struct HttpSettings {
    /// The address to listen on, with port 0 for any that is free.
    pub listen: SocketAddr,
    /// The clients whose requests are answered.
    pub access: Access,
    /// The certificate and the key of TLS; `None` for plain HTTP.
    pub tls: Option<TlsFiles>,
    /// The archive of images that speaks DICOMweb; `None` if series cannot be named.
    pub archive: Option<ArchiveSettings>,
    /// Allows plain HTTP, or requests without a token, on addresses of other machines.
    pub allow_insecure: bool,
}

/// An archive of images that speaks DICOMweb.
#[derive(Clone, Debug)]
pub struct ArchiveSettings {
    /// The address of its services, like `http://127.0.0.1:8042/dicom-web`.
    pub url: String,
    /// The file of the `Authorization` header that it needs.
    pub authorization: Option<PathBuf>,
    /// The certificates in PEM of the authorities that are trusted, for https.
    pub authority: Option<PathBuf>,
}

/// The files of TLS.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificate in PEM, and those that sign it.
    pub certificate: PathBuf,
    /// Its private key in PEM.
    pub key: PathBuf,
}
