//! How the vocabulary of the lower layers looks in a sample's JSON: numbers as numbers, names as
//! words. Used by serde's `with`; the layers themselves need not know of it.

use obol_fabric::{Incarnation, Instant, Name, Nanos, ViewId};
use obol_membership::metrics::Histogram;
use obol_membership::recorder::Kind as Event;
use obol_membership::{Kind, Level};
use obol_observe::histograms::Counts;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;

/// A number with a unit.
pub(crate) trait Plain: Copy {
    fn number(self) -> u64;
    fn of(number: u64) -> Self;
}

macro_rules! plain {
    ($($name:ident)*) => {$(
        impl Plain for $name {
            fn number(self) -> u64 { self.0 }
            fn of(number: u64) -> Self { Self(number) }
        }
    )*};
}
plain!(Nanos Instant ViewId Incarnation);

/// A value that has a word for a name.
pub(crate) trait Named: Copy {
    fn word(&self) -> &str;
    fn of(word: &str) -> Option<Self>;
}

impl Named for Name {
    fn word(&self) -> &str {
        self.as_str()
    }
    fn of(word: &str) -> Option<Self> {
        Self::new(word).ok()
    }
}

macro_rules! named {
    ($($name:ident)*) => {$(
        impl Named for $name {
            fn word(&self) -> &str { self.name() }
            fn of(word: &str) -> Option<Self> {
                $name::ALL.iter().copied().find(|known| known.name() == word)
            }
        }
    )*};
}
named!(Kind Level Event Histogram);

/// `with = "plain::counts"`: a distribution, as pairs of bucket and number.
pub(crate) mod counts {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(value: &Counts, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(value.pairs())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Counts, D::Error> {
        Vec::<(u16, u64)>::deserialize(from).map(Counts::from_pairs)
    }
}

/// `with = "plain::number"`: a nanosecond count, an id.
pub(crate) mod number {
    use super::*;

    pub(crate) fn serialize<T: Plain, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        value.number().serialize(to)
    }

    pub(crate) fn deserialize<'de, T: Plain, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
        u64::deserialize(from).map(T::of)
    }
}

/// `with = "plain::maybe"`: the same, or null.
pub(crate) mod maybe {
    use super::*;

    pub(crate) fn serialize<T: Plain, S: Serializer>(value: &Option<T>, to: S) -> Result<S::Ok, S::Error> {
        value.map(T::number).serialize(to)
    }

    pub(crate) fn deserialize<'de, T: Plain, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
        Ok(Option::<u64>::deserialize(from)?.map(T::of))
    }
}

/// `with = "plain::word"`: a kind, a level, the name of a process.
pub(crate) mod word {
    use super::*;

    pub(crate) fn serialize<T: Named, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        value.word().serialize(to)
    }

    pub(crate) fn deserialize<'de, T: Named, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
        let word = Cow::<'de, str>::deserialize(from)?;
        T::of(&word).ok_or_else(|| D::Error::custom(format_args!("{word:?} is not known to this version")))
    }
}

/// `with = "plain::maybe_word"`: the same, or null.
pub(crate) mod maybe_word {
    use super::*;

    pub(crate) fn serialize<T: Named, S: Serializer>(value: &Option<T>, to: S) -> Result<S::Ok, S::Error> {
        value.as_ref().map(T::word).serialize(to)
    }

    pub(crate) fn deserialize<'de, T: Named, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
        let Some(word) = Option::<Cow<'de, str>>::deserialize(from)? else { return Ok(None) };
        T::of(&word)
            .map(Some)
            .ok_or_else(|| D::Error::custom(format_args!("{word:?} is not known to this version")))
    }
}
