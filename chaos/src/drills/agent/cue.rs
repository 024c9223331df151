//! The cue: one multicast datagram that triggers armed fault agents. It contains only a single-use
//! token, agreed on over an authenticated channel, so guesses and replays have no effect.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};

/// Prefix of every cue.
const MAGIC: [u8; 8] = *b"OBOLCUE1";
const TOKEN_BYTES: usize = 32;
/// Bytes of a cue: magic, token.
pub const CUE_BYTES: usize = MAGIC.len() + TOKEN_BYTES;

/// The region kind of runners and fault agents, different from all members'.
pub const REGION_KIND: u32 = 0x0D11;

/// Arms a fault agent for one cue.
#[derive(Clone, Copy)]
pub struct Token([u8; TOKEN_BYTES]);

impl Token {
    /// A random token.
    pub fn draw() -> io::Result<Self> {
        let mut bytes = [0; TOKEN_BYTES];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// Encoding on the channel: 64 hexadecimal digits.
    pub fn to_hex(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Decodes [`Token::to_hex`].
    pub fn from_hex(text: &str) -> Option<Self> {
        if text.len() != 2 * TOKEN_BYTES || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        let mut bytes = [0; TOKEN_BYTES];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
        }
        Some(Self(bytes))
    }

    /// The datagram.
    pub fn cue(self) -> [u8; CUE_BYTES] {
        let mut cue = [0; CUE_BYTES];
        cue[..MAGIC.len()].copy_from_slice(&MAGIC);
        cue[MAGIC.len()..].copy_from_slice(&self.0);
        cue
    }

    /// Whether a datagram is this token's cue. Takes constant time for wrong ones.
    pub fn is_cue(&self, datagram: &[u8]) -> bool {
        let cue = self.cue();
        datagram.len() == cue.len()
            && datagram.iter().zip(cue).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
    }
}

/// Never shown.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_cue_is_its_cue() {
        let [one, other] = [(), ()].map(|()| Token::draw().expect("random bytes"));
        assert!(one.is_cue(&one.cue()));
        assert!(!one.is_cue(&other.cue()));
        assert!(!one.is_cue(&one.cue()[..CUE_BYTES - 1]));
        assert!(!one.is_cue(&[]));
        for at in 0..CUE_BYTES {
            let mut forged = one.cue();
            forged[at] ^= 1;
            assert!(!one.is_cue(&forged), "byte {at}");
        }
        assert!(Token::from_hex(&one.to_hex()).is_some_and(|same| same.is_cue(&one.cue())));
        assert!(Token::from_hex(&one.to_hex()[1..]).is_none());
        assert_eq!(format!("{one:?}"), "Token(..)");
    }
}
