//! A report as a list of parts, and its two forms: Markdown with its pictures beside it, and one
//! page that needs no other file.

use obol_observe::plot::{Cell, Page};
use std::path::Path;
use std::{fs, io};

/// A part of a report.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::drills) enum Part {
    /// A heading.
    Heading(&'static str),
    /// A paragraph.
    Text(String),
    /// Lines that stand for themselves.
    List(Vec<String>),
    /// A table.
    Table {
        /// One for each column.
        heads: Vec<&'static str>,
        /// Each as long as `heads`.
        rows: Vec<Vec<Cell>>,
    },
    /// A chart.
    Figure {
        /// The name of its file, without extension.
        name: &'static str,
        /// The chart.
        svg: String,
        /// What it shows.
        caption: String,
    },
}

/// A text cell.
pub(in crate::drills) fn words(text: impl Into<String>) -> Cell {
    Cell::Text(text.into())
}

/// A number cell.
pub(in crate::drills) fn number(text: impl Into<String>) -> Cell {
    Cell::Number(text.into())
}

/// A report.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::drills) struct Document {
    /// Its title.
    pub(in crate::drills) title: String,
    /// The rest.
    pub(in crate::drills) parts: Vec<Part>,
}

/// Text in a line of Markdown, with markup escaped.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\r' => out.push(' '),
            '|' | '<' | '[' | ']' | '\\' | '*' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out
}

impl Document {
    /// An empty document.
    pub(in crate::drills) fn new(title: String) -> Self {
        Self { title, parts: Vec::new() }
    }

    /// Adds a part.
    pub(in crate::drills) fn add(&mut self, part: Part) {
        self.parts.push(part);
    }

    /// Adds a paragraph.
    pub(in crate::drills) fn say(&mut self, text: impl Into<String>) {
        self.add(Part::Text(text.into()));
    }

    /// One HTML page.
    pub(in crate::drills) fn html(&self) -> String {
        let mut page = Page::new(&self.title);
        for part in &self.parts {
            match part {
                Part::Heading(text) => page.heading(text),
                Part::Text(text) => page.paragraph(text),
                Part::List(lines) => page.list(lines),
                Part::Table { heads, rows } => page.table(heads, rows),
                Part::Figure { svg, caption, .. } => page.figure(svg, caption),
            }
        }
        page.finish()
    }

    /// Markdown; its charts are files that begin with `stem`.
    pub(in crate::drills) fn markdown(&self, stem: &str) -> String {
        let mut text = format!("# {}\n", plain(&self.title));
        for part in &self.parts {
            text.push('\n');
            match part {
                Part::Heading(heading) => text.push_str(&format!("## {heading}\n")),
                Part::Text(paragraph) => text.push_str(&format!("{}\n", plain(paragraph))),
                Part::List(lines) => {
                    lines.iter().for_each(|line| text.push_str(&format!("- {}\n", plain(line))));
                }
                Part::Table { heads, rows } => {
                    let number =
                        |n: usize| matches!(rows.first().and_then(|r| r.get(n)), Some(Cell::Number(_)));
                    let rule = (0..heads.len()).map(|n| if number(n) { "---:" } else { "---" });
                    text.push_str(&format!("| {} |\n", heads.join(" | ")));
                    text.push_str(&format!("| {} |\n", rule.collect::<Vec<_>>().join(" | ")));
                    for row in rows {
                        let cells = row.iter().map(|(Cell::Text(cell) | Cell::Number(cell))| plain(cell));
                        text.push_str(&format!("| {} |\n", cells.collect::<Vec<_>>().join(" | ")));
                    }
                }
                Part::Figure { name, caption, .. } => {
                    text.push_str(&format!("![{0}]({stem}-{name}.svg)\n\n{0}\n", plain(caption)));
                }
            }
        }
        text
    }

    /// Writes the Markdown form and its charts.
    pub(in crate::drills) fn write_markdown(&self, dir: &Path, name: &str) -> io::Result<()> {
        let stem = name.strip_suffix(".md").unwrap_or(name);
        for part in &self.parts {
            if let Part::Figure { name, svg, .. } = part {
                fs::write(dir.join(format!("{stem}-{name}.svg")), svg)?;
            }
        }
        fs::write(dir.join(name), self.markdown(stem))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_files_is_escaped_in_both_forms() {
        let mut document = Document::new("a|b".to_owned());
        document.say("<script>x</script> [a](b)\n# no heading");
        document.add(Part::Table { heads: vec!["a", "b"], rows: vec![vec![words("1|2"), number("3")]] });
        document.add(Part::Figure { name: "all", svg: "<svg/>".to_owned(), caption: "c".to_owned() });
        let markdown = document.markdown("report");
        assert!(
            markdown.contains("\\<script>") && markdown.contains("\\[a\\](b) # no heading"),
            "{markdown}"
        );
        assert!(markdown.contains("| --- | ---: |\n| 1\\|2 | 3 |"), "{markdown}");
        assert!(markdown.contains("![c](report-all.svg)"), "{markdown}");
        let html = document.html();
        assert!(html.contains("&lt;script&gt;") && html.contains("<figure><svg/>"), "{html}");
    }
}
