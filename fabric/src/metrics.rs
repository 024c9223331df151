//! Counters and histograms that a region exposes, and their layout. Counters only grow and have one
//! writer each; a reader detects a restart by the region's incarnation.
//!
//! A region has numbered slots. [`slots!`](crate::slots) names them: the fabric's own are
//! [`FabricCounter`], all others are the protocol's.

use crate::atomic::{AtomicU64, Ordering};
use crate::memory;
use crate::types::Nanos;

/// Counters of a seat; more than are named, so that new ones keep the layout.
pub const COUNTER_WORDS: usize = 64;

/// Histograms of a region.
pub const HISTOGRAMS: usize = 4;

/// Declares the type of a slot's number, with its limit.
macro_rules! slot_number {
    ($(#[$doc:meta])* $name:ident < $limit:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u16);

        impl $name {
            /// The slot of this number.
            ///
            /// # Panics
            /// If there is none. Named slots are checked at compile time.
            pub const fn new(number: u16) -> Self {
                assert!((number as usize) < $limit, "no such slot");
                Self(number)
            }

            /// Its number.
            pub const fn number(self) -> u16 {
                self.0
            }
        }
    };
}
pub(crate) use slot_number;

slot_number! {
    /// The index of a counter among those of its seat.
    CounterSlot < COUNTER_WORDS
}

slot_number! {
    /// The index of a histogram in a region.
    HistogramSlot < HISTOGRAMS
}

impl HistogramSlot {
    pub const ALL: [Self; HISTOGRAMS] = [Self(0), Self(1), Self(2), Self(3)];
}

/// Declares an enum of slot names: `Variant = "name"`, counted from 0, or `Variant(slot) = "name"`.
/// It converts into its slot type and back. The comments of the variants are also the help that
/// monitoring systems get.
#[macro_export]
macro_rules! slots {
    ($(#[$doc:meta])* $name:ident: $slot:ty {
        $($(#[doc = $variant_doc:literal])* $variant:ident $(($place:expr))? = $text:expr,)+
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        pub enum $name { $($(#[doc = $variant_doc])* $variant $(= $place)?,)+ }

        impl $name {
            /// All of them, in the order of their slots.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name for scripts.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            /// What it is, in a sentence or more: its documentation.
            pub const fn help(self) -> &'static str {
                match self { $(Self::$variant => concat!($($variant_doc),*).trim_ascii(),)+ }
            }
        }

        impl From<$name> for $slot {
            fn from(name: $name) -> Self {
                Self::new(name as u16)
            }
        }

        const _: () = {
            let mut n = 0;
            while n < $name::ALL.len() {
                let _ = <$slot>::new($name::ALL[n] as u16);
                n += 1;
            }
        };

        impl TryFrom<$slot> for $name {
            type Error = $slot;
            /// The error: a slot without a name here.
            fn try_from(slot: $slot) -> Result<Self, $slot> {
                Self::ALL.iter().copied().find(|name| *name as u16 == slot.number()).ok_or(slot)
            }
        }
    };
}

slots! {
    /// The fabric's own counters of each process.
    FabricCounter: CounterSlot {
        /// Turns of the process's event loop.
        Loops = "loops",
        /// Datagrams received.
        DatagramsReceived(26) = "datagrams_received",
        /// Datagrams that this process could not deliver because the receiver's lane was full.
        DatagramsLost(27) = "datagrams_lost",
        /// Invalid datagrams that were rejected.
        DatagramsRefused(28) = "datagrams_refused",
        /// Accepted notices of the kernel that a watched process is dying or dead.
        KernelNotices(38) = "kernel_notices",
        /// Rejected datagrams to the group of death notices: forged, or of another cluster.
        KernelNoticesRefused(39) = "kernel_notices_refused",
        /// Times that this process could not map a peer's region: it is out of descriptors or
        /// memory.
        MapFailures(44) = "map_failures",
        /// Attempts to connect over RDMA that ended without a valid certificate of the cluster's
        /// authority.
        Strangers(45) = "strangers",
        /// Processes that were not admitted over RDMA because their certificate, cluster or layout did not
        /// fit.
        ConnectionsRefused(46) = "connections_refused",
        /// Requests of connections over RDMA that showed no certificate before: without a ticket, or with
        /// one that is forged, used or too old.
        Unintroduced(47) = "connections_unintroduced",
        /// Sealed datagrams that could not be opened because this process has no connection with their
        /// sender.
        DatagramsUnknown(48) = "datagrams_unknown",
    }
}

/// Sub-buckets of an octave: values are exact within 1/16.
const SUB_BITS: u32 = 4;
/// Buckets of one histogram: all of `u64` nanoseconds.
pub const HISTOGRAM_WORDS: usize = (64 - SUB_BITS as usize + 1) << SUB_BITS;

/// The bucket of a value.
pub const fn bucket(value: u64) -> usize {
    if value < 1 << SUB_BITS {
        return value as usize;
    }
    let octave = 63 - value.leading_zeros();
    let sub = (value >> (octave - SUB_BITS)) & ((1 << SUB_BITS) - 1);
    (((octave - SUB_BITS + 1) as usize) << SUB_BITS) + sub as usize
}

/// The smallest value of a bucket.
pub const fn bucket_floor(bucket: usize) -> u64 {
    if bucket < 1 << SUB_BITS {
        return bucket as u64;
    }
    let octave = (bucket >> SUB_BITS) as u32 + SUB_BITS - 1;
    let sub = (bucket & ((1 << SUB_BITS) - 1)) as u64;
    ((1 << SUB_BITS) + sub) << (octave - SUB_BITS)
}

/// Adds to a word that only this process writes, without a locked instruction.
pub fn add(word: &AtomicU64, by: u64) {
    word.store(word.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

/// Adds a sample to the histogram whose first word is `words[0]`.
pub fn observe(words: &[AtomicU64], value: Nanos) {
    if let Some(word) = words.get(bucket(value.0)) {
        add(word, 1);
    }
}

/// Reads counters, or the buckets of a histogram.
pub fn snapshot(words: &[AtomicU64]) -> Vec<u64> {
    words.iter().map(memory::relaxed).collect()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_of_a_slot_is_its_help() {
        assert_eq!(FabricCounter::DatagramsReceived.help(), "Datagrams received.");
        let long =
            "Times that this process could not map a peer's region: it is out of descriptors or memory.";
        assert_eq!(FabricCounter::MapFailures.help(), long);
    }

    #[test]
    fn every_value_lies_in_its_bucket() {
        let mut values: Vec<u64> = (0..2000).collect();
        values.extend((0..64).flat_map(|b| [1u64 << b, (1 << b) + 1, (1u64 << b).wrapping_sub(1)]));
        values.push(u64::MAX);
        for v in values {
            let b = bucket(v);
            assert!(b < HISTOGRAM_WORDS);
            assert!(bucket_floor(b) <= v, "{v} in {b}");
            if b + 1 < HISTOGRAM_WORDS {
                assert!(v < bucket_floor(b + 1), "{v} in {b}");
            }
        }
    }
}
