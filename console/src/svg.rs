//! The screen as a picture: each cell in its place with any font.

use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier};
use std::fmt::Write as _;

/// Pixels of a cell.
const CELL: (u32, u32) = (9, 18);
/// From a cell's top to the text's base line.
const BASE: u32 = 14;
const PAPER: &str = "#16181c";
const INK: &str = "#d8dade";
/// The sixteen named terminal colours, as in xterm on a dark background.
const NAMED: [&str; 16] = [
    "#1c1f24", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#c8ccd4", "#7f848e",
    "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#ffffff",
];

/// A colour in SVG; `None` for the terminal's default.
fn rgb(color: Color) -> Option<String> {
    let named = |at: usize| Some(NAMED[at].to_owned());
    match color {
        Color::Reset => None,
        Color::Black => named(0),
        Color::Red => named(1),
        Color::Green => named(2),
        Color::Yellow => named(3),
        Color::Blue => named(4),
        Color::Magenta => named(5),
        Color::Cyan => named(6),
        Color::Gray => named(7),
        Color::DarkGray => named(8),
        Color::LightRed => named(9),
        Color::LightGreen => named(10),
        Color::LightYellow => named(11),
        Color::LightBlue => named(12),
        Color::LightMagenta => named(13),
        Color::LightCyan => named(14),
        Color::White => named(15),
        Color::Rgb(r, g, b) => Some(format!("#{r:02x}{g:02x}{b:02x}")),
        Color::Indexed(n @ 0..=15) => named(usize::from(n)),
        // xterm's cube of six levels each, and its ramp of greys.
        Color::Indexed(n @ 16..=231) => {
            let level = |n: u8| if n == 0 { 0 } else { 55 + 40 * n };
            let n = n - 16;
            Some(format!("#{:02x}{:02x}{:02x}", level(n / 36), level(n / 6 % 6), level(n % 6)))
        }
        Color::Indexed(n) => {
            let grey = 8 + 10 * (n - 232);
            Some(format!("#{grey:02x}{grey:02x}{grey:02x}"))
        }
    }
}

/// The style of a run of cells.
#[derive(Clone, PartialEq, Eq)]
struct Look {
    ink: String,
    paper: Option<String>,
    bold: bool,
    dim: bool,
}

fn look(cell: &ratatui::buffer::Cell) -> Look {
    let (mut ink, mut paper) = (rgb(cell.fg).unwrap_or_else(|| INK.to_owned()), rgb(cell.bg));
    if cell.modifier.contains(Modifier::REVERSED) {
        let under = paper.unwrap_or_else(|| PAPER.to_owned());
        paper = Some(std::mem::replace(&mut ink, under));
    }
    Look {
        ink,
        paper,
        bold: cell.modifier.contains(Modifier::BOLD),
        dim: cell.modifier.contains(Modifier::DIM),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The whole picture. Writing to a string cannot fail.
pub(crate) fn text(buffer: &Buffer) -> String {
    let (columns, rows) = (u32::from(buffer.area.width), u32::from(buffer.area.height));
    let (width, height) = (columns * CELL.0, rows * CELL.1);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace\" font-size=\"15\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"{PAPER}\"/>\n"
    );
    for y in 0..buffer.area.height {
        let mut x = 0;
        while x < buffer.area.width {
            let style = look(&buffer[(x, y)]);
            let mut run = String::new();
            let from = x;
            while x < buffer.area.width && look(&buffer[(x, y)]) == style {
                run.push_str(buffer[(x, y)].symbol());
                x += 1;
            }
            let (left, wide) = (u32::from(from) * CELL.0, u32::from(x - from) * CELL.0);
            let top = u32::from(y) * CELL.1;
            if let Some(paper) = &style.paper {
                let _ = writeln!(
                    text,
                    "<rect x=\"{left}\" y=\"{top}\" width=\"{wide}\" height=\"{}\" fill=\"{paper}\"/>",
                    CELL.1
                );
            }
            if run.trim().is_empty() {
                continue;
            }
            let bold = if style.bold { " font-weight=\"bold\"" } else { "" };
            let dim = if style.dim { " opacity=\"0.6\"" } else { "" };
            // The length keeps every character in its cell.
            let _ = writeln!(
                text,
                "<text x=\"{left}\" y=\"{}\" fill=\"{}\" textLength=\"{wide}\" lengthAdjust=\"spacingAndGlyphs\" \
                 xml:space=\"preserve\"{bold}{dim}>{}</text>",
                top + BASE,
                style.ink,
                escaped(&run)
            );
        }
    }
    text.push_str("</svg>\n");
    text
}
