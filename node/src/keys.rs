//! Makes the keys of a cluster's hosts: an authority, and a certificate for each host.
//!
//! The authority's key signs; whoever has it can be any host. It is needed only to make further
//! certificates, and belongs on none of the hosts.

use crate::hosts::Host;
use crate::network::print_id;
use jiff::{Timestamp, ToSpan, civil::Date, tz::TimeZone};
use obol_fabric::Name;
use obol_fabric::identity::{AUTHORITIES_FILE, CERTIFICATE_FILE, Duty, KEY_FILE, uri};
use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType, date_time_ymd,
};
use std::fs::{DirBuilder, OpenOptions, read_to_string, rename};
use std::io::{ErrorKind, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The file of the authority's key.
pub const AUTHORITY_KEY_FILE: &str = "ca.key";
/// How long the authority's certificate is valid, in years.
const AUTHORITY_YEARS: i16 = 10;
/// Modes of the files: keys are for their owner alone.
const KEY_MODE: u32 = 0o600;
const CERTIFICATE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o700;

/// Why keys cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// A file cannot be read or written.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error.
        error: std::io::Error,
    },
    /// Half of an authority.
    #[error("{}: the authority's {missing} is missing; move the other file away to make a new authority", directory.display())]
    Half {
        /// The directory.
        directory: PathBuf,
        /// What is missing.
        missing: &'static str,
    },
    /// A key is invalid, or cannot be made.
    #[error("{}: {error}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// The error.
        error: rcgen::Error,
    },
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

fn directory(path: &Path) -> Result<(), KeysError> {
    match DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path) {
        Ok(()) => Ok(()),
        Err(error) => Err(KeysError::Io { path: path.to_owned(), error }),
    }
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
                Ok(Self { id, issuer, certificate, is_new: false })
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

    /// Makes new keys for a host in a directory, valid for so many days.
    pub fn issue(
        &self,
        own: &Path,
        (address, number): (IpAddr, u8),
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

/// What processes of a host may be. Programs with a core of their own, and operators, are members
/// like agents.
pub fn duties(host: &Host) -> Vec<Duty> {
    let coordinator = host.coordinator.map(|_| Duty::Coordinator);
    let cache = (!host.caches.is_empty()).then_some(Duty::Cache);
    [Duty::Gateway, Duty::Agent, Duty::Observer].into_iter().chain(coordinator).chain(cache).collect()
}
