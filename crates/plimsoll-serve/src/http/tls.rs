//! TLS by rustls, whose cryptography (graviola) is built without a C compiler.

use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::error::ServeError;
use crate::settings::TlsFiles;

/// The most bytes of a file of certificates or a key.
const MOST: u64 = 1 << 20;
/// The most bytes that wait in a session to be encrypted.
const BUFFERED: usize = 32 << 10;

/// Reads the certificate and the key.
pub(super) fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, ServeError> {
    expect_processor()?;
    let read = |path: &Path| {
        plimsoll_disk::read(path, MOST).map_err(|source| ServeError::File { path: path.into(), source })
    };
    let fault = |path: &Path, why: String| ServeError::Tls { path: path.into(), why };
    let certificates: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(&read(&files.certificate)?)
            .collect::<Result<_, _>>()
            .map_err(|error| fault(&files.certificate, format!("it is no certificate in PEM: {error}")))?;
    if certificates.is_empty() {
        return Err(fault(&files.certificate, "it has no certificate in PEM".into()));
    }
    let key = PrivateKeyDer::from_pem_slice(&read(&files.key)?)
        .map_err(|error| fault(&files.key, format!("it has no private key in PEM: {error}")))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(rustls_graviola::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| fault(&files.certificate, error.to_string()))?
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .map_err(|error| fault(&files.certificate, error.to_string()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Sets the limit of a session's buffer.
pub(super) fn limit_buffers(session: &mut rustls::ServerConnection) {
    session.set_buffer_limit(Some(BUFFERED));
}

/// Checks that the processor has the instructions of graviola, which ends the process otherwise.
pub(crate) fn expect_processor() -> Result<(), ServeError> {
    #[cfg(target_arch = "x86_64")]
    let (has_all, needed) = (
        is_x86_feature_detected!("aes")
            && is_x86_feature_detected!("ssse3")
            && is_x86_feature_detected!("avx")
            && is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("adx")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("pclmulqdq"),
        "AES, AVX2, ADX, BMI2 and PCLMULQDQ, as those since 2014 have",
    );
    #[cfg(target_arch = "aarch64")]
    let (has_all, needed) = (
        std::arch::is_aarch64_feature_detected!("neon")
            && std::arch::is_aarch64_feature_detected!("aes")
            && std::arch::is_aarch64_feature_detected!("pmull")
            && std::arch::is_aarch64_feature_detected!("sha2"),
        "the cryptography extension of Armv8",
    );
    if has_all { Ok(()) } else { Err(ServeError::Processor { needed }) }
}
