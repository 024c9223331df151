//! Reading a text as a whole.

use crate::problem::FileError;
use crate::problems::Problems;
use crate::section::Section;
use toml::de::DeTable;

/// Reads a text by `read`, which gets its top level; `origin` names the text in errors. Of a text
/// with syntax errors, these are all that is reported.
pub fn read<T>(
    text: &str,
    origin: &str,
    read: impl FnOnce(&mut Section<'_, '_>, &mut Problems) -> Option<T>,
) -> Result<T, FileError> {
    recover(text, origin, |top, problems| {
        if problems.has_syntax() {
            top.accept_all();
            return None;
        }
        read(top, problems)
    })
}

/// Like [`read`], and what is left of a text with syntax errors is read as well. Not reported are
/// problems that may be their consequences: values up to the next table header, and missing keys.
pub fn recover<T>(
    text: &str,
    origin: &str,
    read: impl FnOnce(&mut Section<'_, '_>, &mut Problems) -> Option<T>,
) -> Result<T, FileError> {
    let (document, errors) = DeTable::parse_recoverable(text);
    let mut problems = Problems::default();
    for error in &errors {
        let at = error.span().map_or(0, |span| span.start);
        problems.syntax(text, at, error.message().replace('\n', ", "));
    }
    let read = Section::new("", 0, document.get_ref()).read(&mut problems, read);
    problems.judge(read, text, origin)
}
