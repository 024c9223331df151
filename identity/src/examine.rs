//! Whether the keys in a host's directory can be used for what the host needs: said before they are
//! needed, because a connection that fails says only what its other end saw.

use super::{CERTIFICATE_FILE, Duty, Identity, IdentityError, provider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConnection, RootCertStore};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

/// Verifies a certificate with its chain at a time.
pub(super) fn verify(
    chain: &[CertificateDer<'_>],
    authorities: &RootCertStore,
    time: UnixTime,
) -> Result<(), webpki::Error> {
    let (own, others) = chain.split_first().ok_or(webpki::Error::BadDer)?;
    let usage = webpki::KeyUsage::server_auth();
    let algorithms = provider().signature_verification_algorithms.all;
    let own = webpki::EndEntityCert::try_from(own)?;
    own.verify_for_usage(algorithms, &authorities.roots, others, time, usage, None, None).map(|_| ())
}

/// Whether a certificate is of one of these authorities, whatever its dates.
fn is_of(chain: &[CertificateDer<'_>], authorities: &RootCertStore) -> bool {
    use webpki::Error::{CertExpired, CertNotValidYet};
    match verify(chain, authorities, UnixTime::now()) {
        // These are looked at before the authority. Dates are reported for themselves.
        Ok(()) | Err(CertExpired { .. } | CertNotValidYet { .. }) => true,
        Err(_) => false,
    }
}

/// Whether a certificate is of one of these authorities; both as PEM.
pub fn is_issued_by(certificate: &str, authorities: &str) -> bool {
    let read = |text: &str| -> Option<Vec<_>> {
        CertificateDer::pem_slice_iter(text.as_bytes()).collect::<Result<_, _>>().ok()
    };
    let (Some(chain), Some(trusted)) = (read(certificate), read(authorities)) else { return false };
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(trusted);
    is_of(&chain, &roots)
}

impl Identity {
    /// Why a host of a cluster cannot use these keys for some duties at its address, if so. Dates are
    /// reported by [`Identity::valid_for`].
    pub fn fault(&self, nonce: u64, host: u8, address: IpAddr, duties: &[Duty]) -> Option<IdentityError> {
        let wrong =
            |fault: String| Some(IdentityError::File { path: self.directory.join(CERTIFICATE_FILE), fault });
        for duty in duties {
            if let Err(error) = self.allows(nonce, host, *duty) {
                return Some(error);
            }
        }
        if !is_of(&self.chain, &self.authorities) {
            return wrong("is of no authority in the ca.pem beside it".to_owned());
        }
        let own = self.chain.first().and_then(|own| webpki::EndEntityCert::try_from(own).ok());
        let is_for = |own: &webpki::EndEntityCert<'_>| {
            own.verify_is_valid_for_subject_name(&ServerName::IpAddress(address.into())).is_ok()
        };
        if !own.as_ref().is_some_and(is_for) {
            return wrong(format!("is not for the address {address}, which this host has"));
        }
        // Whether key and certificate belong together is found out where they are used.
        self.server().err()
    }
}

/// Connects to another host's gateway with the keys of this host and ends the connection: whether each
/// of the two accepts the other's certificate. A gateway that does not answer is an error of
/// [`ErrorKind::TimedOut`].
pub fn greet(keys: &Path, gateway: SocketAddr, within: Duration) -> io::Result<()> {
    let config = Identity::load(keys).and_then(|identity| identity.client()).map_err(io::Error::other)?;
    let name = ServerName::IpAddress(gateway.ip().into());
    let mut tls = ClientConnection::new(config, name).map_err(io::Error::other)?;
    let mut socket = TcpStream::connect_timeout(&gateway, within)?;
    socket.set_read_timeout(Some(within))?;
    socket.set_write_timeout(Some(within))?;
    let silent = |error: io::Error| match error.kind() {
        ErrorKind::WouldBlock => io::Error::new(ErrorKind::TimedOut, format!("no answer within {within:?}")),
        _ => error,
    };
    while tls.is_handshaking() {
        tls.complete_io(&mut socket).map_err(silent)?;
    }
    while tls.wants_write() {
        tls.write_tls(&mut socket).map_err(silent)?;
    }
    // It looks at this host's certificate last: an alert follows, or a ticket for another connection.
    if tls.read_tls(&mut socket).map_err(silent)? == 0 {
        return Err(io::Error::new(ErrorKind::UnexpectedEof, "it has closed the connection"));
    }
    tls.process_new_packets().map_err(io::Error::other)?;
    Ok(())
}

/// Whether all users of a host may read a file.
pub fn is_open_to_all(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    const OTHERS_READ: u32 = 0o004;
    std::fs::metadata(file).is_ok_and(|meta| meta.permissions().mode() & OTHERS_READ != 0)
}
