//! Errors that prevent a service from starting.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use plimsoll::Error;
use plimsoll_memory::Bytes;
use plimsoll_remedy::Remedy;

/// An error that prevents a service from starting.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The service has no model.
    #[error("no model is named")]
    NoModel,
    /// Two models have the same name.
    #[error("two models have the name {name}")]
    SameName {
        /// The name.
        name: String,
    },
    /// The name of a model cannot be part of an address.
    #[error("{name:?} cannot be a name in addresses: 1 to 64 letters, digits, `-`, `_` and `.`")]
    Name {
        /// The name.
        name: String,
    },
    /// A model cannot be opened, or the memory limit is too low for the process.
    #[error("{0}")]
    Job(#[from] Error),
    /// The limit has no room for connections.
    #[error("{connections} connections need {needed}, and the limit is {limit}")]
    Connections {
        /// The number of connections.
        connections: usize,
        /// The bytes that they and the process itself need.
        needed: Bytes,
        /// The memory limit.
        limit: Bytes,
    },
    /// The address is not one of this machine alone.
    #[error("{address} can be reached from other machines, and {missing}")]
    Exposed {
        /// The address.
        address: SocketAddr,
        /// The missing protection.
        missing: &'static str,
    },
    /// A socket cannot be opened.
    #[error("{address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// A file or a folder cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file of secrets can be read by other users of the machine.
    #[error("{} can be read by other users of this machine", path.display())]
    ReadableSecret {
        /// The file.
        path: PathBuf,
    },
    /// A file has no token, or one that is not safe.
    #[error("{}: {why}", path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// The fault.
        why: &'static str,
    },
    /// The certificate or its key cannot be used.
    #[error("{}: {why}", path.display())]
    Tls {
        /// The file.
        path: PathBuf,
        /// The fault.
        why: String,
    },
    /// The address of an archive of images cannot be used.
    #[error("{url}: {why}")]
    Archive {
        /// The address.
        url: String,
        /// The fault.
        why: &'static str,
    },
    /// The processor lacks instructions that the cryptography of TLS needs.
    #[error("TLS needs a processor with {needed}")]
    Processor {
        /// The instructions.
        needed: &'static str,
    },
    /// The system refuses a thread, a timer or random bytes.
    #[error("{what}: {source}")]
    System {
        /// The refused thing.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl ServeError {
    /// Returns a remedy, in which parameters are marked.
    pub fn remedy(&self) -> Remedy {
        match self {
            ServeError::NoModel => "name one: --model NAME=PATH, or --task total".into(),
            ServeError::SameName { .. } => "name them apart: --model NAME=PATH".into(),
            ServeError::Name { .. } => "give it another name: --model NAME=PATH".into(),
            ServeError::Job(error) => error.remedy().clone(),
            ServeError::Connections { needed, .. } => {
                let mib = needed.0.div_ceil(1 << 20) + 1;
                format!("raise the limit above ‹ram={mib}MiB›, or lower --queue").into()
            }
            ServeError::Exposed { .. } => {
                "set --tls-certificate and --tls-key, and leave --no-token out; behind a proxy that does the same, give --insecure".into()
            }
            ServeError::Listen { .. } => {
                "name another address or port with --listen; port 0 takes any that is free".into()
            }
            ServeError::File { .. } => "check the path and the permissions".into(),
            ServeError::ReadableSecret { path } => {
                format!("make it yours alone: chmod 600 {}", path.display()).into()
            }
            ServeError::Token { .. } => {
                "write one token in a line, of 16 to 256 printable characters without spaces".into()
            }
            ServeError::Tls { .. } => {
                "name a certificate and its private key in PEM: ECDSA with P-256 or P-384, RSA or Ed25519".into()
            }
            ServeError::Archive { .. } => {
                "name the DICOMweb services of the archive, like http://127.0.0.1:8042/dicom-web, and for https --dicomweb-authority".into()
            }
            ServeError::Processor { .. } => {
                "listen without TLS on 127.0.0.1, behind a proxy that does TLS".into()
            }
            ServeError::System { .. } => "raise the limits of this user (`ulimit -a`)".into(),
        }
    }
}
