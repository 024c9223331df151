//! Escapes untrusted text for display: terminal control sequences, and characters that are
//! invisible or reorder a line, become visible escapes. All output of screens, reports and commands
//! passes through here, so a crafted recording, name or file cannot control a terminal.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Whether a character controls the terminal, is invisible, or changes the order of text.
pub const fn is_hostile(letter: char) -> bool {
    matches!(letter,
        // C0 with ESC, DEL, and C1 with the one-byte CSI.
        '\0'..='\x1f' | '\x7f'..='\u{9f}'
        // Soft hyphen; Arabic letter mark; zero width and direction marks.
        | '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
        // Separators of lines and paragraphs; embeddings and overrides of direction; invisible
        // operators and isolates.
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        // Byte order mark, annotations, tags.
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

fn shown(
    text: &str,
    keeps: impl Fn(usize, char) -> bool,
    escape: impl Fn(&mut String, char),
) -> Cow<'_, str> {
    let spoils = |(at, letter): (usize, char)| is_hostile(letter) && !keeps(at, letter);
    if !text.char_indices().any(spoils) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for (at, letter) in text.char_indices() {
        if spoils((at, letter)) {
            escape(&mut out, letter);
        } else {
            out.push(letter);
        }
    }
    Cow::Owned(out)
}

fn as_in_rust(out: &mut String, letter: char) {
    out.extend(letter.escape_unicode());
}

/// Text within one line: line ends are escaped, too.
pub fn line(text: &str) -> Cow<'_, str> {
    shown(text, |_, _| false, as_in_rust)
}

/// Text of several lines: line ends (LF, CR LF) and tabs stay.
pub fn lines(text: &str) -> Cow<'_, str> {
    let ends = |at: usize, letter| match letter {
        '\n' | '\t' => true,
        '\r' => text.as_bytes().get(at + 1) == Some(&b'\n'),
        _ => false,
    };
    shown(text, ends, as_in_rust)
}

/// JSON text, with the same values: these characters can only occur in its strings (RFC 8259,
/// section 7).
pub fn json(text: &str) -> Cow<'_, str> {
    let escape = |out: &mut String, letter: char| {
        for unit in letter.encode_utf16(&mut [0; 2]) {
            // Writing to a string cannot fail.
            let _ = write!(out, "\\u{unit:04x}");
        }
    };
    shown(text, |_, letter| matches!(letter, '\n' | '\r' | '\t'), escape)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn harmless_text_is_unchanged() {
        for text in ["", "app-1", "fünf │ ▸ 日本 ✓", "a b"] {
            assert!(matches!(line(text), Cow::Borrowed(same) if same == text));
        }
        assert_eq!(lines("a\tb\r\nc\n"), "a\tb\r\nc\n");
    }

    #[test]
    fn hostile_characters_are_escaped() {
        assert_eq!(line("\x1b]0;x\x07\u{9b}2J\n"), "\\u{1b}]0;x\\u{7}\\u{9b}2J\\u{a}");
        assert_eq!(lines("a\rb\r\n"), "a\\u{d}b\r\n", "a bare return writes over the line");
        let all: String = ('\0'..=char::MAX).collect();
        assert!(!line(&all).chars().any(is_hostile));
        assert!(all.chars().filter(|letter| letter.is_control()).all(is_hostile));
    }

    #[test]
    fn json_keeps_its_values() {
        let all: String = ('\0'..=char::MAX).collect();
        let text = serde_json::to_string_pretty(&serde_json::json!({ "a": all })).expect("JSON");
        let neutral = json(&text);
        assert!(!neutral.chars().any(|letter| is_hostile(letter) && letter != '\n'));
        let value: serde_json::Value = serde_json::from_str(&neutral).expect("JSON");
        assert_eq!(value["a"], all);
    }
}
