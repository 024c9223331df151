//! Recordings in which hosts were silenced on purpose. The silences are taken out and the gaps closed,
//! so that what remains is the network's own behaviour, and each fault is a moment at which the host
//! fails.

use super::jitter::{Delays, RecordingError, without_drift};
use obol_observe::network_recording::{Stream, Times};

/// A time during which a host was silent on purpose, by the clock of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The number of the host.
    pub host: u8,
    /// When the fault was injected.
    pub from: u64,
    /// When it was undone.
    pub until: u64,
}

/// A fault as a moment among delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// When the sending host failed, in nanoseconds from the first frame.
    pub at: u64,
    /// How long the fault lasted.
    pub lasts: u64,
}

/// The delays of one direction without the silences that were caused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithOutages {
    /// The delays, as if nothing had been injected.
    pub delays: Delays,
    /// The faults of the sending host.
    pub outages: Vec<Outage>,
}

/// One stream for each direction, in which a frame arrives by whichever path delivers it first.
pub fn first_arrivals(streams: &[Stream]) -> Vec<Stream> {
    let mut merged: Vec<Stream> = Vec::new();
    for stream in streams {
        let same = |of: &&mut Stream| (of.from, of.to) == (stream.from, stream.to);
        let Some(one) = merged.iter_mut().find(same) else {
            merged.push(stream.clone());
            continue;
        };
        // All paths of a direction have the same frames.
        for ((_, first), (_, other)) in one.frames.iter_mut().zip(&stream.frames) {
            *first = match (*first, *other) {
                (Some(first), Some(other)) => Some(first.min(other)),
                (first, other) => first.or(other),
            };
        }
    }
    merged
}

/// Takes the silences out of a stream that faults have caused: from each fault of either end until a
/// frame arrives after its end, which may take longer than the fault.
///
/// # Errors
///
/// If too few frames remain.
pub fn without_outages(stream: &Stream, faults: &[Fault]) -> Result<WithOutages, RecordingError> {
    let name = stream.to_string();
    let apart = |(sent, received): &Times| Some(i128::from((*received)?) - i128::from(*sent));
    // By how much the receiver's clock is ahead, and the shortest delay, which counts as none: so times
    // from a fault to a suspicion are those of the receiver's clock, however different the other is.
    let ahead = stream.frames.iter().filter_map(apart).min().unwrap_or(0);
    let by_sender = |at: u64| u64::try_from(i128::from(at) - ahead).unwrap_or(0);
    let mut faults: Vec<&Fault> =
        faults.iter().filter(|fault| [stream.from, stream.to].contains(&fault.host)).collect();
    faults.sort_unstable_by_key(|fault| fault.from);
    let mut faults = faults.into_iter().peekable();
    let mut silent_until: Option<u64> = None;
    let (mut kept, mut outages): (Vec<Times>, Vec<Outage>) = (Vec::new(), Vec::new());
    let (mut last, mut shift) = (None, 0);
    for &(sent, received) in &stream.frames {
        while let Some(fault) = faults.next_if(|fault| by_sender(fault.from) < sent) {
            silent_until = silent_until.max(Some(fault.until));
            if let Some(first) = kept.first().filter(|_| fault.host == stream.from) {
                let at = by_sender(fault.from).saturating_sub(shift + first.0);
                outages.push(Outage { at, lasts: fault.until.saturating_sub(fault.from) });
            }
        }
        if let Some(until) = silent_until {
            if received.is_none_or(|at| at < until) {
                continue;
            }
            silent_until = None;
            if let Some(last) = last {
                shift += (sent - last) - stream.period.min(sent - last);
            }
        }
        last = Some(sent);
        kept.push((sent - shift, received.map(|at| by_sender(at).saturating_sub(shift))));
    }
    let delays = Delays::from_times(&without_drift(&kept), &name)?;
    Ok(WithOutages { delays: Delays { source: name, ..delays }, outages })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: u64 = 1_000_000;
    const DELAY: u64 = 20_000;
    /// The receiver's clock.
    const AHEAD: u64 = 7_000_000_000;

    /// Pulses of host 2 to host 1. Those between two numbers are lost.
    fn stream(path: u8, count: u64, lost: std::ops::Range<u64>) -> Stream {
        let frame = |n: u64| {
            let sent = 5 * PERIOD + n * PERIOD;
            (sent, (!lost.contains(&n)).then_some(sent + AHEAD + DELAY))
        };
        let frames = (0..count).map(frame).collect();
        Stream { from: 2, to: 1, path, address: [10, 1, 0, 2].into(), period: PERIOD, frames }
    }

    /// A fault just after frame `n` was sent.
    const fn fault(host: u8, n: u64, lasts: u64) -> Fault {
        let from = 5 * PERIOD + n * PERIOD + AHEAD + DELAY + PERIOD / 4;
        Fault { host, from, until: from + lasts * PERIOD }
    }

    #[test]
    fn a_silence_is_taken_out_until_the_host_is_heard_again() {
        // The fault lasts 300 periods, and nothing arrives for 100 more.
        let found = without_outages(&stream(0, 3000, 1001..1401), &[fault(2, 1000, 300)]).expect("enough");
        assert_eq!(found.delays.frames.len(), 2600);
        assert!(found.delays.frames.iter().all(|frame| frame.delay.is_some()));
        assert!(found.delays.frames.windows(2).all(|pair| pair[1].sent - pair[0].sent == PERIOD));
        assert_eq!(found.outages, [Outage { at: 1000 * PERIOD + PERIOD / 4, lasts: 300 * PERIOD }]);
    }

    #[test]
    fn several_faults_are_moments_of_the_closed_time_and_those_of_the_receiver_are_none() {
        let mut of = stream(0, 6000, 1001..1201);
        for n in (2001..2201).chain(4001..4201) {
            of.frames[n].1 = None;
        }
        let faults = [fault(1, 2000, 200), fault(2, 4000, 200), fault(2, 1000, 200), fault(3, 3000, 200)];
        let found = without_outages(&of, &faults).expect("enough");
        assert_eq!(found.delays.frames.len(), 5400);
        let at: Vec<u64> = found.outages.iter().map(|outage| outage.at / PERIOD).collect();
        assert_eq!(at, [1000, 3600]);
    }

    #[test]
    fn what_is_lost_without_a_fault_stays() {
        let found = without_outages(&stream(0, 3000, 1001..1011), &[]).expect("enough");
        assert_eq!(found.delays.frames.iter().filter(|frame| frame.delay.is_none()).count(), 10);
        assert!(found.outages.is_empty());
        let few = without_outages(&stream(0, 1500, 1..1401), &[fault(2, 0, 10)]).expect_err("too few");
        assert!(few.to_string().contains("100 frames that arrived are too few"), "{few}");
    }

    #[test]
    fn the_first_path_that_delivers_counts() {
        let (slow, mut other) = (stream(0, 2000, 10..20), stream(1, 2000, 30..40));
        other.frames[5].1 = Some(1);
        let merged = first_arrivals(&[slow, other]);
        assert_eq!(merged.len(), 1);
        assert_eq!(merged[0].frames[5].1, Some(1));
        assert!(merged[0].frames.iter().all(|(_, received)| received.is_some()));
    }
}
