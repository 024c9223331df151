//! A self-contained HTML page: text, tables and charts. All text is escaped.

use crate::plain;
use std::fmt::Write as _;

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

/// A page under construction.
#[derive(Clone, Debug)]
pub struct Page {
    title: String,
    body: String,
}

fn escaped(text: &str) -> String {
    let signs = [('&', "&amp;"), ('<', "&lt;"), ('>', "&gt;"), ('"', "&quot;"), ('\'', "&#39;")];
    signs.iter().fold(plain::line(text).into_owned(), |text, (sign, name)| text.replace(*sign, name))
}

impl Page {
    /// A page with a title only.
    pub fn new(title: &str) -> Self {
        Self { title: escaped(title), body: format!("<h1>{}</h1>\n", escaped(title)) }
    }

    fn put(&mut self, tag: &str, text: &str) {
        let _ = writeln!(self.body, "<{tag}>{}</{tag}>", escaped(text));
    }

    /// A heading.
    pub fn heading(&mut self, text: &str) {
        self.put("h2", text);
    }

    /// A paragraph.
    pub fn paragraph(&mut self, text: &str) {
        self.put("p", text);
    }

    /// A bulleted list.
    pub fn list(&mut self, lines: &[String]) {
        self.body.push_str("<ul>\n");
        lines.iter().for_each(|line| self.put("li", line));
        self.body.push_str("</ul>\n");
    }

    /// A chart of [`super::Chart::svg`] or [`super::Bars::svg`], with a caption.
    pub fn figure(&mut self, svg: &str, caption: &str) {
        let svg = scalable(svg);
        let _ = writeln!(self.body, "<figure>{svg}<figcaption>{}</figcaption></figure>", escaped(caption));
    }

    /// A table. The first row's cells set the alignment of the columns.
    pub fn table(&mut self, heads: &[&str], rows: &[Vec<Cell>]) {
        let class = |number: bool| if number { " class=\"n\"" } else { "" };
        self.body.push_str("<div class=\"wide\"><table><thead><tr>");
        for (n, head) in heads.iter().enumerate() {
            let number =
                rows.first().and_then(|row| row.get(n)).is_some_and(|c| matches!(c, Cell::Number(_)));
            let _ = write!(self.body, "<th{}>{}</th>", class(number), escaped(head));
        }
        self.body.push_str("</tr></thead><tbody>\n");
        for row in rows {
            self.body.push_str("<tr>");
            for cell in row {
                let (number, text) = match cell {
                    Cell::Text(text) => (false, text),
                    Cell::Number(text) => (true, text),
                };
                let _ = write!(self.body, "<td{}>{}</td>", class(number), escaped(text));
            }
            self.body.push_str("</tr>\n");
        }
        self.body.push_str("</tbody></table></div>\n");
    }

    /// Details: everything that `write` adds is folded under a summary line.
    pub fn folded(&mut self, line: &str, write: impl FnOnce(&mut Self)) {
        let _ = writeln!(self.body, "<details><summary>{}</summary>", escaped(line));
        write(self);
        self.body.push_str("</details>\n");
    }

    /// The page as one HTML document.
    pub fn finish(&self) -> String {
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
             <title>{}</title><style>{STYLE}</style></head>\n<body>\n{}</body></html>\n",
            self.title, self.body
        )
    }
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

    #[test]
    fn all_text_is_escaped() {
        let mut page = Page::new("a <b> & \"c\"");
        page.heading("<script>");
        page.table(
            &["<i>"],
            &[vec![Cell::Text("</table>".to_owned())], vec![Cell::Number("1 < 2".to_owned())]],
        );
        page.folded("</summary>", |page| page.paragraph("<pre>"));
        let text = page.finish();
        let bodies = text.split_once("<body>").expect("there is one").1;
        for raw in ["<script>", "<i>", "</summary></summary>", "1 < 2", "<p><pre>", "a <b>"] {
            assert!(!bodies.contains(raw), "{raw} in {text}");
        }
        assert!(text.contains("&lt;script&gt;") && text.contains("a &lt;b&gt; &amp; &quot;c&quot;"));
    }

    #[test]
    fn a_chart_fills_its_place() {
        let svg =
            "<svg width=\"860\" height=\"420\" viewBox=\"0 0 860 420\" xmlns=\"x\">\n<text>a</text></svg>";
        assert_eq!(scalable(svg), "<svg viewBox=\"0 0 860 420\" xmlns=\"x\">\n<text>a</text></svg>");
    }
}
