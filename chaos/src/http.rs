//! HTTP requests, with the certificates that this host trusts.

use obol_fabric::Nanos;
use rustls::crypto::ring;
use std::sync::Arc;
pub use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// The size limit of an answer.
pub const BYTES_MAX: u64 = 1 << 20;

/// What makes requests that take at most this long, redirects included. Statuses other than 2xx are
/// answers, not errors.
pub fn agent(timeout: Nanos, url: &str) -> Agent {
    let mut config = Agent::config_builder()
        .timeout_global(Some(timeout.to_std()))
        .http_status_as_error(false)
        .user_agent(concat!("obol/", env!("CARGO_PKG_VERSION")));
    // Reading the certificates takes some milliseconds.
    if url.starts_with("https:") {
        // Certificates that cannot be read are not trusted, which the request then reports.
        let found = rustls_native_certs::load_native_certs().certs;
        let certs: Vec<_> = found.iter().map(|der| Certificate::from_der(der).to_owned()).collect();
        let tls = TlsConfig::builder()
            .root_certs(RootCerts::new_with_certs(&certs))
            .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
            .build();
        config = config.tls_config(tls);
    }
    config.build().new_agent()
}
