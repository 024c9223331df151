//! The datagram that answers a request.

/// Begins every answer; no message of the membership protocol begins so.
pub(crate) const TAG: u8 = 0xcb;
/// Bytes before the value: tag, status, 6 spare, client, request.
const HEAD_BYTES: usize = 24;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Status {
    /// A GET found the key, or a PUT is done.
    Done = 0,
    /// A GET did not find the key.
    Missing = 1,
    /// The cache has no room for another key.
    Full = 2,
}

/// An answer to a client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Answer<'a> {
    /// The client that asked.
    pub(crate) client: u64,
    /// The number of its request.
    pub(crate) request: u64,
    /// How the request ended.
    pub status: Status,
    /// What a GET found.
    pub value: &'a [u8],
}

impl<'a> Answer<'a> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD_BYTES + self.value.len());
        out.extend_from_slice(&[TAG, self.status as u8, 0, 0, 0, 0, 0, 0]);
        out.extend_from_slice(&self.client.to_le_bytes());
        out.extend_from_slice(&self.request.to_le_bytes());
        out.extend_from_slice(self.value);
        out
    }

    /// `None` for anything that no server sends.
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (head, value) = bytes.split_at_checked(HEAD_BYTES)?;
        let status = match head {
            [TAG, 0, ..] => Status::Done,
            [TAG, 1, ..] => Status::Missing,
            [TAG, 2, ..] => Status::Full,
            _ => return None,
        };
        let word = |at: usize| Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?));
        Some(Self { client: word(8)?, request: word(16)?, status, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_comes_back_and_nothing_else_does() {
        let answer = Answer { client: 5, request: 9, status: Status::Missing, value: b"abc" };
        let bytes = answer.encode();
        assert_eq!(Answer::decode(&bytes), Some(answer));
        assert_eq!(Answer::decode(&bytes[..HEAD_BYTES - 1]), None);
        assert_eq!(Answer::decode(&[TAG, 3].into_iter().chain([0; 30]).collect::<Vec<u8>>()), None);
        assert_eq!(Answer::decode(&[1; 64]), None);
    }
}
