//! What is watched, as a page without scripts that loads itself again.

use std::fmt::Write;

use super::bars::{bars, in_words};
use super::chart::{Series, chart};
use super::watched::{Watched, WatchedFold};
use crate::duration::duration;
use crate::markup::escaped;
use crate::report::or_dash;

/// Seconds until the page loads itself again.
const AGAIN: u32 = 5;
/// The most folds whose curves are drawn: those that run first.
const DRAWN: usize = 12;
/// The most events.
const EVENTS: usize = 30;

const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;margin:1.5rem auto;max-width:80rem;padding:0 1rem;color:#1d232b}\
    h1{font-size:1.2rem}h2{font-size:1.05rem;margin:1.6rem 0 .4rem}table{border-collapse:collapse;font-size:.9rem}\
    td,th{padding:.2rem .7rem .2rem 0;text-align:left;white-space:nowrap}th{border-bottom:1px solid #dfe4ea}\
    td.state{white-space:normal}.charts{display:flex;flex-wrap:wrap;gap:1rem}figure{margin:0;width:24rem}\
    figcaption{color:#55606e;font-size:.82rem}svg{width:100%}svg text{font:11px system-ui,sans-serif;fill:#55606e}\
    svg .grid{stroke:#e3e7ec}polyline{fill:none;stroke-width:1.6}polyline.a{stroke:#1f60b0}polyline.b{stroke:#e27814}\
    polyline.c{stroke:#22885c}polyline.d{stroke:#2d3440}circle.a{fill:#1f60b0}circle.b{fill:#e27814}circle.c{fill:#22885c}\
    circle.d{fill:#2d3440}span.a{color:#1f60b0}span.b{color:#e27814}span.c{color:#22885c}span.d{color:#2d3440}\
    span.mark{color:#be1e2d}line.mark{stroke:#be1e2d;stroke-dasharray:6 4}.bars td{padding:.05rem .6rem .05rem 0}\
    progress{width:16rem;height:.8rem}p.words{color:#55606e;font-size:.85rem;margin:.3rem 0}\
    ul{padding-left:1.2rem;font-size:.88rem}time{color:#55606e}";

/// The whole page.
pub fn page(watched: &Watched) -> String {
    let title = escaped(&watched.title());
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"{AGAIN}\">\
         <title>{title}</title><style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n"
    );
    table(&mut html, watched);
    let mut drawn: Vec<&WatchedFold> = watched.folds.iter().collect();
    // The order of those that are alike stays.
    drawn.sort_by_key(|fold| !fold.is_running());
    for fold in drawn.iter().take(DRAWN) {
        one_fold(&mut html, fold);
    }
    if let more @ 1.. = drawn.len().saturating_sub(DRAWN) {
        let _ = writeln!(html, "<p class=\"words\">Curves of {more} more folds are not drawn.</p>");
    }
    html.push_str("<h2>Last events</h2>\n<ul>\n");
    for (fold, told) in watched.events(EVENTS) {
        let (time, fold, what) = (escaped(&told.time), escaped(fold), escaped(&told.what));
        let _ = writeln!(html, "<li><time>{time}</time> <b>{fold}</b>: {what}</li>");
    }
    html + "</ul>\n</body></html>\n"
}

/// A page that says why there is none.
pub fn failed(what: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>plimsoll watch</title></head><body><p>{}</p></body></html>\n",
        escaped(what)
    )
}

fn table(html: &mut String, watched: &Watched) {
    let names = watched.folds.first().map_or(["score", ""], |fold| fold.follower.score_names());
    html.push_str("<table><tr>");
    for head in
        ["fold", "epoch", "loss", "validation", names[0], names[1], "held", "planned", "time left", "state"]
    {
        let _ = write!(html, "<th>{head}</th>");
    }
    html.push_str("</tr>\n");
    let number = |number: Option<f64>| number.map_or("–".into(), |number| format!("{number:.4}"));
    for fold in &watched.folds {
        let status = &fold.status;
        let last = fold.follower.points().last().map(|(_, point)| *point);
        html.push_str("<tr>");
        for cell in [
            fold.name.clone(),
            format!("{}/{}", status.epochs_done, status.epochs),
            number(last.and_then(|point| point.train_loss)),
            number(last.and_then(|point| point.validation_loss)),
            number(last.and_then(|point| point.scores[0])),
            number(last.and_then(|point| point.scores[1])),
            or_dash(status.resident),
            or_dash(status.planned),
            or_dash(status.seconds_left.map(duration)),
        ] {
            let _ = write!(html, "<td>{}</td>", escaped(&cell));
        }
        let _ = writeln!(html, "<td class=\"state\">{}</td></tr>", escaped(&status.state.describe()));
    }
    html.push_str("</table>\n");
}

fn one_fold(html: &mut String, fold: &WatchedFold) {
    let follower = &fold.follower;
    let _ = write!(html, "<h2>{}</h2>\n<div class=\"charts\">\n", escaped(&fold.name));
    let series = |name, class, of: &dyn Fn(&plimsoll_monitor::Point) -> Option<f64>| Series {
        name,
        class,
        points: follower.points().iter().filter_map(|(epoch, point)| Some((*epoch, of(point)?))).collect(),
    };
    let losses = [
        series("train", "a", &|point| point.train_loss),
        series("validation", "b", &|point| point.validation_loss),
    ];
    html.push_str(&chart("loss", &losses, None));
    let [first, second] = follower.score_names();
    let scores =
        [series(first, "c", &|point| point.scores[0]), series(second, "d", &|point| point.scores[1])];
    html.push_str(&chart("scores", &scores, None));
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let held = follower.costs().iter().map(|(epoch, cost)| (*epoch, mib(cost.resident_bytes))).collect();
    let held = [Series { name: "resident", class: "a", points: held }];
    html.push_str(&chart("memory in MiB", &held, fold.status.line.map(|line| ("line", mib(line.0)))));
    html.push_str("</div>\n<table class=\"bars\">\n");
    let sample = follower.sample();
    for bar in bars(&fold.status, sample) {
        let _ = writeln!(
            html,
            "<tr><td>{}</td><td><progress value=\"{:.4}\"></progress></td><td>{}</td></tr>",
            escaped(bar.name.trim_start()),
            bar.share,
            bar.bytes
        );
    }
    html.push_str("</table>\n");
    for words in sample.into_iter().flat_map(in_words) {
        let _ = writeln!(html, "<p class=\"words\">{}</p>", escaped(&words));
    }
}
