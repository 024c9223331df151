//! The frame of a value in a slot or a view area: length, view id, and a checksum, so that a reader
//! detects torn values.

use obol_fabric::ViewId;
use std::sync::Arc;

/// Bytes before the body: checksum, length of the body, view id.
pub const HEAD_BYTES: usize = 16;

/// Why bytes are not a whole frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// Shorter than its length field, or than the smallest value.
    Short,
    /// For another view than the requested one.
    OtherView(ViewId),
    /// The checksum does not match: torn, or never written.
    Torn,
}

/// The size of the frame of a body, in whole words: it is written and read by words.
pub const fn frame_len(body: usize) -> usize {
    (HEAD_BYTES + body).next_multiple_of(8)
}

pub fn encode_frame(id: ViewId, body: &[u8]) -> Arc<[u8]> {
    let mut bytes = vec![0; frame_len(body.len())];
    bytes[4..8].copy_from_slice(&(body.len() as u32).to_le_bytes());
    bytes[8..16].copy_from_slice(&id.0.to_le_bytes());
    bytes[HEAD_BYTES..HEAD_BYTES + body.len()].copy_from_slice(body);
    let sum = crc32fast::hash(&bytes[4..]);
    bytes[..4].copy_from_slice(&sum.to_le_bytes());
    bytes.into()
}

/// The checksum of a frame, as stored.
pub fn sum(frame: &[u8]) -> &[u8] {
    frame.get(..4).unwrap_or_default()
}

/// The view that these bytes claim to be for, and the frame without trailing bytes.
pub fn decode_frame(bytes: &[u8]) -> Result<(ViewId, &[u8]), FrameError> {
    let (head, _) = bytes.split_first_chunk::<HEAD_BYTES>().ok_or(FrameError::Short)?;
    let [s0, s1, s2, s3, l0, l1, l2, l3, id @ ..] = *head;
    let len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    if len > bytes.len() {
        return Err(FrameError::Short);
    }
    let whole = bytes.get(..frame_len(len)).ok_or(FrameError::Short)?;
    if crc32fast::hash(&whole[4..]) != u32::from_le_bytes([s0, s1, s2, s3]) {
        return Err(FrameError::Torn);
    }
    Ok((ViewId(u64::from_le_bytes(id)), whole))
}

/// The frame, if it is whole and for view `id`.
pub fn decode_frame_for(id: ViewId, bytes: &[u8]) -> Result<&[u8], FrameError> {
    match decode_frame(bytes)? {
        (found, whole) if found == id => Ok(whole),
        (found, _) => Err(FrameError::OtherView(found)),
    }
}

/// The body of a frame that [`decode_frame`] accepted.
pub fn body(whole: &[u8]) -> &[u8] {
    let len = whole.get(4..8).and_then(|len| len.try_into().ok()).map_or(0, u32::from_le_bytes);
    whole.get(HEAD_BYTES..).and_then(|rest| rest.get(..len as usize)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_value_is_detected() {
        let old = encode_frame(ViewId(3), b"the old members");
        let new = encode_frame(ViewId(4), b"the new members");
        assert_eq!(decode_frame_for(ViewId(3), &old).map(body), Ok(&b"the old members"[..]));
        assert_eq!(decode_frame_for(ViewId(4), &old), Err(FrameError::OtherView(ViewId(3))));
        for cut in 1..new.len() {
            let mixed: Vec<u8> = new[..cut].iter().chain(&old[cut..]).copied().collect();
            if mixed[..] != old[..] && mixed[..] != new[..] {
                assert_eq!(decode_frame(&mixed), Err(FrameError::Torn), "cut at {cut}");
            }
        }
        assert_eq!(decode_frame(&new[..20]), Err(FrameError::Short));
        assert_eq!(decode_frame(&[0; 64]), Err(FrameError::Torn));
    }
}
