//! Who a host is, and what its processes may do: the keys of a host, and what certificates say.
//!
//! A directory holds a host's keys as PEM files: `ca.pem`, the authorities that are trusted for the
//! cluster, `host.pem`, the host's certificate with its chain, and `host.key`, its private key.
//! They are read for each new connection, so that replaced files are used without a restart.
//!
//! A host's certificate names its IP address, and one URI for each duty of its processes. The URI
//! ends in `/CLUSTER/host/NUMBER/DUTY`, with the cluster's identity in 16 hexadecimal digits; what
//! precedes is up to the authority, for example `spiffe://example.org`.

mod admit;
mod connect;
mod examine;
mod stream;

pub use admit::{Admit, Gate, KNOWN_HANDSHAKES_MAX, STRANGERS_MAX, Unintelligible};
pub use connect::{ConnectError, Route, introduce};
pub use examine::{greet, is_issued_by, is_open_to_all};
pub use stream::{LENGTH_BYTES, Stream, StreamError};

use core::fmt;
use obol_fabric::host::{FIRST_FREE, PER_HOST, REGIONS};
use obol_fabric::rights::Role;
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use strum::{EnumString, IntoStaticStr, VariantArray};

/// The file of the trusted authorities.
pub const AUTHORITIES_FILE: &str = "ca.pem";
/// The file of the host's certificate and its chain.
pub const CERTIFICATE_FILE: &str = "host.pem";
/// The file of the host's private key.
pub const KEY_FILE: &str = "host.key";

/// What processes of a host may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Duty {
    /// The gateway of the host.
    Gateway,
    Coordinator,
    /// A lease cache.
    Cache,
    /// An agent, or another member.
    Agent,
    /// A process that only reads.
    Observer,
}

impl Duty {
    const fn bit(self) -> u8 {
        1 << self as u8
    }

    const fn article(self) -> &'static str {
        match self {
            Self::Agent | Self::Observer => "an",
            Self::Gateway | Self::Coordinator | Self::Cache => "a",
        }
    }

    /// The duty that a process of this role needs.
    pub const fn of(role: Role) -> Self {
        match role {
            Role::Reader => Self::Observer,
            Role::Member => Self::Agent,
            Role::Fencer => Self::Cache,
            Role::Proposer => Self::Coordinator,
        }
    }
}

impl fmt::Display for Duty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.into())
    }
}

/// What a certificate says about its host, for one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claims {
    pub host: u8,
    duties: u8,
}

impl Claims {
    /// Whether processes of the host may have this duty.
    pub const fn allow(&self, duty: Duty) -> bool {
        self.duties & duty.bit() != 0
    }

    /// Whether it is one of the hosts of the file, which has this many. Its number is its place there, so
    /// a host that was taken out has none any more.
    pub fn is_of(&self, hosts: usize) -> bool {
        // A cluster of one host over RDMA needs no file: that host is number 1.
        (1..=hosts.max(1)).contains(&usize::from(self.host))
    }

    /// Whether a process of the host may have this role with this region. `coordinators` are the
    /// hosts of the coordinators, that of `n` at index `n - 1`.
    pub fn fit(&self, role: Role, region: u32, coordinators: &[u8]) -> bool {
        // Numbers of coordinators are theirs alone, and a process has a region of its own host.
        let is_coordinator = (1..FIRST_FREE).contains(&region);
        let fits = match role {
            Role::Reader => region == 0,
            Role::Proposer => is_coordinator,
            Role::Member | Role::Fencer => region != 0 && !is_coordinator,
        };
        let at_home = region == 0 || host_of(region, coordinators) == Some(self.host);
        fits && at_home && self.allow(Duty::of(role))
    }

    /// What a verified certificate says about a cluster. `None` if it says nothing, or names several
    /// hosts.
    pub fn of(certificate: &CertificateDer<'_>, nonce: u64) -> Option<Self> {
        let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
        let mut claims: Option<Self> = None;
        for (host, duty) in certificate.valid_uri_names().filter_map(|uri| parse(uri, nonce)) {
            let claims = claims.get_or_insert(Self { host, duties: 0 });
            if claims.host != host {
                return None;
            }
            claims.duties |= duty.bit();
        }
        claims
    }
}

/// The number of the host that a region belongs to; the arguments are those of [`Claims::fit`].
pub fn host_of(region: u32, coordinators: &[u8]) -> Option<u8> {
    if region < FIRST_FREE {
        return coordinators.get((region as usize).checked_sub(1)?).copied();
    }
    u8::try_from(region / PER_HOST).ok().filter(|host| region < REGIONS && *host != 0)
}

/// The URI of a duty on a host of a cluster.
pub fn uri(nonce: u64, host: u8, duty: Duty) -> String {
    format!("obol://{nonce:016x}/host/{host}/{duty}")
}

fn parse(uri: &str, nonce: u64) -> Option<(u8, Duty)> {
    let (_, path) = uri.split_once("://")?;
    let mut parts = path.rsplit('/');
    let duty = parts.next()?.parse().ok()?;
    let number = parts.next()?;
    let host: u8 = number.parse().ok().filter(|host| *host != 0)?;
    // As it is written by `uri`, and in no other way: `3`, not `03` or `+3`.
    let named =
        number == host.to_string() && parts.next()? == "host" && parts.next()? == format!("{nonce:016x}");
    named.then_some((host, duty))
}

/// Why a host's keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A file is missing or unreadable, or does not hold what it should.
    #[error("{}: {fault}; `obol host keys` makes the keys of all hosts", path.display())]
    File {
        path: PathBuf,
        /// What is wrong with it.
        fault: String,
    },
    /// The keys are those of another host of the cluster.
    #[error(
        "{}: is the certificate of host {named}, and does not allow {} {duty} of host {host}, which this is; copy the files that `obol host keys` has made \
         for the address of this host", path.display(), duty.article()
    )]
    OtherHost {
        /// The certificate.
        path: PathBuf,
        /// The host that it names.
        named: u8,
        host: u8,
        /// What it should allow.
        duty: Duty,
    },
    /// The certificate does not allow what a process of this host is.
    #[error(
        "{}: does not allow {} {duty} of host {host}; `obol host keys` makes the keys of all hosts",
        path.display(), duty.article()
    )]
    Duty {
        /// The certificate.
        path: PathBuf,
        host: u8,
        /// What it should allow.
        duty: Duty,
    },
    /// The files do not belong together, or cannot be used.
    #[error("{}: {fault}", directory.display())]
    Unusable {
        directory: PathBuf,
        /// What is wrong with them.
        fault: String,
    },
}

/// Which files an identity was read from: another number or time means other contents.
type Version = [Option<(u64, SystemTime)>; 3];

/// The files of an identity now. To be taken before they are read: files that are replaced meanwhile
/// are read again then.
fn version(directory: &Path) -> Version {
    [AUTHORITIES_FILE, CERTIFICATE_FILE, KEY_FILE].map(|name| {
        let meta = std::fs::metadata(directory.join(name)).ok()?;
        Some((meta.ino(), meta.modified().ok()?))
    })
}

/// What a process needs its keys for.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    /// The identity of its cluster.
    pub nonce: u64,
    /// The number of its host.
    pub host: u8,
    /// What it does there.
    pub duty: Duty,
}

/// A host's keys for connections that it accepts, read again when they change.
#[derive(Debug)]
pub struct ServerKeys {
    directory: PathBuf,
    /// What they have to allow.
    needed: Need,
    /// The files that they were read from.
    version: Version,
    keys: Arc<ServerConfig>,
}

impl ServerKeys {
    /// Reads the keys of a host for a process.
    pub fn load(directory: &Path, needed: Need) -> Result<Self, IdentityError> {
        let version = version(directory);
        Ok(Self { directory: directory.to_owned(), needed, version, keys: Self::read(directory, needed)? })
    }

    fn read(directory: &Path, needed: Need) -> Result<Arc<ServerConfig>, IdentityError> {
        let Need { nonce, host, duty } = needed;
        let identity = Identity::load(directory)?;
        identity.allows(nonce, host, duty)?;
        identity.server()
    }

    /// The keys now. Changed ones that cannot be used are tried again when they change.
    fn get(&mut self) -> &Arc<ServerConfig> {
        let version = version(&self.directory);
        if version != self.version {
            self.version = version;
            match Self::read(&self.directory, self.needed) {
                Ok(keys) => {
                    tracing::info!(target: "gateway", "uses the new keys of this host");
                    self.keys = keys;
                }
                Err(error) => {
                    tracing::error!(target: "gateway", "the new keys of this host cannot be used, the old ones stay: {error}");
                }
            }
        }
        &self.keys
    }
}

/// A host's keys.
#[derive(Debug)]
pub struct Identity {
    directory: PathBuf,
    authorities: Arc<RootCertStore>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

/// The most that [`Identity::days_left`] says.
pub const DAYS_MAX: u32 = 10_000;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

impl Identity {
    /// Reads the files in a directory.
    pub fn load(directory: &Path) -> Result<Self, IdentityError> {
        let file = |name: &str| directory.join(name);
        let wrong = |name: &str, fault: String| IdentityError::File { path: file(name), fault };
        let certificates = |name: &str| {
            let read =
                CertificateDer::pem_file_iter(file(name)).and_then(Iterator::collect::<Result<Vec<_>, _>>);
            match read {
                Ok(read) if read.is_empty() => Err(wrong(name, "holds no certificate".to_owned())),
                read => read.map_err(|error| wrong(name, error.to_string())),
            }
        };
        let mut authorities = RootCertStore::empty();
        for authority in certificates(AUTHORITIES_FILE)? {
            authorities.add(authority).map_err(|error| wrong(AUTHORITIES_FILE, error.to_string()))?;
        }
        let chain = certificates(CERTIFICATE_FILE)?;
        let key = PrivateKeyDer::from_pem_file(file(KEY_FILE))
            .map_err(|error| wrong(KEY_FILE, error.to_string()))?;
        Ok(Self { directory: directory.to_owned(), authorities: Arc::new(authorities), chain, key })
    }

    /// What the own certificate says about a cluster.
    pub fn claims(&self, nonce: u64) -> Result<Claims, IdentityError> {
        let claims = self.chain.first().and_then(|certificate| Claims::of(certificate, nonce));
        claims.ok_or_else(|| IdentityError::File {
            path: self.directory.join(CERTIFICATE_FILE),
            fault: format!("names no host of the cluster with the identity {nonce:016x}"),
        })
    }

    /// Refuses a certificate of another host, or one that does not allow this host a duty.
    pub fn allows(&self, nonce: u64, host: u8, duty: Duty) -> Result<(), IdentityError> {
        let claims = self.claims(nonce)?;
        let path = || self.directory.join(CERTIFICATE_FILE);
        if claims.host != host {
            return Err(IdentityError::OtherHost { path: path(), named: claims.host, host, duty });
        }
        if !claims.allow(duty) {
            return Err(IdentityError::Duty { path: path(), host, duty });
        }
        Ok(())
    }

    /// For how many more days the own certificate is valid, at most [`DAYS_MAX`]. `None` if its
    /// authorities do not make it valid now.
    pub fn days_left(&self) -> Option<u32> {
        let left = self.valid_for()?;
        u32::try_from(left.as_secs() / DAY.as_secs()).ok()
    }

    /// The same to the second, rounded down.
    pub fn valid_for(&self) -> Option<Duration> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        let is_valid = |after: u64| {
            self.is_valid_at(UnixTime::since_unix_epoch(now.saturating_add(Duration::from_secs(after))))
        };
        // The library verifies a certificate at a time, but does not tell its dates.
        let (mut valid, mut expired) = (is_valid(0).then_some(0)?, (DAY * DAYS_MAX).as_secs() + 1);
        while expired - valid > 1 {
            let middle = u64::midpoint(valid, expired);
            if is_valid(middle) { valid = middle } else { expired = middle }
        }
        Some(Duration::from_secs(valid))
    }

    fn is_valid_at(&self, time: UnixTime) -> bool {
        examine::verify(&self.chain, &self.authorities, time).is_ok()
    }

    fn unusable(&self, error: impl fmt::Display) -> IdentityError {
        IdentityError::Unusable { directory: self.directory.clone(), fault: error.to_string() }
    }

    /// Key and certificate cannot be used together.
    fn unpaired(&self, error: rustls::Error) -> IdentityError {
        match error {
            rustls::Error::InconsistentKeys(_) => IdentityError::File {
                path: self.directory.join(KEY_FILE),
                fault: format!("is not the key of the certificate in {CERTIFICATE_FILE} beside it"),
            },
            error => self.unusable(error),
        }
    }

    /// For connections to gateways.
    pub fn client(&self) -> Result<Arc<ClientConfig>, IdentityError> {
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::clone(&self.authorities), provider())
            .build()
            .map_err(|error| self.unusable(error))?;
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| self.unusable(error))?
            .with_webpki_verifier(verifier)
            .with_client_auth_cert(self.chain.clone(), self.key.clone_key())
            .map_err(|error| self.unpaired(error))?;
        Ok(Arc::new(config))
    }

    /// For a gateway: without a certificate of the authorities, nobody gets in.
    pub fn server(&self) -> Result<Arc<ServerConfig>, IdentityError> {
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&self.authorities), provider())
            .build()
            .map_err(|error| self.unusable(error))?;
        let config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| self.unusable(error))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(self.chain.clone(), self.key.clone_key())
            .map_err(|error| self.unpaired(error))?;
        Ok(Arc::new(config))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_names_cluster_host_and_duty() {
        assert_eq!(parse(&uri(7, 2, Duty::Cache), 7), Some((2, Duty::Cache)));
        let foreign = "spiffe://example.org/prod/0000000000000007/host/31/gateway";
        assert_eq!(parse(foreign, 7), Some((31, Duty::Gateway)));
        for wrong in [
            "obol://0000000000000008/host/2/cache",
            "obol://0000000000000007/guest/2/cache",
            "obol://0000000000000007/host/256/cache",
            "obol://0000000000000007/host/0/cache",
            "obol://0000000000000007/host/+3/cache",
            "obol://0000000000000007/host/03/cache",
            "obol://0000000000000007/host/ 3/cache",
            "obol://0000000000000007/host//cache",
            "obol://0000000000000007/host/3/Cache",
            "obol://0000000000000007/host/2/king",
            "obol:0000000000000007/host/2/cache",
            "",
        ] {
            assert_eq!(parse(wrong, 7), None, "{wrong}");
        }
    }
}
