//! One value: its description in a message, and its reading with bounds.

use crate::duration;
use crate::name::{nearest, shortened};
use crate::problem::Problem;
use std::time::Duration;
use toml::de::DeValue;

/// A value's description for an error: its type, and the value if that is short.
pub fn found(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("the string {:?}", shortened(text)),
        DeValue::Integer(number) => format!("the integer {}", shortened(&number.to_string())),
        DeValue::Float(number) => format!("the float {}", shortened(&number.to_string())),
        DeValue::Boolean(flag) => format!("the boolean {flag}"),
        DeValue::Datetime(_) => "a date or time".to_owned(),
        DeValue::Array(_) => "an array".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

/// The duration in a value; `None` if it has another type.
pub fn span<T>(key: &str, value: &DeValue<'_>, (low, high): (T, T)) -> Option<Result<T, Problem>>
where
    T: From<Duration> + Into<Duration>,
{
    let (low, high) = (low.into(), high.into());
    let span = match duration::parse(value.as_str()?) {
        Ok(span) => span,
        Err(error) => return Some(Err(Problem::Invalid(key.to_owned().into(), error.to_string()))),
    };
    if (low..=high).contains(&span) {
        return Some(Ok(span.into()));
    }
    let [found, low, high] = [span, low, high].map(duration::print);
    Some(Err(Problem::Bounds { key: key.to_owned().into(), found, low, high }))
}

/// The whole number in a value; `None` if it has another type.
pub fn number(key: &str, value: &DeValue<'_>, (low, high): (u32, u32)) -> Option<Result<u32, Problem>> {
    let written = value.as_integer()?;
    let number = to_u32(value).filter(|number| (low..=high).contains(number));
    Some(number.ok_or_else(|| Problem::Bounds {
        key: key.to_owned().into(),
        found: shortened(&written.to_string()),
        low: low.to_string(),
        high: high.to_string(),
    }))
}

/// The whole number in a value, if it has 32 bits.
pub fn to_u32(value: &DeValue<'_>) -> Option<u32> {
    let written = value.as_integer()?;
    u32::from_str_radix(written.as_str(), written.radix()).ok()
}

/// The index of `text` among the names of a key's options.
pub fn index_of(key: &str, text: &str, names: &[&str]) -> Result<usize, Problem> {
    names.iter().position(|name| *name == text).ok_or_else(|| Problem::Choice {
        key: key.to_owned().into(),
        found: shortened(text),
        options: names.iter().map(|name| (*name).to_owned().into()).collect(),
        nearest: nearest(text, names.iter().copied()).map(|name| name.to_owned().into()),
    })
}

/// The option of this name.
pub fn chosen<T: Copy>(key: &str, text: &str, options: &[(&str, T)]) -> Result<T, Problem> {
    let names: Vec<&str> = options.iter().map(|(name, _)| *name).collect();
    index_of(key, text, &names).map(|at| options[at].1)
}
