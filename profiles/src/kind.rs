//! The kinds of values: how each is read from TOML, bounded, written and described.

use crate::Profile;
use obol_config::{
    LINE_CHARS_MAX, Problem, duration, found, index_of, is_line, number, shortened, span, to_u32,
};
use obol_fabric::layout::LimitError;
use obol_fabric::types::NAME_BYTES_MAX;
use obol_fabric::{Layout, Limits, Name, Nanos};
use toml::de::DeValue;

/// The schema that this program reads and writes.
pub const SCHEMA: u32 = 1;

/// The maximum length of a device's name: the kernel's limit.
const DEVICE_BYTES_MAX: usize = obol_deaths::deadbeat::DEVICE_NAME_MAX;

/// The type of a key, and where it is stored in a profile.
#[derive(Debug)]
pub(crate) enum Kind {
    /// [`SCHEMA`].
    Schema,
    /// A [`Name`].
    Name(fn(&mut Profile) -> &mut Name),
    Line(fn(&mut Profile) -> &mut String),
    /// `true` or `false`.
    Flag(fn(&mut Profile) -> &mut bool),
    /// The name of a device, or a word for automatic selection.
    DeviceOr {
        word: &'static str,
        at: fn(&mut Profile) -> &mut Option<String>,
    },
    /// A whole number, or a word for automatic selection.
    NumberOr {
        word: &'static str,
        unit: &'static str,
        low: u32,
        high: u32,
        at: fn(&mut Profile) -> &mut Option<u32>,
    },
    /// A duration, which may depend on the value of another key.
    Span {
        low: Nanos,
        high: Nanos,
        at: fn(&mut Profile) -> Option<&mut Nanos>,
    },
    /// A whole number, which may depend on the value of another key.
    Number {
        unit: &'static str,
        low: u32,
        high: u32,
        at: fn(&mut Profile) -> Option<&mut u32>,
    },
    /// A limit, with bounds from [`Limits::BOUNDS`] and [`Layout::new`].
    Limit {
        unit: &'static str,
        at: fn(&mut Limits) -> &mut u32,
    },
    /// One of these words.
    Choice(&'static [Choice]),
}

/// One value of a choice.
#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) name: &'static str,
    /// Whether it is selected in a profile.
    pub(crate) is: fn(&Profile) -> bool,
    /// Selects it in a profile.
    pub(crate) take: fn(&mut Profile),
}

impl Kind {
    /// Whether the value exists with this profile's choices.
    pub(crate) fn applies(&self, profile: &mut Profile) -> bool {
        match self {
            Self::Span { at, .. } => at(profile).is_some(),
            Self::Number { at, .. } => at(profile).is_some(),
            _ => true,
        }
    }

    /// Checks a value and stores it in the profile, if it exists there.
    pub(crate) fn read(
        &self,
        key: &'static str,
        value: &DeValue<'_>,
        profile: &mut Profile,
    ) -> Result<(), Problem> {
        let wrong_type =
            || Problem::WrongType { key: key.into(), found: found(value), wanted: self.wanted() };
        match self {
            // Read before all others: see `Section::schema`.
            Self::Schema => {}
            Self::Name(at) => {
                let text = value.as_str().ok_or_else(wrong_type)?;
                *at(profile) =
                    Name::new(text).map_err(|error| Problem::Invalid(key.into(), error.to_string()))?;
            }
            Self::Line(at) => {
                let text = value.as_str().ok_or_else(wrong_type)?;
                if !is_line(text, LINE_CHARS_MAX) {
                    let found = format!("{:?}", shortened(text));
                    return Err(Problem::WrongType { key: key.into(), found, wanted: self.wanted() });
                }
                text.clone_into(at(profile));
            }
            Self::Flag(at) => *at(profile) = value.as_bool().ok_or_else(wrong_type)?,
            Self::DeviceOr { word, at } => {
                let text = value.as_str().ok_or_else(wrong_type)?;
                let fits = (1..=DEVICE_BYTES_MAX).contains(&text.len());
                if !fits || !text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/') {
                    return Err(wrong_type());
                }
                *at(profile) = (text != *word).then(|| text.to_owned());
            }
            Self::NumberOr { word, low, high, at, .. } => {
                *at(profile) = match value.as_str() {
                    Some(text) if text == *word => None,
                    Some(_) => return Err(wrong_type()),
                    None => Some(number(key, value, (*low, *high)).unwrap_or_else(|| Err(wrong_type()))?),
                };
            }
            Self::Span { low, high, at } => {
                let span = span(key, value, (*low, *high)).unwrap_or_else(|| Err(wrong_type()))?;
                if let Some(place) = at(profile) {
                    *place = span;
                }
            }
            Self::Number { low, high, at, .. } => {
                let number = number(key, value, (*low, *high)).unwrap_or_else(|| Err(wrong_type()))?;
                if let Some(place) = at(profile) {
                    *place = number;
                }
            }
            Self::Limit { at, .. } => {
                let number = match to_u32(value) {
                    Some(number) => number,
                    None => number(key, value, bounds(*at)).unwrap_or_else(|| Err(wrong_type()))?,
                };
                check_limit(*at, number).map_err(|error| Problem::Other(error.to_string()))?;
                *at(&mut profile.limits) = number;
            }
            Self::Choice(options) => {
                let text = value.as_str().ok_or_else(wrong_type)?;
                let names: Vec<&str> = options.iter().map(|option| option.name).collect();
                (options[index_of(key, text, &names)?].take)(profile);
            }
        }
        Ok(())
    }

    /// The value as TOML; `None` if it does not exist in this profile. (The profile is mutable
    /// because one accessor serves both directions.)
    pub(crate) fn write(&self, profile: &mut Profile) -> Option<String> {
        let quoted = |text: &str| toml::Value::from(text).to_string();
        match self {
            Self::Schema => Some(SCHEMA.to_string()),
            Self::Name(at) => Some(quoted(at(profile).as_str())),
            Self::Line(at) => Some(quoted(at(profile))),
            Self::Flag(at) => Some(at(profile).to_string()),
            Self::DeviceOr { word, at } => Some(quoted(at(profile).as_deref().unwrap_or(word))),
            Self::NumberOr { word, at, .. } => {
                Some(at(profile).map_or_else(|| quoted(word), |n| n.to_string()))
            }
            Self::Span { at, .. } => at(profile).map(|span| quoted(&duration::print(*span))),
            Self::Number { at, .. } => at(profile).map(|number| number.to_string()),
            Self::Limit { at, .. } => Some(at(&mut profile.limits).to_string()),
            Self::Choice(options) => {
                options.iter().find(|option| (option.is)(profile)).map(|o| quoted(o.name))
            }
        }
    }

    /// Type, unit and bounds, as the end of "must be ..".
    pub(crate) fn wanted(&self) -> String {
        match self {
            Self::Schema => format!("the number {SCHEMA}"),
            Self::Name(_) => format!("a name of 1 to {NAME_BYTES_MAX} bytes"),
            Self::Line(_) => format!("a line of 1 to {LINE_CHARS_MAX} characters"),
            Self::Flag(_) => "true or false".to_owned(),
            Self::DeviceOr { word, .. } => {
                format!(
                    "{word:?} or the name of a device, of 1 to {DEVICE_BYTES_MAX} letters, digits and marks"
                )
            }
            Self::NumberOr { word, unit, low, high, .. } => {
                format!("{word:?} or a whole number from {low} to {high} ({unit})")
            }
            Self::Span { low, high, .. } => {
                format!("a duration from \"{}\" to \"{}\"", duration::print(*low), duration::print(*high))
            }
            Self::Number { unit, low, high, .. } => format!("a whole number from {low} to {high} ({unit})"),
            Self::Limit { unit, at } => {
                let (low, high) = bounds(*at);
                let step = match step(*at, low) {
                    1 => String::new(),
                    step => format!(", a multiple of {step}"),
                };
                format!("a whole number from {low} to {high}{step} ({unit})")
            }
            Self::Choice(options) => {
                let names: Vec<_> = options.iter().map(|option| format!("{:?}", option.name)).collect();
                format!("one of {}", names.join(", "))
            }
        }
    }
}

/// Checks one limit by itself. [`Layout::new`] reports only the first invalid limit; with all
/// others at their minimum, each can be checked.
fn check_limit(at: fn(&mut Limits) -> &mut u32, value: u32) -> Result<Layout, LimitError> {
    let mut limits = Limits::LEAST;
    *at(&mut limits) = value;
    Layout::new(limits)
}

/// The bounds of one limit, taken from the layout's error.
fn bounds(at: fn(&mut Limits) -> &mut u32) -> (u32, u32) {
    check_limit(at, u32::MAX).err().map_or((0, u32::MAX), |error| error.bounds)
}

/// The step of a limit: the distance from its minimum to the next valid value.
fn step(at: fn(&mut Limits) -> &mut u32, low: u32) -> u32 {
    (1..=4096).find(|step| check_limit(at, low + step).is_ok()).unwrap_or(1)
}
