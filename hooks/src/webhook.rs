//! POSTs over HTTPS.

use crate::body;
use crate::config::{Action, Body, Hook};
use crate::failed::Failed;
use crate::sign::{SIGNATURE, signature};
use obol_observe::incidents::event::Event;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use ureq::Agent;
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

/// Where distributions keep the certificates of authorities: Debian, Red Hat, SUSE, Alpine.
const CA_FILES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// The longest pause that a receiver can ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);

/// The certificates of the authorities that may sign those of receivers.
fn authorities(ca_file: Option<&Path>) -> io::Result<RootCerts> {
    let known = || CA_FILES.into_iter().map(PathBuf::from).find(|path| path.exists());
    let by_variable = || std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let path = ca_file.map(Path::to_owned).or_else(by_variable).or_else(known);
    let path = path.ok_or_else(|| {
        io::Error::other(format!("no certificates of authorities in {}; set ca_file", CA_FILES.join(", ")))
    })?;
    let pem = fs::read(&path).map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?;
    let certificates: Vec<_> = parse_pem(&pem)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            // One that this library does not read is not needed for the others.
            _ => None,
        })
        .collect();
    if certificates.is_empty() {
        return Err(io::Error::other(format!("{} holds no certificate", path.display())));
    }
    Ok(RootCerts::Specific(Arc::new(certificates)))
}

/// A client for one hook.
pub(crate) fn agent(hook: &Hook, ca_file: Option<&Path>) -> io::Result<Agent> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = TlsConfig::builder().unversioned_rustls_crypto_provider(provider);
    if matches!(&hook.action, Action::Webhook { url, .. } if url.starts_with("https://")) {
        tls = tls.root_certs(authorities(ca_file)?);
    }
    let config = Agent::config_builder()
        .timeout_global(Some(hook.timeout))
        .http_status_as_error(false)
        // A redirected POST would be signed for another receiver.
        .max_redirects(0)
        .max_redirects_will_error(false)
        .user_agent(concat!("obol/", env!("CARGO_PKG_VERSION")))
        .tls_config(tls.build());
    Ok(config.build().new_agent())
}

/// A secret in a file, without the newline that editors add. It is read each time, so that it can be
/// replaced while hooks run.
fn secret(path: &Path) -> Result<String, Failed> {
    let text = fs::read_to_string(path);
    let text =
        text.map_err(|error| Failed::Later { why: format!("{}: {error}", path.display()), after: None })?;
    Ok(text.trim_end().to_owned())
}

/// The scheme, host and port of an address: the rest may be a secret.
fn origin(url: &str) -> &str {
    let host = url.find("://").map_or(0, |at| at + 3);
    let end = url.get(host..).and_then(|rest| rest.find(['/', '?', '#'])).map_or(url.len(), |at| host + at);
    let origin = url.get(..end).unwrap_or(url);
    // So may a user be.
    if origin.contains('@') { "the receiver" } else { origin }
}

/// Delivers an event once.
pub(crate) fn post(agent: &Agent, action: &Action, event: &Event, suppressed: u64) -> Result<(), Failed> {
    let Action::Webhook { url, secret_file, bearer_file, body } = action else { return Ok(()) };
    let body = match body {
        Body::Event => event.to_json(suppressed).to_string(),
        Body::Slack => body::slack(event, suppressed).to_string(),
        Body::Grafana => body::grafana(event).to_string(),
        Body::Template(template) => body::fill(template, event, suppressed),
    };
    let mut request =
        agent.post(url).header("Content-Type", "application/json").header("Obol-Event", &event.id);
    if let Some(path) = bearer_file {
        request = request.header("Authorization", format!("Bearer {}", secret(path)?));
    }
    if let Some(path) = secret_file {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let key = secret(path)?;
        request = request.header(SIGNATURE, signature(key.as_bytes(), since.as_secs(), body.as_bytes()));
    }
    let failed = |error: ureq::Error| Failed::Later { why: format!("{}: {error}", origin(url)), after: None };
    let answer = request.send(&body).map_err(failed)?;
    let status = answer.status();
    if status.is_success() {
        return Ok(());
    }
    let why = format!("{} answered {status}", origin(url));
    // The request itself is wrong, and would be again.
    let is_final =
        status.is_redirection() || status.is_client_error() && ![408, 425, 429].contains(&status.as_u16());
    if is_final {
        return Err(Failed::Never { why });
    }
    let after = answer.headers().get("Retry-After").and_then(|value| value.to_str().ok()?.parse().ok());
    Err(Failed::Later { why, after: after.map(|seconds| Duration::from_secs(seconds).min(RETRY_AFTER_MAX)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_a_secret_of_an_address_is_not_named() {
        assert_eq!(origin("https://hooks.example.com/services/T0/B0/x"), "https://hooks.example.com");
        assert_eq!(origin("http://127.0.0.1:80?token=x"), "http://127.0.0.1:80");
        assert_eq!(origin("https://x"), "https://x");
        assert_eq!(origin("https://user:word@x/y"), "the receiver");
    }
}
