//! Colours, signs and line characters. Only the selection has a background, so every theme works on
//! the terminal's own; and colour never is the only distinction.

use ratatui::style::{Color, Modifier, Style};
use std::env;
use strum::{EnumString, IntoStaticStr, VariantArray, VariantNames};

/// The purpose of a piece of text, which a theme maps to a style.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Ordinary text.
    Text,
    /// Less important: heads, units, lines.
    Dim,
    /// A title, the current tab.
    Title,
    /// No problem.
    Good,
    /// Needs a look.
    Warn,
    /// Needs attention.
    Bad,
    /// Unknown at present.
    Stale,
    /// The selected row.
    Selected,
    Key,
    /// The armed state, and faults.
    Armed,
}

/// The themes, in the order in which `T` goes through them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray, VariantNames)]
#[strum(serialize_all = "lowercase")]
pub enum Theme {
    /// For dark backgrounds, 256 colours.
    Dark,
    /// For light backgrounds, 256 colours.
    Light,
    /// For all kinds of colour vision: blue, orange and vermilion (after Okabe and Ito).
    Safe,
    /// The same for light backgrounds.
    #[strum(serialize = "safe-light")]
    SafeLight,
    /// The terminal's own sixteen colours.
    #[strum(serialize = "16")]
    Ansi,
    /// No colour at all: bold, dim and reverse.
    Mono,
}

/// Whether the background is one of the light ones of the sixteen colours.
fn is_light(colours: &str) -> bool {
    let background = colours.rsplit(';').next().and_then(|number| number.parse::<u8>().ok());
    colours.contains(';') && background.is_some_and(|number| number == 7 || (9..=15).contains(&number))
}

impl Theme {
    pub(crate) const ALL: &'static [Self] = <Self as VariantArray>::VARIANTS;
    /// Their names in configurations.
    pub(crate) const NAMES: &'static [&'static str] = <Self as VariantNames>::VARIANTS;

    /// The name in configurations.
    pub fn name(self) -> &'static str {
        self.into()
    }

    pub(crate) fn next(self) -> Self {
        Self::ALL[(self as usize + 1) % Self::ALL.len()]
    }

    /// The best theme for this terminal, by its environment. (NO_COLOR: no-color.org; COLORFGBG: the
    /// numbers of the terminal's colours; the last one is the background.)
    pub(crate) fn detect() -> Self {
        let set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
        let term = env::var("TERM").unwrap_or_default();
        let theme = if set("NO_COLOR") || term == "dumb" {
            Self::Mono
        } else if term.contains("256") || set("COLORTERM") {
            Self::Dark
        } else {
            Self::Ansi
        };
        theme.on(is_light(&env::var("COLORFGBG").unwrap_or_default()))
    }

    /// The theme in place of a detected one, on a background that is light, or dark. Half of the
    /// sixteen colours cannot be read on a light one.
    pub(crate) const fn on(self, light: bool) -> Self {
        match (self, light) {
            (Self::Dark | Self::Light, true) => Self::Light,
            (Self::Dark | Self::Light, false) => Self::Dark,
            (Self::Ansi, true) => Self::Mono,
            _ => self,
        }
    }

    /// Whether the background decides between this theme and another.
    pub(crate) fn depends(self) -> bool {
        self.on(true) != self.on(false)
    }

    /// The style of a tone.
    pub(crate) fn style(self, tone: Tone) -> Style {
        let plain = Style::new();
        if tone == Tone::Text {
            return plain;
        }
        if self == Self::Mono {
            return match tone {
                Tone::Dim | Tone::Stale => plain.add_modifier(Modifier::DIM),
                Tone::Selected | Tone::Armed => plain.add_modifier(Modifier::REVERSED),
                Tone::Text | Tone::Good => plain,
                Tone::Title | Tone::Key | Tone::Warn | Tone::Bad => plain.add_modifier(Modifier::BOLD),
            };
        }
        let [dim, title, good, warn, bad, stale, key] = self.palette();
        match tone {
            Tone::Text => plain,
            Tone::Dim => plain.fg(dim),
            Tone::Title => plain.fg(title).add_modifier(Modifier::BOLD),
            Tone::Good => plain.fg(good),
            Tone::Warn => plain.fg(warn),
            Tone::Bad => plain.fg(bad).add_modifier(Modifier::BOLD),
            Tone::Stale => plain.fg(stale),
            Tone::Key => plain.fg(key),
            Tone::Selected => plain.add_modifier(Modifier::REVERSED),
            Tone::Armed => plain.fg(bad).add_modifier(Modifier::REVERSED | Modifier::BOLD),
        }
    }

    /// Dim, title, good, warn, bad, stale, key.
    const fn palette(self) -> [Color; 7] {
        use Color::Indexed as C;
        match self {
            Self::Dark | Self::Mono => [C(246), C(117), C(114), C(221), C(203), C(183), C(117)],
            Self::Light => [C(241), C(25), C(22), C(94), C(160), C(91), C(25)],
            Self::SafeLight => [C(241), C(25), C(25), C(94), C(88), C(90), C(25)],
            Self::Safe => [C(246), C(75), C(75), C(214), C(202), C(175), C(75)],
            Self::Ansi => [
                Color::DarkGray,
                Color::Cyan,
                Color::Green,
                Color::Yellow,
                Color::Red,
                Color::Magenta,
                Color::Cyan,
            ],
        }
    }
}

/// The characters of lines and graphs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Glyphs {
    pub(crate) across: &'static str,
    pub(crate) down: &'static str,
    /// Top left, top right, bottom left, bottom right.
    pub(crate) corners: [&'static str; 4],
    /// From empty to full.
    pub(crate) levels: &'static [&'static str],
    /// The mark of the selected row.
    pub(crate) here: &'static str,
    /// Separator of hints.
    pub(crate) dot: &'static str,
    /// Sign of truncated text.
    pub(crate) cut: &'static str,
}

/// For terminals that show Unicode.
pub(crate) const UNICODE: Glyphs = Glyphs {
    across: "─",
    down: "│",
    corners: ["┌", "┐", "└", "┘"],
    levels: &[" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"],
    here: "▸",
    dot: "·",
    cut: "…",
};

/// For all others.
pub(crate) const ASCII: Glyphs = Glyphs {
    across: "-",
    down: "|",
    corners: ["+", "+", "+", "+"],
    levels: &[" ", ".", ":", "-", "=", "+", "*", "#", "%", "@"],
    here: ">",
    dot: "-",
    cut: "~",
};

impl Glyphs {
    /// The best for the locale.
    pub(crate) fn detect() -> Self {
        let first = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(|name| env::var(name).ok());
        let locale = first.into_iter().find(|value| !value.is_empty()).unwrap_or_default().to_lowercase();
        if locale.contains("utf-8") || locale.contains("utf8") { UNICODE } else { ASCII }
    }

    /// The character for a value between zero and `most`; a positive value is never empty.
    pub(crate) fn level(&self, value: f64, most: f64) -> &'static str {
        let steps = self.levels.len() - 1;
        let part = if most > 0.0 { (value / most).clamp(0.0, 1.0) } else { 0.0 };
        let step = (part * steps as f64).round() as usize;
        self.levels[if value > 0.0 { step.max(1) } else { 0 }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_theme_has_a_name_and_is_reached_by_the_key() {
        let mut theme = Theme::Dark;
        for _ in Theme::ALL {
            assert_eq!(theme.name().parse(), Ok(theme));
            theme = theme.next();
        }
        assert_eq!(theme, Theme::Dark);
        assert!("darc".parse::<Theme>().is_err());
    }

    #[test]
    fn a_light_background_is_known_by_its_number() {
        for (colours, light) in [
            ("0;15", true),
            ("0;default;15", true),
            ("0;7", true),
            ("15;0", false),
            ("7;8", false),
            ("15", false),
            ("", false),
        ] {
            assert_eq!(is_light(colours), light, "{colours}");
        }
    }

    #[test]
    fn the_background_decides_between_dark_and_light_only() {
        assert_eq!([Theme::Dark.on(true), Theme::Light.on(false)], [Theme::Light, Theme::Dark]);
        assert_eq!([Theme::Ansi.on(true), Theme::Ansi.on(false)], [Theme::Mono, Theme::Ansi]);
        for theme in [Theme::Safe, Theme::SafeLight, Theme::Mono] {
            assert!(!theme.depends(), "{theme:?}");
        }
    }

    /// The luminance of a colour of xterm's cube and greys (WCAG 2.1).
    fn luminance(red: f64, green: f64, blue: f64) -> f64 {
        let linear = |part: f64| {
            let part = part / 255.0;
            if part <= 0.040_45 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue)
    }

    #[test]
    fn every_colour_can_be_read_on_the_backgrounds_of_its_theme() {
        let dark = [[0.0; 3], [30.0; 3], [40.0, 44.0, 52.0], [0.0, 43.0, 54.0]];
        let light = [[255.0; 3], [253.0, 246.0, 227.0], [238.0; 3]];
        for (theme, backgrounds) in [
            (Theme::Dark, &dark[..]),
            (Theme::Safe, &dark[..]),
            (Theme::Light, &light[..]),
            (Theme::SafeLight, &light[..]),
        ] {
            for colour in theme.palette() {
                let Color::Indexed(n @ 16..) = colour else {
                    panic!("{theme:?}: {colour:?} is the user's own")
                };
                let level = |n: u8| if n == 0 { 0.0 } else { 55.0 + 40.0 * f64::from(n) };
                let own = if n >= 232 {
                    let grey = 8.0 + 10.0 * f64::from(n - 232);
                    luminance(grey, grey, grey)
                } else {
                    luminance(level((n - 16) / 36), level((n - 16) / 6 % 6), level((n - 16) % 6))
                };
                for [red, green, blue] in backgrounds {
                    let other = luminance(*red, *green, *blue);
                    let contrast = (own.max(other) + 0.05) / (own.min(other) + 0.05);
                    assert!(contrast >= 4.5, "{theme:?}: {n} on {red} {green} {blue}: {contrast:.2}");
                }
            }
        }
    }

    #[test]
    fn no_theme_paints_a_background_and_mono_has_no_colour() {
        for &theme in Theme::ALL {
            for tone in
                [Tone::Text, Tone::Dim, Tone::Good, Tone::Warn, Tone::Bad, Tone::Selected, Tone::Armed]
            {
                let style = theme.style(tone);
                assert_eq!(style.bg, None, "{theme:?} {tone:?}");
                assert!(theme != Theme::Mono || style.fg.is_none(), "{tone:?}");
            }
        }
    }

    #[test]
    fn a_positive_value_is_never_drawn_empty() {
        for glyphs in [UNICODE, ASCII] {
            assert_eq!(glyphs.level(0.0, 10.0), " ");
            assert_ne!(glyphs.level(0.001, 10.0), " ");
            assert_eq!(glyphs.level(20.0, 10.0), glyphs.levels[glyphs.levels.len() - 1]);
        }
    }
}
