//! Keys of a cluster's hosts, made for a test.

use obol_identity::{AUTHORITIES_FILE, CERTIFICATE_FILE, Duty, KEY_FILE, uri};
use rcgen::string::Ia5String;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};
use std::fs;
use std::net::IpAddr;
use std::path::Path;

pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).expect("signed").pem();
        Self { issuer: Issuer::new(params, key), certificate }
    }

    /// Writes the keys of a host into a directory.
    pub(crate) fn issue(&self, directory: &Path, address: IpAddr, nonce: u64, host: u8, duties: &[Duty]) {
        self.issue_with(directory, address, nonce, host, duties, |_| {});
    }

    /// The same, for a certificate that is changed before it is signed.
    pub(crate) fn issue_with(
        &self,
        directory: &Path,
        address: IpAddr,
        nonce: u64,
        host: u8,
        duties: &[Duty],
        change: impl FnOnce(&mut CertificateParams),
    ) {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.subject_alt_names.push(SanType::IpAddress(address));
        for duty in duties {
            let name = Ia5String::try_from(uri(nonce, host, *duty)).expect("ASCII");
            params.subject_alt_names.push(SanType::URI(name));
        }
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).expect("signed").pem();
        fs::create_dir_all(directory).expect("made");
        for (file, text) in [
            (AUTHORITIES_FILE, &self.certificate),
            (CERTIFICATE_FILE, &certificate),
            (KEY_FILE, &key.serialize_pem()),
        ] {
            fs::write(directory.join(file), text).expect("written");
        }
    }
}
