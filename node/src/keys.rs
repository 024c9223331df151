//! Makes the keys of a cluster's hosts: an authority, and a certificate for each host.
//!
//! The authority's key signs; its holder can be any host. It is needed only to make further
//! certificates, and belongs on none of the hosts.

use crate::hosts::Host;
use crate::network::{Network, print_id};
use jiff::{Timestamp, ToSpan, civil::Date, tz::TimeZone};
use obol_fabric::Name;
use obol_identity::{AUTHORITIES_FILE, CERTIFICATE_FILE, Duty, Identity, KEY_FILE, is_issued_by, uri};
use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType, date_time_ymd,
};
use ring::digest::{SHA256, digest};
use std::fs::{DirBuilder, OpenOptions, read_to_string, rename};
use std::io::{ErrorKind, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The file of the authority's key.
pub const AUTHORITY_KEY_FILE: &str = "ca.key";
/// How long the authority's certificate is valid, in years.
const AUTHORITY_YEARS: i16 = 10;
/// What the key of the authority of a trusted network is made of, besides the cluster's identity.
const KNOWN_AUTHORITY: &[u8] = b"obol: the authority of a network that is trusted";
/// An Ed25519 key in PKCS #8 up to its 32 bytes (RFC 8410, 7).
const ED25519_PKCS8: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];
/// What processes do that use the keys of a trusted network: gateways, fault agents and runners of
/// drills, and observers. Members reach each other without keys there.
const TRUSTED_DUTIES: [Duty; 3] = [Duty::Gateway, Duty::Agent, Duty::Observer];
/// How long they are valid, in days: they are made anew after each boot.
const TRUSTED_DAYS: u16 = 3650;
/// With fewer days left they are made anew.
const TRUSTED_DAYS_FEW: u32 = 365;
/// Modes of the files: keys are for their owner alone.
const KEY_MODE: u32 = 0o600;
const CERTIFICATE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o700;
const WRITABLE_BY_ALL: u32 = 0o002;

/// Why keys cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// A file cannot be read or written.
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: std::io::Error },
    /// Every user can replace what is in the directory.
    #[error(
        "{}: every user can write to this directory (mode {:o}), and so replace keys in it; `chmod o-w` it, or name another one",
        directory.display(), mode & 0o7777
    )]
    Open { directory: PathBuf, mode: u32 },
    /// Half of an authority.
    #[error("{}: the authority's {missing} is missing; move the other file away to make a new authority", directory.display())]
    Half { directory: PathBuf, missing: &'static str },
    /// The authority in the directory is another one, so no host would accept what it issues.
    #[error(
        "{}: {AUTHORITY_KEY_FILE} is not the key of an authority that `obol host keys` made for cluster {cluster}, id {}, in the \
         {AUTHORITIES_FILE} beside it; for a cluster with a new name or id, make keys in an empty directory, and copy them to all hosts",
        directory.display(), print_id(*id)
    )]
    Other { directory: PathBuf, cluster: Name, id: u64 },
    /// A key is invalid, or cannot be made.
    #[error("{}: {error}", path.display())]
    Key { path: PathBuf, error: rcgen::Error },
}

fn day(date: Date) -> (i32, u8, u8) {
    (i32::from(date.year()), date.month().unsigned_abs(), date.day().unsigned_abs())
}

fn today() -> Date {
    Timestamp::now().to_zoned(TimeZone::UTC).date()
}

/// Valid from yesterday, because clocks differ, until `last`.
fn validity(params: &mut CertificateParams, last: Date) {
    let (year, month, first) = day(today().saturating_sub(1.day()));
    params.not_before = date_time_ymd(year, month, first);
    let (year, month, last) = day(last);
    params.not_after = date_time_ymd(year, month, last);
}

fn write(path: &Path, text: &str, mode: u32) -> Result<(), KeysError> {
    let wrong = |error| KeysError::Io { path: path.to_owned(), error };
    // Whole or not at all: a gateway may read it just now.
    let draft = path.with_extension("new");
    let _ = std::fs::remove_file(&draft);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&draft).map_err(wrong)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(wrong)?;
    rename(&draft, path).map_err(wrong)
}

/// Makes a directory, or takes one that is there, unless every user can write to it.
fn directory(path: &Path) -> Result<(), KeysError> {
    let wrong = |error| KeysError::Io { path: path.to_owned(), error };
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path).map_err(wrong)?;
    let mode = std::fs::metadata(path).map_err(wrong)?.mode();
    let is_open = mode & WRITABLE_BY_ALL != 0;
    if is_open { Err(KeysError::Open { directory: path.to_owned(), mode }) } else { Ok(()) }
}

fn text(path: &Path) -> Result<Option<String>, KeysError> {
    match read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(KeysError::Io { path: path.to_owned(), error }),
    }
}

/// An authority of a cluster.
pub struct Authority {
    id: u64,
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
    /// Whether it was made just now.
    pub is_new: bool,
}

/// What an authority's certificate says; the same each time, because issued certificates name it.
fn authority_of(cluster: Name, id: u64) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("obol {cluster} {}", print_id(id)));
    params
}

impl Authority {
    /// One whose key is kept nowhere, and the key's text.
    pub fn new(cluster: Name, id: u64) -> Result<(Self, String), rcgen::Error> {
        let mut params = authority_of(cluster, id);
        validity(&mut params, today().saturating_add(i64::from(AUTHORITY_YEARS).years()));
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?.pem();
        let text = key.serialize_pem();
        Ok((Self { id, issuer: Issuer::new(params, key), certificate, is_new: true }, text))
    }

    /// That of a network which is trusted. Its key follows from the cluster's identity, so each host makes
    /// its own certificate, and who knows the identity can make one: see [`trust`].
    fn known(id: u64) -> Result<Self, rcgen::Error> {
        let mut params = authority_of(Name::default(), id);
        validity(&mut params, today().saturating_add(i64::from(AUTHORITY_YEARS).years()));
        let seed = digest(&SHA256, &[KNOWN_AUTHORITY, &id.to_be_bytes()].concat());
        let key = KeyPair::try_from([&ED25519_PKCS8, seed.as_ref()].concat())?;
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self { id, issuer: Issuer::new(params, key), certificate, is_new: true })
    }

    /// Reads the authority of a cluster from a directory, or makes one there.
    pub fn open(all: &Path, cluster: Name, id: u64) -> Result<Self, KeysError> {
        directory(all)?;
        let (certificate_path, key_path) = (all.join(AUTHORITIES_FILE), all.join(AUTHORITY_KEY_FILE));
        let wrong = |error| KeysError::Key { path: key_path.clone(), error };
        let half = |missing| KeysError::Half { directory: all.to_owned(), missing };
        match (text(&certificate_path)?, text(&key_path)?) {
            (Some(certificate), Some(key)) => {
                let key = KeyPair::from_pem(&key).map_err(wrong)?;
                let issuer = Issuer::new(authority_of(cluster, id), key);
                let opened = Self { id, issuer, certificate, is_new: false };
                if !opened.is_in_force().map_err(wrong)? {
                    return Err(KeysError::Other { directory: all.to_owned(), cluster, id });
                }
                Ok(opened)
            }
            (None, None) => {
                let (made, key) = Self::new(cluster, id).map_err(wrong)?;
                write(&key_path, &key, KEY_MODE)?;
                write(&certificate_path, &made.certificate, CERTIFICATE_MODE)?;
                Ok(made)
            }
            (Some(_), None) => Err(half("key (ca.key)")),
            (None, Some(_)) => Err(half("certificate (ca.pem)")),
        }
    }

    /// Whether its certificate is that of its key and of the cluster: a certificate names its issuer,
    /// and one of another name or key is of no authority to those who verify it.
    fn is_in_force(&self) -> Result<bool, rcgen::Error> {
        let mut params = CertificateParams::default();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        validity(&mut params, today().saturating_add(1.day()));
        let trial = params.signed_by(&KeyPair::generate()?, &self.issuer)?.pem();
        Ok(is_issued_by(&trial, &self.certificate))
    }

    /// Makes new keys for a host in a directory, valid for `days` days.
    pub fn issue(
        &self,
        own: &Path,
        address: IpAddr,
        number: u8,
        duties: &[Duty],
        days: u16,
    ) -> Result<(), KeysError> {
        directory(own)?;
        let wrong = |error| KeysError::Key { path: own.join(KEY_FILE), error };
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, address.to_string());
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        params.subject_alt_names.push(SanType::IpAddress(address));
        for duty in duties {
            let uri = Ia5String::try_from(uri(self.id, number, *duty)).map_err(wrong)?;
            params.subject_alt_names.push(SanType::URI(uri));
        }
        validity(&mut params, today().saturating_add(i64::from(days).days()));
        let key = KeyPair::generate().map_err(wrong)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(wrong)?.pem();
        write(&own.join(AUTHORITIES_FILE), &self.certificate, CERTIFICATE_MODE)?;
        write(&own.join(KEY_FILE), &key.serialize_pem(), KEY_MODE)?;
        write(&own.join(CERTIFICATE_FILE), &certificate, CERTIFICATE_MODE)
    }
}

/// Makes the keys of this host's gateway in the cluster's directory, if the network is trusted
/// (`keys = "none"`) and they are not there. Such a network lets in who knows the cluster's identity,
/// which is in clear in its packets; so do these keys, and no more is claimed for them.
pub fn trust(network: &Network, dir: &Path) -> Result<(), KeysError> {
    if network.keys().is_some() || !network.has_gateways() {
        return Ok(());
    }
    let is_good = |identity: Identity| {
        identity.fault(network.id, network.host, network.address, &TRUSTED_DUTIES).is_none()
            && identity.days_left().is_some_and(|days| days >= TRUSTED_DAYS_FEW)
    };
    if Identity::load(dir).is_ok_and(is_good) {
        return Ok(());
    }
    let wrong = |error| KeysError::Key { path: dir.join(KEY_FILE), error };
    let authority = Authority::known(network.id).map_err(wrong)?;
    authority.issue(dir, network.address, network.host, &TRUSTED_DUTIES, TRUSTED_DAYS)
}

/// What the processes that the file of hosts names need, besides the least that every host does.
pub fn needed(host: &Host, least: &[Duty]) -> Vec<Duty> {
    let coordinator = host.coordinator.map(|_| Duty::Coordinator);
    let cache = (!host.caches.is_empty()).then_some(Duty::Cache);
    let agent = (!host.agents.is_empty()).then_some(Duty::Agent);
    least.iter().copied().chain(coordinator).chain(cache).chain(agent).collect()
}

/// What processes of a host may be. Programs with a core of their own, and operators, are members
/// like agents.
pub fn duties(host: &Host) -> Vec<Duty> {
    let coordinator = host.coordinator.map(|_| Duty::Coordinator);
    let cache = (!host.caches.is_empty()).then_some(Duty::Cache);
    [Duty::Gateway, Duty::Agent, Duty::Observer].into_iter().chain(coordinator).chain(cache).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use obol_identity::Identity;
    use std::fs::copy;
    use std::os::unix::fs::PermissionsExt;

    const ID: u64 = 0xaa;
    const HOST: (IpAddr, u8) = (IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)), 1);

    fn open(at: &Path, id: u64) -> Result<Authority, KeysError> {
        Authority::open(at, Name::new("c").expect("a name"), id)
    }

    /// Keys of the host in a directory of their own.
    fn issue(authority: &Authority, at: &Path, address: IpAddr, duties: &[Duty]) -> PathBuf {
        authority.issue(at, address, HOST.1, duties, 1).expect("issued");
        at.to_owned()
    }

    #[test]
    fn an_authority_of_another_cluster_or_key_issues_nothing() {
        let at = tempfile::tempdir().expect("made");
        let (one, other) = (at.path().join("one"), at.path().join("other"));
        assert!(open(&one, ID).expect("made").is_new);
        assert!(!open(&one, ID).expect("used again").is_new);
        let said = open(&one, ID + 1).err().expect("the identity is another one").to_string();
        assert!(said.contains("00000000000000ab") && said.contains("empty directory"), "{said}");
        open(&other, ID).expect("made");
        copy(other.join(AUTHORITY_KEY_FILE), one.join(AUTHORITY_KEY_FILE)).expect("copied");
        assert!(matches!(open(&one, ID), Err(KeysError::Other { .. })), "the key is another one's");
        // While keys are replaced, hosts trust both.
        let both = ["one", "other"].map(|of| read_to_string(at.path().join(of).join(AUTHORITIES_FILE)));
        let both: String = both.into_iter().map(|text| text.expect("read")).collect();
        std::fs::write(one.join(AUTHORITIES_FILE), both).expect("written");
        open(&one, ID).expect("its certificate is one of the two");
    }

    #[test]
    fn a_directory_that_all_can_write_to_gets_no_keys() {
        let at = tempfile::tempdir().expect("made");
        let set = |mode| std::fs::set_permissions(at.path(), PermissionsExt::from_mode(mode)).expect("set");
        set(0o777);
        let said = open(at.path(), ID).err().expect("refused").to_string();
        assert!(said.contains("mode 777") && said.contains("chmod o-w"), "{said}");
        assert!(!at.path().join(AUTHORITY_KEY_FILE).exists());
        set(0o775);
        open(at.path(), ID).expect("its group is trusted");
    }

    #[test]
    fn hosts_of_a_trusted_network_make_keys_that_the_others_accept_and_no_other_cluster_does() {
        let at = tempfile::tempdir().expect("made");
        let address = |host: u8| IpAddr::from([10, 0, 0, host]);
        let network = |id, host| Network {
            host,
            hosts: vec![address(1), address(2)],
            ..Network::local(id, address(host), 7471, 1)
        };
        let made = |id, host| {
            let dir = at.path().join(format!("{id}-{host}"));
            trust(&network(id, host), &dir).expect("made");
            dir
        };
        let (one, two, other) = (made(ID, 1), made(ID, 2), made(ID + 1, 2));
        let fault = |keys: &Path| {
            let identity = Identity::load(keys).expect("complete");
            identity.fault(ID, 2, address(2), &TRUSTED_DUTIES).map(|error| error.to_string())
        };
        // The certificate of each by what the other trusts: they have not met.
        let by = |keys: &Path, authority: &Path| {
            copy(authority.join(AUTHORITIES_FILE), keys.join(AUTHORITIES_FILE)).expect("copied");
            fault(keys)
        };
        assert_eq!(by(&two, &one), None);
        let said = by(&two, &other).expect("another identity is another authority's");
        assert!(said.contains("no authority in the ca.pem"), "{said}");
        // Those that are good stay: a running gateway and its peers have them.
        let read = |keys: &Path| read_to_string(keys.join(CERTIFICATE_FILE)).expect("read");
        let before = read(&one);
        trust(&network(ID, 1), &one).expect("there");
        assert_eq!(read(&one), before);
        // Of the bad ones nothing stays.
        trust(&network(ID, 2), &two).expect("made again");
        assert_eq!(by(&two, &one), None);
    }

    #[test]
    fn keys_of_its_own_has_no_host_that_has_others_or_is_alone() {
        let at = tempfile::tempdir().expect("made");
        let alone = Network::local(ID, HOST.0, 7471, 1);
        let several = Network { hosts: vec![HOST.0; 2], ..alone.clone() };
        for network in [alone, Network { rdma_keys: Some("keys".into()), ..several }] {
            trust(&network, at.path()).expect("nothing to do");
        }
        assert_eq!(std::fs::read_dir(at.path()).expect("it is there").count(), 0);
    }

    #[test]
    fn keys_that_a_host_cannot_use_are_distinguished() {
        let at = tempfile::tempdir().expect("made");
        let dir = |name: &str| at.path().join(name);
        let (authority, other) = (open(&dir("a"), ID).expect("made"), open(&dir("b"), ID).expect("made"));
        let duties = [Duty::Gateway, Duty::Coordinator];
        let fault = |keys: &Path| {
            let identity = Identity::load(keys).expect("complete");
            assert!(identity.days_left().is_some() || keys == dir("unknown"), "the dates are right");
            identity.fault(ID, HOST.1, HOST.0, &duties).map(|error| error.to_string())
        };
        let good = issue(&authority, &dir("good"), HOST.0, &duties);
        assert_eq!(fault(&good), None);
        let said = |keys: PathBuf, wanted: &str| {
            let said = fault(&keys).unwrap_or_default();
            assert!(said.contains(wanted), "{said:?} does not say {wanted:?}");
        };
        said(issue(&authority, &dir("duty"), HOST.0, &duties[..1]), "does not allow a coordinator");
        let elsewhere = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 9));
        said(issue(&authority, &dir("address"), elsewhere, &duties), "not for the address 10.0.0.1");
        let mixed = issue(&authority, &dir("mixed"), HOST.0, &duties);
        copy(good.join(KEY_FILE), mixed.join(KEY_FILE)).expect("copied");
        said(mixed, "host.key: is not the key");
        let unknown = issue(&other, &dir("unknown"), HOST.0, &duties);
        copy(good.join(AUTHORITIES_FILE), unknown.join(AUTHORITIES_FILE)).expect("copied");
        said(unknown, "no authority in the ca.pem");
    }
}
