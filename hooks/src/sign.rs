//! Signatures of webhooks: HMAC-SHA256 over time and body, so that a receiver can tell a delivery
//! from a forged and from a replayed one.
//!
//! `Obol-Signature: t=1795572847,v1=HEX`, where HEX is the HMAC of `1795572847.BODY` under the secret
//! of the hook. A receiver computes it again, compares, and refuses a time that is too old.

use ring::hmac;
use std::fmt::Write as _;

/// The header with the signature.
pub const SIGNATURE: &str = "Obol-Signature";

fn tag(secret: &[u8], seconds: u64, body: &[u8]) -> (hmac::Key, Vec<u8>) {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let mut signed = format!("{seconds}.").into_bytes();
    signed.extend_from_slice(body);
    (key, signed)
}

/// The value of the header, for a body that is sent at this time.
pub fn signature(secret: &[u8], seconds: u64, body: &[u8]) -> String {
    let (key, signed) = tag(secret, seconds, body);
    let mut value = format!("t={seconds},v1=");
    for byte in hmac::sign(&key, &signed).as_ref() {
        // Writing to a string cannot fail.
        let _ = write!(value, "{byte:02x}");
    }
    value
}

/// What a receiver does: whether a header is that of this body, signed at most `age` seconds before
/// `now`, or after it by no more.
pub fn verify(secret: &[u8], header: &str, body: &[u8], now: u64, age: u64) -> bool {
    let part = |name: &str| header.split(',').find_map(|part| part.trim().strip_prefix(name));
    let Some(seconds) = part("t=").and_then(|time| time.parse::<u64>().ok()) else { return false };
    let Some(given) = part("v1=").and_then(unhex) else { return false };
    let (key, signed) = tag(secret, seconds, body);
    now.abs_diff(seconds) <= age && hmac::verify(&key, &signed, &given).is_ok()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> =
        text.chars().map(|c| c.to_digit(16).and_then(|n| u8::try_from(n).ok())).collect::<Option<_>>()?;
    let pairs = digits.chunks_exact(2);
    pairs.remainder().is_empty().then(|| pairs.map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_is_hmac_sha256_of_time_and_body() {
        // printf '1700000000.{"a":1}' | openssl dgst -sha256 -hmac secret
        assert_eq!(
            signature(b"secret", 1_700_000_000, b"{\"a\":1}"),
            "t=1700000000,v1=49f24e537407743fa4a0242bb63b94b9a47ee99cbbe071ccd8a22550ae411686"
        );
    }

    #[test]
    fn forged_and_replayed_deliveries_are_told_apart() {
        let header = signature(b"secret", 1000, b"body");
        assert!(verify(b"secret", &header, b"body", 1200, 300));
        assert!(!verify(b"secret", &header, b"body", 1301, 300), "it is too old");
        assert!(!verify(b"secret", &header, b"other", 1000, 300));
        assert!(!verify(b"wrong", &header, b"body", 1000, 300));
        assert!(
            !verify(b"secret", &header.replace("t=1000", "t=1300"), b"body", 1300, 300),
            "its time is signed"
        );
        for wrong in ["", "t=1000", "v1=00", "t=x,v1=00", "t=1000,v1=0", "t=1000,v1=zz"] {
            assert!(!verify(b"secret", wrong, b"body", 1000, 300), "{wrong}");
        }
    }
}
