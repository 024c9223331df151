//! Reports as a list of parts, and their two forms: one HTML page that needs no other file, and
//! Markdown with its charts beside it. All text is escaped.

use obol_term::{file, plain};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::Path;
use std::{fmt, io};

/// Legible and printable. The page follows the reader's light or dark preference; charts stay on
/// white.
const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#222;--soft:#666;--line:#ddd;--paper:#fff;--head:#f4f5f7}\
@media(prefers-color-scheme:dark){:root{--ink:#e4e4e4;--soft:#a0a0a0;--line:#3d3d3d;--paper:#1b1c1e;--head:#27292c}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:80em;margin:2em auto;padding:0 1em}\
h1{font-size:1.6em;margin:0 0 .6em}h2{font-size:1.25em;margin:2em 0 .5em;padding-top:.5em;border-top:1px solid var(--line)}\
p{max-width:46em}figure{margin:1em 0;max-width:56em}figure svg{display:block;width:100%;height:auto;border:1px solid var(--line);background:#fff}\
figcaption{color:var(--soft);font-size:.9em;margin-top:.4em;max-width:51em}\
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.87em;font-variant-numeric:tabular-nums}\
th,td{padding:.25em .5em;overflow-wrap:anywhere;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}th{background:var(--head)}\
td.n,th.n{text-align:right;white-space:nowrap}\
summary{cursor:pointer;margin:.5em 0}";

/// One cell of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// Text, left-aligned.
    Text(String),
    /// A number with its unit, right-aligned.
    Number(String),
}

impl Cell {
    pub fn text(text: impl fmt::Display) -> Self {
        Self::Text(text.to_string())
    }

    pub fn number(number: impl fmt::Display) -> Self {
        Self::Number(number.to_string())
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Heading(String),
    Text(String),
    List(Vec<String>),
    /// Each row is as long as `heads`. A folded table shows only its title at first, on a page.
    Table {
        folded: Option<String>,
        heads: Vec<&'static str>,
        rows: Vec<Vec<Cell>>,
    },
    Figure {
        name: &'static str,
        svg: String,
        caption: String,
    },
}

/// A report under construction.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    title: String,
    parts: Vec<Part>,
}

impl Document {
    /// An empty document.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), parts: Vec::new() }
    }

    /// Adds a heading.
    pub fn heading(&mut self, text: impl Into<String>) {
        self.parts.push(Part::Heading(text.into()));
    }

    /// Adds a paragraph.
    pub fn say(&mut self, text: impl Into<String>) {
        self.parts.push(Part::Text(text.into()));
    }

    /// Adds a bulleted list.
    pub fn list(&mut self, lines: Vec<String>) {
        self.parts.push(Part::List(lines));
    }

    /// Adds a table. The first row's cells set the alignment of the columns.
    pub fn table(&mut self, heads: &[&'static str], rows: impl IntoIterator<Item = Vec<Cell>>) {
        let (heads, rows) = (heads.to_vec(), rows.into_iter().collect());
        self.parts.push(Part::Table { folded: None, heads, rows });
    }

    /// Adds a table of rows that are texts already; `is_text` tells which columns are not numbers.
    pub fn rows<const N: usize>(
        &mut self,
        heads: &[&'static str; N],
        rows: Vec<[String; N]>,
        is_text: impl Fn(usize) -> bool,
    ) {
        let cell = |(n, text)| if is_text(n) { Cell::Text(text) } else { Cell::Number(text) };
        self.table(heads, rows.into_iter().map(|row| row.into_iter().enumerate().map(cell).collect()));
    }

    /// Adds remarks below a heading, if there are any.
    pub fn remarks(&mut self, remarks: Vec<String>) {
        if !remarks.is_empty() {
            self.heading("Remarks");
            self.list(remarks);
        }
    }

    /// Adds a table that is folded on a page: at first it shows only this title.
    pub fn folded(
        &mut self,
        title: impl Into<String>,
        heads: &[&'static str],
        rows: impl IntoIterator<Item = Vec<Cell>>,
    ) {
        let (heads, rows) = (heads.to_vec(), rows.into_iter().collect());
        self.parts.push(Part::Table { folded: Some(title.into()), heads, rows });
    }

    /// Adds a chart of [`super::Chart::svg`] or [`super::Bars::svg`]. `name` is that of its file,
    /// without extension.
    pub fn figure(&mut self, name: &'static str, svg: String, caption: impl Into<String>) {
        self.parts.push(Part::Figure { name, svg, caption: caption.into() });
    }

    /// The names and texts of its charts.
    pub fn figures(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.parts.iter().filter_map(|part| match part {
            Part::Figure { name, svg, .. } => Some((*name, &**svg)),
            _ => None,
        })
    }

    /// One HTML page.
    pub fn html(&self) -> String {
        let title = html(&self.title);
        let mut text = format!(
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
             <title>{title}</title><style>{STYLE}</style></head>\n<body>\n<h1>{title}</h1>\n"
        );
        // Writing to a string cannot fail.
        for part in &self.parts {
            let _ = match part {
                Part::Heading(heading) => writeln!(text, "<h2>{}</h2>", html(heading)),
                Part::Text(paragraph) => writeln!(text, "<p>{}</p>", html(paragraph)),
                Part::List(lines) => {
                    let items: String =
                        lines.iter().map(|line| format!("<li>{}</li>\n", html(line))).collect();
                    writeln!(text, "<ul>\n{items}</ul>")
                }
                Part::Table { folded: None, heads, rows } => writeln!(text, "{}", html_table(heads, rows)),
                Part::Table { folded: Some(title), heads, rows } => writeln!(
                    text,
                    "<details><summary>{}</summary>\n{}\n</details>",
                    html(title),
                    html_table(heads, rows)
                ),
                Part::Figure { svg, caption, .. } => writeln!(
                    text,
                    "<figure>{}<figcaption>{}</figcaption></figure>",
                    scalable(svg),
                    html(caption)
                ),
            };
        }
        text + "</body></html>\n"
    }

    /// Markdown; its charts are files that begin with `stem`, or are left out without one.
    pub fn markdown(&self, stem: Option<&str>) -> String {
        let mut text = format!("# {}\n", markdown(&self.title));
        for part in &self.parts {
            let _ = match part {
                Part::Heading(heading) => writeln!(text, "\n## {}", markdown(heading)),
                Part::Text(paragraph) => writeln!(text, "\n{}", markdown(paragraph)),
                Part::List(lines) => {
                    let items: String = lines.iter().map(|line| format!("\n- {}", markdown(line))).collect();
                    writeln!(text, "{items}")
                }
                Part::Table { folded, heads, rows } => {
                    let title = folded.as_ref().map(|title| format!("\n## {}\n", markdown(title)));
                    let rule = (0..heads.len()).map(|n| if is_number(rows, n) { "---:" } else { "---" });
                    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
                    let rows: String = rows
                        .iter()
                        .map(|row| {
                            line(
                                &row.iter()
                                    .map(|(Cell::Text(cell) | Cell::Number(cell))| markdown(cell))
                                    .collect::<Vec<_>>(),
                            )
                        })
                        .collect();
                    write!(
                        text,
                        "{}\n| {} |\n| {} |\n{rows}",
                        title.unwrap_or_default(),
                        heads.join(" | "),
                        rule.collect::<Vec<_>>().join(" | ")
                    )
                }
                Part::Figure { name, caption, .. } => stem.map_or(Ok(()), |stem| {
                    writeln!(text, "\n![{0}]({stem}-{name}.svg)\n\n{0}", markdown(caption))
                }),
            };
        }
        text
    }

    /// Writes the Markdown form and its charts.
    pub fn write_markdown(&self, dir: &Path, name: &str) -> io::Result<()> {
        let stem = name.strip_suffix(".md").unwrap_or(name);
        let charts = self.figures().map(|(name, svg)| write_file(dir, &format!("{stem}-{name}.svg"), svg));
        all_written(charts.chain([write_file(dir, name, self.markdown(Some(stem)))]))
    }

    /// Writes both forms, and the figures that they are made from as JSON: `STEM.md`, `.html` and `.json`.
    pub fn write(&self, dir: &Path, stem: &str, figures: &impl Serialize) -> io::Result<()> {
        let json = serde_json::to_string_pretty(figures).map_err(io::Error::from);
        all_written([
            self.write_markdown(dir, &format!("{stem}.md")),
            write_file(dir, &format!("{stem}.html"), self.html()),
            json.and_then(|json| write_file(dir, &format!("{stem}.json"), json)),
        ])
    }
}

/// Writes a file of a report; an error names it.
pub fn write_file(dir: &Path, name: &str, content: impl AsRef<[u8]>) -> io::Result<()> {
    file::replace(&dir.join(name), content.as_ref())
        .map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))
}

/// What became of all files of a report: an error has those of each file, because where one cannot be
/// written, others may be.
pub fn all_written(files: impl IntoIterator<Item = io::Result<()>>) -> io::Result<()> {
    let lost: Vec<String> =
        files.into_iter().filter_map(Result::err).map(|error| error.to_string()).collect();
    if lost.is_empty() { Ok(()) } else { Err(io::Error::other(lost.join("; "))) }
}

/// Text on a page.
fn html(text: &str) -> String {
    let signs = [('&', "&amp;"), ('<', "&lt;"), ('>', "&gt;"), ('"', "&quot;"), ('\'', "&#39;")];
    signs.iter().fold(plain::line(text).into_owned(), |text, (sign, name)| text.replace(*sign, name))
}

/// Text in a line of Markdown.
fn markdown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\r' => out.push(' '),
            '|' | '<' | '[' | ']' | '\\' | '*' | '_' | '`' | '#' => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
    out
}

/// Whether a column has numbers.
fn is_number(rows: &[Vec<Cell>], column: usize) -> bool {
    matches!(rows.first().and_then(|row| row.get(column)), Some(Cell::Number(_)))
}

fn html_table(heads: &[&str], rows: &[Vec<Cell>]) -> String {
    let cell = |tag: &str, is_number: bool, text: &str| {
        let class = if is_number { " class=\"n\"" } else { "" };
        format!("<{tag}{class}>{}</{tag}>", html(text))
    };
    let heads: String =
        heads.iter().enumerate().map(|(n, head)| cell("th", is_number(rows, n), head)).collect();
    let row = |row: &Vec<Cell>| {
        let cells = row.iter().map(|one| match one {
            Cell::Text(text) => cell("td", false, text),
            Cell::Number(text) => cell("td", true, text),
        });
        format!("<tr>{}</tr>\n", cells.collect::<String>())
    };
    let rows: String = rows.iter().map(row).collect();
    format!("<div class=\"wide\"><table><thead><tr>{heads}</tr></thead><tbody>\n{rows}</tbody></table></div>")
}

/// The same chart without a fixed size, so that it fills its place; its view box keeps the aspect
/// ratio.
fn scalable(svg: &str) -> String {
    let Some((head, rest)) = svg.split_once('>') else { return svg.to_owned() };
    let sized = |word: &&str| word.starts_with("width=") || word.starts_with("height=");
    let kept: Vec<&str> = head.split(' ').filter(|word| !sized(word)).collect();
    format!("{}>{rest}", kept.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn all_text_is_escaped_in_both_forms() {
        let mut doc = Document::new("a <b>|b & \"c\"");
        doc.say("<script>x</script> [a](b)\n# no heading");
        doc.heading("<i>");
        doc.table(&["<a>", "b"], [vec![Cell::text("1|2</table>"), Cell::number("1 < 2")]]);
        doc.folded("</summary>", &["<pre>"], []);
        doc.figure("all", "<svg/>".to_owned(), "c");
        let markdown = doc.markdown(Some("report"));
        for part in [
            "# a \\<b>\\|b",
            "\\<script>x\\</script> \\[a\\](b) \\# no heading",
            "| <a> | b |\n| --- | ---: |\n| 1\\|2\\</table> | 1 \\< 2 |",
            "![c](report-all.svg)",
        ] {
            assert!(markdown.contains(part), "{part} in {markdown}");
        }
        assert!(!doc.markdown(None).contains("svg"));
        let html = doc.html();
        let body = html.split_once("<body>").expect("there is one").1;
        for raw in ["<script>", "<i>", "</summary></summary>", "1 < 2", "<pre>", "a <b>", "</table></td>"] {
            assert!(!body.contains(raw), "{raw} in {body}");
        }
        assert!(body.contains("a &lt;b&gt;|b &amp; &quot;c&quot;") && body.contains("<figure><svg/>"));
    }

    #[test]
    fn an_error_names_the_files_that_could_not_be_written_and_the_others_are_there() {
        let dir = tempfile::tempdir().expect("made");
        let mut doc = Document::new("a");
        doc.figure("all", "<svg/>".to_owned(), "c");
        doc.write(dir.path(), "report", &1).expect("written");
        for in_the_way in ["report.md", "report.json"] {
            fs::remove_file(dir.path().join(in_the_way)).expect("removed");
            fs::create_dir(dir.path().join(in_the_way)).expect("made");
        }
        fs::remove_file(dir.path().join("report.html")).expect("removed");
        let error = doc.write(dir.path(), "report", &1).expect_err("two cannot be written").to_string();
        assert!(error.contains("report.md: ") && error.contains("; report.json: "), "{error}");
        assert!(!error.contains("svg") && !error.contains("html"), "{error}");
        assert!(dir.path().join("report.html").exists(), "it has a place");
    }

    #[test]
    fn a_chart_fills_its_place() {
        let svg =
            "<svg width=\"860\" height=\"420\" viewBox=\"0 0 860 420\" xmlns=\"x\">\n<text>a</text></svg>";
        assert_eq!(scalable(svg), "<svg viewBox=\"0 0 860 420\" xmlns=\"x\">\n<text>a</text></svg>");
    }
}
