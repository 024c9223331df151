//! Recordings of a network: when each frame was sent and received, by path and direction. `obol tune
//! --network --record` writes them, and `obol sim detectors --recording` reads them. As text:
//!
//! ```text
//! obol-network 1
//! stream from=2 to=1 path=0 address=10.1.0.2 period=1000000
//! 81000000 81021000
//! 82000000 -
//! ```
//!
//! Times are nanoseconds: of the sending host's clock, and of the receiving one's, `-` if the frame was
//! lost. Frames are in the order in which they were sent. Lines that begin with # are comments.

use obol_fabric_ip::PulseFrame;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::io;
use std::net::IpAddr;

/// The first word of a recording.
pub const MAGIC: &str = "obol-network";
/// The version that is written, and the only one that is read.
pub const VERSION: u32 = 1;
/// The size limit of a recording.
pub const BYTES_MAX: u64 = 512 << 20;
/// Directions times paths that a recording may have: those of 32 hosts with four paths.
pub const STREAMS_MAX: usize = 32 * 31 * 4;
/// How much later than the newest frame one is still taken; see `obol_fabric_ip::pulse`.
const LATE_MAX: u64 = 64;
/// Lost frames in a row; after more of them the sender was away, and its later life is recorded.
const LOST_MAX: u64 = 100_000;

/// A frame: when it was sent and received.
pub type Times = (u64, Option<u64>);

/// The frames of one path in one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// The sending host.
    pub from: u8,
    /// The receiving host.
    pub to: u8,
    pub path: u8,
    /// The sending host's address on it.
    pub address: IpAddr,
    /// Between two pulses, in nanoseconds.
    pub period: u64,
    /// In the order in which they were sent.
    pub frames: Vec<Times>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkRecording {
    pub streams: Vec<Stream>,
}

/// Why a text is not a recording.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {fault}")]
pub struct Fault {
    /// From 1.
    pub line: usize,
    /// From 1.
    pub column: usize,
    /// What is wrong.
    pub fault: String,
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "from host {} to host {} by {}", self.from, self.to, self.address)
    }
}

/// Whether a text claims to be a recording.
pub fn is_recording(text: &str) -> bool {
    text.starts_with(MAGIC)
}

/// When each frame of a line was sent and received; the line is `sent received`, or `sent -`. The fault
/// is a column and a text.
pub fn times(line: &str) -> Result<Times, (usize, String)> {
    const WANTED: &str =
        "a line must be two numbers of nanoseconds, sent and received, or sent and - for a lost frame";
    let (sent, received) = line.split_once([' ', ',', '\t']).ok_or((1, WANTED.to_owned()))?;
    let second = line.chars().count() - received.trim_start().chars().count() + 1;
    let sent = sent.trim().parse().map_err(|_| (1, WANTED.to_owned()))?;
    match received.trim() {
        "-" => Ok((sent, None)),
        number => Ok((sent, Some(number.parse().map_err(|_| (second, WANTED.to_owned()))?))),
    }
}

fn header(line: &str) -> Result<Stream, (usize, String)> {
    const WANTED: &str = "a stream is from=HOST to=HOST path=N address=IP period=NANOSECONDS, in this order";
    let mut column = 1;
    let mut words = line.split(' ').map(|word| {
        let at = column;
        column += word.chars().count() + 1;
        (at, word)
    });
    let mut next = |key: &str| {
        let (at, word) = words.next().ok_or((line.chars().count() + 1, WANTED.to_owned()))?;
        let value = word.strip_prefix(key).ok_or((at, WANTED.to_owned()))?;
        Ok::<_, (usize, String)>((at + key.len(), value))
    };
    next("stream")?;
    let number = |(at, value): (usize, &str)| value.parse().map_err(|_| (at, WANTED.to_owned()));
    let (from, to, path) = (number(next("from=")?)?, number(next("to=")?)?, number(next("path=")?)?);
    let (at, address) = next("address=")?;
    let address = address.parse().map_err(|_| (at, WANTED.to_owned()))?;
    let (at, period) = next("period=")?;
    let period = period.parse().ok().filter(|period| *period > 0).ok_or((at, WANTED.to_owned()))?;
    match words.next() {
        Some((at, _)) => Err((at, WANTED.to_owned())),
        None => Ok(Stream { from, to, path, address, period, frames: Vec::new() }),
    }
}

impl NetworkRecording {
    /// Reads a recording.
    ///
    /// # Errors
    ///
    /// The first fault, with its place.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        let mut lines = text.lines().enumerate();
        let place = |line: usize, (column, fault): (usize, String)| Fault { line: line + 1, column, fault };
        let first = lines.next().map(|(_, line)| line).unwrap_or_default();
        let version = first.strip_prefix(MAGIC).map(str::trim);
        match version.map(str::parse::<u32>) {
            Some(Ok(VERSION)) => {}
            Some(Ok(other)) => {
                let fault =
                    format!("the recording has version {other}; this release reads version {VERSION}");
                return Err(place(0, (MAGIC.len() + 2, fault)));
            }
            _ => return Err(place(0, (1, format!("a recording begins with `{MAGIC} {VERSION}`")))),
        }
        let mut recording = Self::default();
        for (number, line) in lines {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            if line.starts_with("stream") {
                if recording.streams.len() == STREAMS_MAX {
                    return Err(place(number, (1, format!("there are more than {STREAMS_MAX} streams"))));
                }
                recording.streams.push(header(line).map_err(|fault| place(number, fault))?);
                continue;
            }
            let Some(stream) = recording.streams.last_mut() else {
                return Err(place(number, (1, "a frame before the first stream".to_owned())));
            };
            let (sent, received) = times(line).map_err(|fault| place(number, fault))?;
            if stream.frames.last().is_some_and(|(before, _)| *before >= sent) {
                let fault = "frames must be in the order in which they were sent".to_owned();
                return Err(place(number, (1, fault)));
            }
            stream.frames.push((sent, received));
        }
        Ok(recording)
    }

    /// Writes the recording.
    ///
    /// # Errors
    ///
    /// If the writer fails.
    pub fn write(&self, to: &mut impl io::Write) -> io::Result<()> {
        writeln!(to, "{MAGIC} {VERSION}")?;
        let mut text = String::new();
        for Stream { from, to: host, path, address, period, frames } in &self.streams {
            writeln!(to, "stream from={from} to={host} path={path} address={address} period={period}")?;
            for (sent, received) in frames {
                text.clear();
                // Writing to a string does not fail.
                let _ = match received {
                    Some(received) => writeln!(text, "{sent} {received}"),
                    None => writeln!(text, "{sent} -"),
                };
                to.write_all(text.as_bytes())?;
            }
        }
        Ok(())
    }
}

/// Where frames come from, and how often.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// The sending host.
    pub from: u8,
    /// Its addresses, by path.
    pub addresses: &'a [IpAddr],
    /// Between two frames, in nanoseconds.
    pub period: u64,
}

/// The streams of frames that have arrived at host `to` from another one. A number that has not arrived
/// by a path is a lost frame of that path; when it was sent is known from another path, or lies between
/// its neighbours. Only the last life of the sender counts.
pub fn streams(origin: Origin<'_>, to: u8, arrived: &[PulseFrame]) -> Vec<Stream> {
    let Origin { from, addresses, period } = origin;
    let last_life = arrived.windows(2).rposition(|pair| match pair {
        [one, next] => {
            next.sequence.saturating_add(LATE_MAX) < one.sequence
                || next.sequence.saturating_sub(one.sequence) > LOST_MAX
        }
        _ => false,
    });
    let arrived = arrived.get(last_life.map_or(0, |at| at + 1)..).unwrap_or_default();
    let sent: BTreeMap<u64, u64> = arrived.iter().map(|frame| (frame.sequence, frame.sent)).collect();
    let (Some((first, _)), Some((last, _))) = (sent.first_key_value(), sent.last_key_value()) else {
        return Vec::new();
    };
    let paths = addresses.iter().enumerate().map(|(path, address)| {
        let path = path as u8;
        let of_path = arrived.iter().filter(|frame| frame.path == path);
        let received: BTreeMap<u64, u64> = of_path.map(|frame| (frame.sequence, frame.arrived)).collect();
        let frames = (*first..=*last).map(|n| (when(&sent, n), received.get(&n).copied()));
        let mut ordered: Vec<Times> = Vec::with_capacity((last - first + 1) as usize);
        // Two lost frames between the same neighbours may have one time.
        ordered.extend(frames.scan(0_u64, |before, (sent, received)| {
            *before = sent.max(before.saturating_add(1));
            Some((*before, received))
        }));
        Stream { from, to, path, address: *address, period, frames: ordered }
    });
    paths.collect()
}

/// When a number was sent, or about when.
fn when(sent: &BTreeMap<u64, u64>, number: u64) -> u64 {
    let before = sent.range(..=number).next_back();
    let after = sent.range(number..).next();
    match (before, after) {
        (Some((one, at)), Some((next, until))) if next > one => {
            let part = u128::from(until.saturating_sub(*at)) * u128::from(number - one);
            // Less than what is multiplied, so it fits.
            at.saturating_add(u64::try_from(part / u128::from(next - one)).unwrap_or(u64::MAX))
        }
        (Some((_, at)), _) | (None, Some((_, at))) => *at,
        (None, None) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use obol_fuzz::{Shape, Target};

    const ADDRESSES: [IpAddr; 2] =
        [IpAddr::V4(std::net::Ipv4Addr::new(10, 1, 0, 2)), IpAddr::V4(std::net::Ipv4Addr::new(10, 2, 0, 2))];

    const HOST_2: Origin<'_> = Origin { from: 2, addresses: &ADDRESSES, period: 100 };

    const fn frame(path: u8, sequence: u64, sent: u64, arrived: u64) -> PulseFrame {
        PulseFrame { path, sequence, sent, arrived }
    }

    fn recorded() -> NetworkRecording {
        let arrived = [
            frame(0, 7, 100, 1100),
            frame(1, 7, 100, 1150),
            frame(1, 8, 200, 1260),
            frame(0, 11, 500, 1500),
            frame(1, 11, 500, 1490),
        ];
        NetworkRecording { streams: streams(HOST_2, 1, &arrived) }
    }

    fn text(recording: &NetworkRecording) -> String {
        let mut bytes = Vec::new();
        recording.write(&mut bytes).expect("to memory");
        String::from_utf8(bytes).expect("text")
    }

    #[test]
    fn what_one_path_has_lost_is_dated_by_the_other_or_by_its_neighbours() {
        let NetworkRecording { streams } = recorded();
        let lost = [(300, None), (400, None)];
        assert_eq!(
            streams[0].frames,
            [&[(100, Some(1100)), (200, None)], &lost[..], &[(500, Some(1500))]].concat()
        );
        assert_eq!(
            streams[1].frames,
            [&[(100, Some(1150)), (200, Some(1260))], &lost[..], &[(500, Some(1490))]].concat()
        );
        assert_eq!(streams[1].to_string(), "from host 2 to host 1 by 10.2.0.2");
        assert_eq!(super::streams(HOST_2, 1, &[]), []);
    }

    #[test]
    fn only_the_last_life_of_a_sender_counts() {
        let arrived = [frame(0, 900, 50, 60), frame(0, 1, 100, 110), frame(0, 2, 200, 210)];
        let of = super::streams(Origin { addresses: &ADDRESSES[..1], ..HOST_2 }, 1, &arrived);
        assert_eq!(of[0].frames, [(100, Some(110)), (200, Some(210))]);
    }

    #[test]
    fn a_recording_survives_writing_and_its_faults_have_a_place() {
        let recording = recorded();
        let written = text(&recording);
        assert!(is_recording(&written) && written.starts_with("obol-network 1\nstream from=2 to=1 path=0 "));
        assert_eq!(NetworkRecording::parse(&written), Ok(recording));
        assert_eq!(NetworkRecording::parse("obol-network 1\n\n# none\n"), Ok(NetworkRecording::default()));
        let stream = "obol-network 1\nstream from=2 to=1 path=0 address=10.1.0.2 period=100\n";
        for (wrong, at) in [
            ("", "1:1: a recording begins with `obol-network 1`"),
            ("obol-network 2\n", "1:14: the recording has version 2"),
            ("obol-network 1\n5 6\n", "2:1: a frame before"),
            ("obol-network 1\nstream from=2 to=x", "2:18: a stream is"),
            ("obol-network 1\nstream from=2", "2:14: a stream is"),
            ("obol-network 1\nstream from=2 to=1 path=0 address=10.1.0.2 period=0", "2:51: a stream is"),
            (&format!("{stream}5 6\n5 -\n"), "4:1: frames must be in the order"),
            (&format!("{stream}5 six\n"), "3:3: a line must be"),
        ] {
            let said = NetworkRecording::parse(wrong).expect_err("wrong").to_string();
            assert!(said.starts_with(at), "{wrong:?}: {said}");
        }
    }

    #[test]
    fn mutated_recordings_are_refused_or_written_as_they_are_read() {
        let target = Target::new("network-recording", Shape::Text, 100_000).with(text(&recorded()));
        target.run(|bytes| {
            let Ok(text) = std::str::from_utf8(bytes) else { return 0 };
            match NetworkRecording::parse(text) {
                Err(fault) => 1 + fault.line.min(16) as u64 * 64 + fault.fault.len() as u64 % 64,
                Ok(recording) => {
                    let written = self::text(&recording);
                    assert_eq!(NetworkRecording::parse(&written).as_ref(), Ok(&recording));
                    10_000 + recording.streams.len() as u64
                }
            }
        });
    }
}
