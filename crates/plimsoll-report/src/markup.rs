//! The basics of pages and drawings: text as HTML and XML, the style of a page, readable numbers.

use crate::contents::GENERATOR;
use crate::text;

/// The style that all pages begin with.
pub const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem;color:#1d232b}\
    h1{font-size:1.5rem;margin:0}h2{font-size:1.1rem;margin:2rem 0 .5rem}p.lead{color:#55606e;margin:.3rem 0}\
    .plots{display:flex;flex-wrap:wrap;gap:1.5rem}figure{margin:0}figcaption{color:#55606e;font-size:.85rem}\
    svg{max-width:100%;height:auto}svg text{font:11px system-ui,sans-serif;fill:#55606e}svg .grid{stroke:#e3e7ec}";

/// Text as HTML and XML, in elements and in attributes. Control characters, which XML does not have, and those that change the direction of
/// writing are written as in a terminal.
pub fn escaped(text: &str) -> String {
    let text = text::escaped(text);
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The beginning of a page: its title, what its head has beside that, and what its style has beside [`STYLE`].
pub fn beginning(title: &str, head: &str, styles: &[&str]) -> String {
    let (title, styles) = (escaped(title), styles.concat());
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">{GENERATOR}{head}<title>{title}</title>\
         <style>{STYLE}{styles}</style></head><body>\n"
    )
}

/// A number with three digits that count.
pub fn number(value: f64) -> String {
    let digits = (2 - value.abs().max(1e-12).log10().floor() as i32).clamp(0, 9) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_string() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_count() {
        assert_eq!(
            [0.00124, 4.97, 1.0, 512.0, 123456.0].map(number),
            ["0.00124", "4.97", "1", "512", "123456"]
        );
    }

    #[test]
    fn no_text_can_end_an_element_or_an_attribute() {
        assert_eq!(escaped("<b>\"&\""), "&lt;b&gt;&quot;&amp;&quot;");
        assert_eq!(escaped("a\u{1b}b\u{202e}\n"), "a\\u001bb\\u202e\n");
    }
}
