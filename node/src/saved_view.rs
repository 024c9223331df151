//! A view in a file that may outlive its cluster. The file names the cluster, because view numbers
//! are meaningless in another one.

use crate::network::print_id;
use obol_fabric::ViewId;
use obol_membership::frame;
use std::sync::Arc;

/// The body of such a file starts with this, followed by the identity and the framed view.
const MAGIC: &[u8; 8] = b"obolview";

/// Why a file holds no usable view.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SavedViewError {
    /// It is not such a file, or is damaged.
    #[error(
        "holds no view, or is damaged; `obol coordinator run --save` and `obol watch --save` write such files"
    )]
    Damaged,
    /// It holds a view of another cluster, with this identity.
    #[error("holds a view of another cluster (identity {}), whose views mean nothing here", print_id(*.0))]
    OtherCluster(u64),
}

/// Encodes such a file. `cluster` is the identity of the cluster, `view` its framed view.
pub fn encode(cluster: u64, id: ViewId, view: &[u8]) -> Arc<[u8]> {
    let mut body = MAGIC.to_vec();
    body.extend_from_slice(&cluster.to_le_bytes());
    body.extend_from_slice(view);
    // Sealed again, so that the identity is covered by a checksum.
    frame::encode_frame(id, &body)
}

/// The cluster's identity and the framed view in such a file.
pub fn open(file: &[u8]) -> Option<(u64, &[u8])> {
    let (_, whole) = frame::decode_frame(file).ok()?;
    let (id, view) = frame::body(whole).strip_prefix(MAGIC)?.split_first_chunk()?;
    Some((u64::from_le_bytes(*id), view))
}

/// The framed view in such a file, if it is of this cluster.
pub fn decode(cluster: u64, file: &[u8]) -> Result<&[u8], SavedViewError> {
    match open(file).ok_or(SavedViewError::Damaged)? {
        (id, view) if id == cluster => Ok(view),
        (id, _) => Err(SavedViewError::OtherCluster(id)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_good_for_its_own_cluster_only() {
        let view = frame::encode_frame(ViewId(7), b"members");
        let file = encode(3, ViewId(7), &view);
        assert_eq!(decode(3, &file), Ok(&view[..]));
        assert_eq!(decode(4, &file), Err(SavedViewError::OtherCluster(3)));
        // A view alone, as written by earlier versions, does not name its cluster.
        assert_eq!(decode(3, &view), Err(SavedViewError::Damaged));
        for cut in 0..file.len() {
            assert_eq!(decode(3, &file[..cut]), Err(SavedViewError::Damaged), "{cut} bytes");
        }
    }

    #[test]
    fn damage_anywhere_is_seen() {
        let file = encode(3, ViewId(7), &frame::encode_frame(ViewId(7), b"members"));
        for at in 0..file.len() {
            let mut damaged = file.to_vec();
            damaged[at] ^= 1;
            assert_eq!(decode(3, &damaged), Err(SavedViewError::Damaged), "byte {at}");
        }
    }
}
