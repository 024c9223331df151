//! The envelope of a value in a slot or a view area: length, view id, and a checksum, so that a
//! reader detects torn values.

use obol_fabric::ViewId;
use std::sync::Arc;

/// Bytes before the body: checksum, length of the body, view id.
pub const HEAD_BYTES: usize = 16;

/// Why bytes are not a sealed value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsealed {
    /// Shorter than its length field, or than the smallest value.
    Short,
    /// For another view than the requested one.
    OtherView(ViewId),
    /// The checksum does not match: torn, or never written.
    Torn,
}

/// The size of the envelope of a body, in whole words: it is written and read by words.
#[must_use]
pub const fn sealed_len(body: usize) -> usize {
    (HEAD_BYTES + body).next_multiple_of(8)
}

/// Puts a body into an envelope.
#[must_use]
pub fn seal(id: ViewId, body: &[u8]) -> Arc<[u8]> {
    let mut bytes = vec![0; sealed_len(body.len())];
    bytes[4..8].copy_from_slice(&(body.len() as u32).to_le_bytes());
    bytes[8..16].copy_from_slice(&id.0.to_le_bytes());
    bytes[HEAD_BYTES..HEAD_BYTES + body.len()].copy_from_slice(body);
    let sum = crc32fast::hash(&bytes[4..]);
    bytes[..4].copy_from_slice(&sum.to_le_bytes());
    bytes.into()
}

/// The checksum of an envelope, as stored.
#[must_use]
pub fn sum(sealed: &[u8]) -> &[u8] {
    sealed.get(..4).unwrap_or_default()
}

/// The view that these bytes claim to be for, and the envelope without trailing bytes.
pub fn open(bytes: &[u8]) -> Result<(ViewId, &[u8]), Unsealed> {
    let (head, _) = bytes.split_first_chunk::<HEAD_BYTES>().ok_or(Unsealed::Short)?;
    let [s0, s1, s2, s3, l0, l1, l2, l3, id @ ..] = *head;
    let len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    if len > bytes.len() {
        return Err(Unsealed::Short);
    }
    let whole = bytes.get(..sealed_len(len)).ok_or(Unsealed::Short)?;
    if crc32fast::hash(&whole[4..]) != u32::from_le_bytes([s0, s1, s2, s3]) {
        return Err(Unsealed::Torn);
    }
    Ok((ViewId(u64::from_le_bytes(id)), whole))
}

/// The envelope, if it is whole and for view `id`.
pub fn open_for(id: ViewId, bytes: &[u8]) -> Result<&[u8], Unsealed> {
    match open(bytes)? {
        (found, whole) if found == id => Ok(whole),
        (found, _) => Err(Unsealed::OtherView(found)),
    }
}

/// The body of an envelope that [`open`] accepted.
#[must_use]
pub fn body(whole: &[u8]) -> &[u8] {
    let len = whole.get(4..8).and_then(|len| len.try_into().ok()).map_or(0, u32::from_le_bytes);
    whole.get(HEAD_BYTES..).and_then(|rest| rest.get(..len as usize)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_value_is_detected() {
        let old = seal(ViewId(3), b"the old members");
        let new = seal(ViewId(4), b"the new members");
        assert_eq!(open_for(ViewId(3), &old).map(body), Ok(&b"the old members"[..]));
        assert_eq!(open_for(ViewId(4), &old), Err(Unsealed::OtherView(ViewId(3))));
        for cut in 1..new.len() {
            let mixed: Vec<u8> = new[..cut].iter().chain(&old[cut..]).copied().collect();
            if mixed[..] != old[..] && mixed[..] != new[..] {
                assert_eq!(open(&mixed), Err(Unsealed::Torn), "cut at {cut}");
            }
        }
        assert_eq!(open(&new[..20]), Err(Unsealed::Short));
        assert_eq!(open(&[0; 64]), Err(Unsealed::Torn));
    }
}
