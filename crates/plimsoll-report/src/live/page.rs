//! The watched folds as a page without scripts that reloads itself.

use std::fmt::Write;

use super::bars::{bars, below};
use super::watched::{Watched, WatchedFold};
use crate::duration::duration;
use crate::epoch_chart::{self, COLOURS, Chart, Series, legend};
use crate::markup::{beginning, escaped};
use crate::text::or_dash;

/// Seconds until the page loads itself again.
const AGAIN: u32 = 5;
/// The most folds whose curves are drawn: those that run first.
const DRAWN: usize = 12;
/// The most events.
const EVENTS: usize = 30;

/// Pixels of a chart.
const SIZE: [f64; 2] = [400.0, 230.0];

const STYLE: &str = "table{border-collapse:collapse;font-size:.9rem}td,th{padding:.2rem .7rem .2rem 0;text-align:left;white-space:nowrap}\
    th{border-bottom:1px solid #dfe4ea}td.state{white-space:normal}.bars td{padding:.05rem .6rem .05rem 0}.legend{font-size:.82rem;margin:0}\
    progress{width:16rem;height:.8rem}p.words{color:#55606e;font-size:.85rem;margin:.3rem 0}ul{padding-left:1.2rem;font-size:.88rem}\
    time{color:#55606e}";

/// The whole page.
pub fn page(watched: &Watched) -> String {
    let title = watched.title();
    let again = format!("<meta http-equiv=\"refresh\" content=\"{AGAIN}\">");
    let mut html = beginning(&title, &again, &[epoch_chart::STYLE, STYLE]);
    // Writing to a string cannot fail.
    let _ = writeln!(html, "<h1>{}</h1>", escaped(&title));
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
    let html = beginning("plimsoll watch", "", &[]);
    format!("{html}<p>{}</p></body></html>\n", escaped(what))
}

fn table(html: &mut String, watched: &Watched) {
    let names = watched.folds.first().map_or(["score", ""], |fold| fold.follower.score_names());
    html.push_str("<table><tr>");
    for head in
        ["fold", "epoch", "loss", "validation", names[0], names[1], "memory", "planned", "time left", "state"]
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
    let _ = write!(html, "<h2>{}</h2>\n<div class=\"plots\">\n", escaped(&fold.name));
    let series = |name: &str, colour: usize, of: &dyn Fn(&plimsoll_monitor::Point) -> Option<f64>| Series {
        name: name.into(),
        colour: COLOURS[colour],
        dashed: false,
        points: follower.points().iter().filter_map(|(at, point)| Some([*at as f64, of(point)?])).collect(),
    };
    let losses = [
        series("train", 0, &|point| point.train_loss),
        series("validation", 1, &|point| point.validation_loss),
    ];
    let shown = |number: f64| format!("{number:.4}");
    chart(html, "loss", &losses, None, &shown);
    let [first, second] = follower.score_names();
    let scores = [series(first, 2, &|point| point.scores[0]), series(second, 3, &|point| point.scores[1])];
    chart(html, "scores", &scores, None, &shown);
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let costs = follower.costs().iter();
    let points = costs.filter_map(|(epoch, cost)| Some([*epoch as f64, mib(cost.resident_bytes?)])).collect();
    let held = [Series { name: "resident".into(), colour: COLOURS[0], dashed: false, points }];
    chart(
        html,
        "memory in MiB",
        &held,
        fold.status.limit.map(|limit| (mib(limit.0), "limit".into())),
        &|mib| format!("{mib:.1} MiB"),
    );
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
    for words in below(&fold.status, sample) {
        let _ = writeln!(html, "<p class=\"words\">{}</p>", escaped(&words));
    }
}

/// A chart with a legend that says what each line has come to. Memory, which has a mark, begins at zero.
fn chart(
    html: &mut String,
    title: &str,
    series: &[Series],
    mark: Option<(f64, String)>,
    shown: &dyn Fn(f64) -> String,
) {
    let has: &[f64] = if mark.is_some() { &[0.0] } else { &[] };
    let svg = Chart { title, series, size: SIZE, has, epochs: None, mark }.svg();
    let lines = series.iter().map(|Series { name, colour, points, .. }| {
        let now = points.last().map_or(String::new(), |[_, number]| format!(" {}", shown(*number)));
        (*colour, format!("{name}{now}"))
    });
    let _ = writeln!(html, "<figure>{svg}{}</figure>", legend(lines));
}
