//! Tables that are sorted by a click on a column's head: the page's own script does it, and without scripts they stand as they are.

use std::fmt::Write;

use plimsoll_memory::Bytes;
use plimsoll_metrics::{CaseCounts, MeanScore};

use crate::markup::escaped;

/// The script of a page: a click on a head sorts by its column, a second one the other way. Numbers are sorted as such, by what they
/// are and not as they are shown; what is unknown comes last.
pub const SCRIPT: &str = "<script>\ndocument.querySelectorAll('table.sorted th').forEach(function(head){\n  head.addEventListener('click',function(){\n    \
    var table=head.closest('table'),body=table.tBodies[0],at=head.cellIndex,up=head.dataset.up!=='1';\n    \
    table.querySelectorAll('th').forEach(function(th){delete th.dataset.up;th.removeAttribute('aria-sort')});\n    \
    head.dataset.up=up?'1':'0';head.setAttribute('aria-sort',up?'ascending':'descending');\n    \
    var rows=Array.from(body.rows);\n    \
    rows.sort(function(a,b){var x=a.cells[at],y=b.cells[at],u=x.dataset.v,v=y.dataset.v;\n      \
    if(u===undefined&&v===undefined){var s=x.textContent.localeCompare(y.textContent,undefined,{numeric:true});return up?s:-s}\n      \
    if(u===''||u===undefined)return 1;if(v===''||v===undefined)return -1;return up?u-v:v-u});\n    \
    rows.forEach(function(row){body.appendChild(row)});\n  });\n});\n</script>\n";

/// A cell of a table.
pub struct Cell {
    /// The content as HTML.
    html: String,
    /// The number by which cells are sorted, if this is one; the inner value is `None` if the number is unknown.
    value: Option<Option<f64>>,
}

impl Cell {
    /// Text as it is.
    pub fn text(text: &str) -> Cell {
        Cell { html: escaped(text), value: None }
    }

    /// HTML that is sorted as text.
    pub fn html(html: String) -> Cell {
        Cell { html, value: None }
    }

    /// A number as it is shown; a dash where there is none.
    pub fn number(value: Option<f64>, shown: impl Fn(f64) -> String) -> Cell {
        Cell { html: value.map_or("–".into(), |value| escaped(&shown(value))), value: Some(value) }
    }

    /// So many of something.
    pub fn count(count: u64) -> Cell {
        Cell { html: count.to_string(), value: Some(Some(count as f64)) }
    }

    /// A number with an interval behind it.
    pub fn interval(value: Option<f64>, ends: Option<[f64; 2]>, shown: impl Fn(f64) -> String) -> Cell {
        let mut cell = Cell::number(value, &shown);
        if let Some([low, high]) = ends {
            let _ =
                write!(cell.html, " <small>[{}, {}]</small>", escaped(&shown(low)), escaped(&shown(high)));
        }
        cell
    }

    /// A mean with its interval and, unless all cases have the score, how many do.
    pub fn mean(mean: MeanScore, ends: Option<[f64; 2]>, shown: impl Fn(f64) -> String) -> Cell {
        let mut cell = Cell::interval(mean.value, ends, &shown);
        if mean.value.is_some_and(f64::is_infinite) {
            cell.html = CaseCounts::default().beside(mean.value, &shown);
        }
        if !mean.cases.is_complete() {
            let _ = write!(cell.html, " <small>({})</small>", mean.cases);
        }
        cell
    }

    /// So many bytes.
    pub fn bytes(bytes: Option<Bytes>) -> Cell {
        let shown = bytes.map_or("–".into(), |bytes| bytes.to_string());
        Cell { html: shown, value: Some(bytes.map(|bytes| bytes.0 as f64)) }
    }
}

/// A table with a head.
pub struct Table {
    html: String,
}

impl Table {
    /// With these columns.
    pub fn new<'a>(columns: impl IntoIterator<Item = &'a str>) -> Table {
        let mut html = String::from("<div class=\"wide\"><table class=\"sorted\"><thead><tr>");
        for column in columns {
            // Writing to a string cannot fail.
            let _ = write!(html, "<th scope=\"col\">{}</th>", escaped(column));
        }
        html.push_str("</tr></thead><tbody>\n");
        Table { html }
    }

    /// Appends a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.html.push_str("<tr>");
        for Cell { html, value } in cells {
            let _ = match value {
                None => write!(self.html, "<td>{html}</td>"),
                Some(value) => {
                    // Scripts write infinity out.
                    let value =
                        value.map_or(String::new(), |value| value.to_string().replace("inf", "Infinity"));
                    write!(self.html, "<td class=\"n\" data-v=\"{value}\">{html}</td>")
                }
            };
        }
        self.html.push_str("</tr>\n");
    }

    /// The whole table.
    pub fn html(mut self) -> String {
        self.html.push_str("</tbody></table></div>\n");
        self.html
    }
}
