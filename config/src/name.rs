//! Names in messages: quoted, shortened, and the nearest known one.

/// A key in TOML: bare, or quoted if necessary.
pub fn bare(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let short = shortened(name);
    if !name.is_empty() && name.chars().all(plain) { short } else { format!("{short:?}") }
}

/// The maximum length of file contents quoted in an error.
const QUOTE_CHARS_MAX: usize = 40;

/// User text, shortened for an error.
pub fn shortened(text: &str) -> String {
    match text.char_indices().nth(QUOTE_CHARS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// The maximum edit distance of a suggested name.
const DISTANCE_MAX: usize = 3;

/// Whether one letter more, less, other or exchanged makes one of the other.
pub(crate) fn is_one_edit(one: &str, other: &str) -> bool {
    strsim::damerau_levenshtein(one, other) == 1
}

/// The candidate most similar to `given`, if one is similar enough: at most `DISTANCE_MAX` edits,
/// and fewer than half of the name, as otherwise any short name would match. Letters in the other case
/// do not count.
pub fn nearest<'a>(given: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let given = given.to_ascii_lowercase();
    candidates
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(&given, &name.to_ascii_lowercase()), name))
        .filter(|(distance, name)| *distance <= DISTANCE_MAX && distance * 2 < name.len())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}
