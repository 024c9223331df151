//! Numbers, names and addresses as bytes.

use crate::timing::{LEASE_MAX, LEASE_MIN};
use crate::view::{Kind, Reason};
use obol_fabric::{Address, Incarnation, Name, Nanos, Release, ViewId};

/// The limit of views, incarnations and clocks. They are counted from small numbers, so no real
/// cluster comes near it.
pub const NUMBER_MAX: u64 = 1 << 62;

/// Why a decoder rejects bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// They end too early.
    Short,
    /// A count or a number is out of bounds.
    OutOfBounds,
    /// An unknown kind of message, member or change.
    Unknown(u8),
    /// Bytes are left over.
    Trailing,
}

/// The longest reach of a view, and so the longest wait: a lease and a cache's lease, with
/// headroom.
const REACH_MAX: Nanos = LEASE_MAX.saturating_mul(4);

pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }
    pub(super) fn u8(&mut self, v: u8) -> &mut Self {
        self.bytes(&[v])
    }
    pub(super) fn u16(&mut self, v: u16) -> &mut Self {
        self.bytes(&v.to_le_bytes())
    }
    pub(super) fn u32(&mut self, v: u32) -> &mut Self {
        self.bytes(&v.to_le_bytes())
    }
    pub(super) fn u64(&mut self, v: u64) -> &mut Self {
        self.bytes(&v.to_le_bytes())
    }
    pub(super) fn flag(&mut self, v: bool) -> &mut Self {
        self.u8(u8::from(v))
    }
    pub(super) fn name(&mut self, name: Name) -> &mut Self {
        let text = name.as_str().as_bytes();
        self.u8(text.len() as u8).bytes(text)
    }
    /// Host and port only if present: most fabrics within a host have none.
    pub(super) fn address(&mut self, a: Address) -> &mut Self {
        let far = a.host != 0 || a.port != 0;
        self.flag(far);
        if far {
            self.bytes(&a.host.to_le_bytes()).u16(a.port);
        }
        self.u16(a.seat).u32(a.region).u32(a.generation)
    }
}

pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(DecodeError::Short)?;
        self.0 = rest;
        Ok(*head)
    }
    pub(super) fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(u8::from_le_bytes(self.array()?))
    }
    pub(super) fn u16(&mut self) -> Result<u16, DecodeError> {
        Ok(u16::from_le_bytes(self.array()?))
    }
    pub(super) fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array()?))
    }
    pub(super) fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.array()?))
    }
    /// A counter: limited, because other code adds small numbers to it without a check.
    pub(super) fn number(&mut self) -> Result<u64, DecodeError> {
        let number = self.u64()?;
        if number > NUMBER_MAX { Err(DecodeError::OutOfBounds) } else { Ok(number) }
    }
    pub(super) fn view(&mut self) -> Result<ViewId, DecodeError> {
        Ok(ViewId(self.number()?))
    }
    pub(super) fn incarnation(&mut self) -> Result<Incarnation, DecodeError> {
        Ok(Incarnation(self.number()?))
    }
    pub(super) fn reach(&mut self) -> Result<Nanos, DecodeError> {
        let span = Nanos(self.u64()?);
        if span > REACH_MAX { Err(DecodeError::OutOfBounds) } else { Ok(span) }
    }
    pub(super) fn count(&mut self, max: usize) -> Result<usize, DecodeError> {
        let n = usize::from(self.u16()?);
        if n > max { Err(DecodeError::OutOfBounds) } else { Ok(n) }
    }
    pub(super) fn name(&mut self) -> Result<Name, DecodeError> {
        let len = usize::from(self.u8()?);
        let text = self.0.get(..len).ok_or(DecodeError::Short)?;
        self.0 = &self.0[len..];
        core::str::from_utf8(text).ok().and_then(|t| Name::new(t).ok()).ok_or(DecodeError::OutOfBounds)
    }
    pub(super) fn address(&mut self) -> Result<Address, DecodeError> {
        let (host, port) = match self.u8()? {
            0 => (0, 0),
            1 => (u128::from_le_bytes(self.array()?), self.u16()?),
            other => return Err(DecodeError::Unknown(other)),
        };
        Ok(Address { host, port, seat: self.u16()?, region: self.u32()?, generation: self.u32()? })
    }
    pub(super) fn release(&mut self) -> Result<Release, DecodeError> {
        Ok(Release::of(self.u16()?))
    }
    pub(super) fn flag(&mut self) -> Result<bool, DecodeError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(DecodeError::Unknown(other)),
        }
    }
    pub(super) fn kind(&mut self) -> Result<Kind, DecodeError> {
        let number = self.u8()?;
        Kind::from_number(u32::from(number)).ok_or(DecodeError::Unknown(number))
    }
    pub(super) fn lease(&mut self) -> Result<Nanos, DecodeError> {
        let span = Nanos(self.u64()?);
        if (LEASE_MIN..=LEASE_MAX).contains(&span) { Ok(span) } else { Err(DecodeError::OutOfBounds) }
    }
    pub(super) fn reason(&mut self) -> Result<Reason, DecodeError> {
        let number = self.u8()?;
        Reason::from_repr(number).ok_or(DecodeError::Unknown(number))
    }
    pub(super) fn end(&self) -> Result<(), DecodeError> {
        if self.0.is_empty() { Ok(()) } else { Err(DecodeError::Trailing) }
    }
    pub(super) fn rest(self) -> &'a [u8] {
        self.0
    }
}
