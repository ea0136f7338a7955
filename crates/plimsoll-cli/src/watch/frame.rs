//! The view of a run, drawn into a frame of a terminal.

use plimsoll_monitor::FoldFollower;
use plimsoll_report::duration::duration;
use plimsoll_report::live::{Watched, WatchedFold, bars, below};
use plimsoll_report::progress_picture::axis::Axis;
use plimsoll_report::text::or_dash;
use ratatui::backend::TestBackend;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{
    Axis as ChartAxis, Block, Chart, Dataset, GraphType, Paragraph, Row, Table, TableState,
};
use ratatui::{Frame, Terminal};

/// Columns of a frame that is printed, where the variable COLUMNS does not say.
const COLUMNS: u16 = 140;
/// The sizes that COLUMNS and LINES may ask for.
const SIZES: std::ops::RangeInclusive<u16> = 10..=1000;
/// Rows of charts.
const CHART: u16 = 14;
/// Rows of charts below which there are none.
const LEAST_CHART: u16 = 8;
/// Columns below which one chart is drawn.
const TWO_CHARTS: u16 = 80;
/// Rows of events, with their border.
const EVENTS: u16 = 8;
/// The rows that the table of folds always has, with its border and head.
const LEAST_TABLE: u16 = 4;
/// Columns of a bar at most, and of the name before it.
const BAR: usize = 40;
const NAME: usize = 22;
/// Columns of the number behind a bar.
const NUMBER: usize = 10;
/// The most other folds whose curves are drawn behind the shown fold's.
const OTHERS: usize = 16;

/// Numbers over epochs.
type Points = Vec<(f64, f64)>;

/// One frame as text: as wide and as high as the variables COLUMNS and LINES say, else as high as it needs to be.
pub fn once(watched: &Watched) -> String {
    let asked =
        |name: &str| std::env::var(name).ok()?.parse::<u16>().ok().filter(|size| SIZES.contains(size));
    let columns = asked("COLUMNS").unwrap_or(COLUMNS);
    let selected = watched.first();
    let rows = u16::try_from(watched.folds.len()).unwrap_or(u16::MAX / 2).min(u16::MAX / 2);
    let height = || 1 + CHART + memory_rows(watched.folds.get(selected)) + rows + 3 + EVENTS;
    let height = asked("LINES").unwrap_or_else(height);
    let Ok(mut terminal) = Terminal::new(TestBackend::new(columns, height));
    let Ok(_) = terminal.draw(|frame| draw(frame, watched, selected));
    let buffer = terminal.backend().buffer();
    let mut text = String::new();
    for row in buffer.content().chunks(usize::from(columns)) {
        let line: String = row.iter().map(|cell| cell.symbol()).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Draws all, with one fold looked at closely.
pub fn draw(frame: &mut Frame<'_>, watched: &Watched, selected: usize) {
    let fold = watched.folds.get(selected);
    let [charts, memory, events] = heights(frame.area().height, memory_rows(fold));
    let [title, charts, memory, folds, events] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(charts),
        Constraint::Length(memory),
        Constraint::Min(LEAST_TABLE),
        Constraint::Length(events),
    ])
    .areas(frame.area());
    let bold = Style::new().add_modifier(Modifier::BOLD);
    frame.render_widget(Line::styled(watched.title(), bold), title);
    if let Some(fold) = fold {
        let others = || watched.folds.iter().enumerate().filter(|(place, _)| *place != selected);
        let others: Vec<&FoldFollower> = others().map(|(_, fold)| &fold.follower).take(OTHERS).collect();
        if charts.height > 0 && charts.width < TWO_CHARTS {
            loss(frame, charts, fold, &others);
        } else if charts.height > 0 {
            let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(charts);
            loss(frame, left, fold, &others);
            scores(frame, right, fold, &others);
        }
        if memory.height > 0 {
            held(frame, memory, fold);
        }
    }
    table(frame, folds, watched, selected);
    if events.height > 0 {
        last_events(frame, events, watched);
    }
}

/// The rows of charts, memory and events in a terminal of a height. Parts that do not fit beside the title and the table of folds are left
/// out: events first, then charts, then rows of memory.
fn heights(height: u16, memory: u16) -> [u16; 3] {
    let left = height.saturating_sub(1 + LEAST_TABLE);
    // A border without a row within shows nothing.
    let memory = if left < 3 { 0 } else { memory.min(left) };
    let left = left - memory;
    let charts = if left < LEAST_CHART { 0 } else { CHART.min(left) };
    let left = left - charts;
    [charts, memory, if left < 3 { 0 } else { EVENTS.min(left) }]
}

/// Text with its end left out where it is longer.
fn shortened(text: &str, longest: usize) -> String {
    match text.chars().count() > longest {
        true => text.chars().take(longest.saturating_sub(1)).chain(['…']).collect(),
        false => text.into(),
    }
}

/// The points of a curve that are numbers.
fn curve(follower: &FoldFollower, of: impl Fn(&plimsoll_monitor::Point) -> Option<f64>) -> Points {
    let number =
        |(epoch, point): &(u64, _)| Some((*epoch as f64, of(point).filter(|number| number.is_finite())?));
    follower.points().iter().filter_map(number).collect()
}

fn loss(frame: &mut Frame<'_>, area: Rect, fold: &WatchedFold, others: &[&FoldFollower]) {
    let behind = others.iter().map(|other| curve(other, |point| point.train_loss)).collect();
    let train = ("train", Color::Blue, curve(&fold.follower, |point| point.train_loss));
    let validation = ("validation", Color::Yellow, curve(&fold.follower, |point| point.validation_loss));
    chart(frame, area, &format!("loss of {}", fold.name), behind, [train, validation]);
}

fn scores(frame: &mut Frame<'_>, area: Rect, fold: &WatchedFold, others: &[&FoldFollower]) {
    let behind = others.iter().map(|other| curve(other, |point| point.scores[0])).collect();
    let [first, second] = fold.follower.score_names();
    let of_epoch = (first, Color::Green, curve(&fold.follower, |point| point.scores[0]));
    let more = (second, Color::Magenta, curve(&fold.follower, |point| point.scores[1]));
    chart(frame, area, &format!("scores of {}", fold.name), behind, [of_epoch, more]);
}

/// Draws two curves in front of the curves of other folds.
fn chart(
    frame: &mut Frame<'_>,
    area: Rect,
    title: &str,
    behind: Vec<Points>,
    curves: [(&str, Color, Points); 2],
) {
    let all = || behind.iter().chain(curves.iter().map(|(.., points)| points)).flatten();
    let up = Axis::new(all().map(|(_, number)| *number), 4.0);
    let last = all().map(|(epoch, _)| *epoch).fold(1.0, f64::max);
    let line = |points| Dataset::default().marker(Marker::Braille).graph_type(GraphType::Line).data(points);
    let grey = behind.iter().map(|points| line(points).style(Style::new().fg(Color::DarkGray)));
    let own = curves.iter().map(|(_, colour, points)| line(points).style(Style::new().fg(*colour)));
    let mut names = vec![Span::raw(format!(" {title}: "))];
    for (place, (name, colour, points)) in curves.iter().enumerate() {
        let now = points.last().map_or(String::new(), |(_, number)| format!(" {number:.4}"));
        let comma = if place > 0 { ", " } else { "" };
        names.push(Span::styled(format!("{comma}{name}{now}"), Style::new().fg(*colour)));
    }
    names.push(Span::raw(" "));
    let grey_style = Style::new().fg(Color::Gray);
    let labels: Vec<String> = up.ticks().into_iter().map(|(_, label)| label).collect();
    let chart = Chart::new(grey.chain(own).collect())
        .block(Block::bordered().title(Line::from(names)))
        .legend_position(None)
        .x_axis(
            ChartAxis::default()
                .bounds([0.0, last])
                .labels(["0".into(), format!("epoch {last}")])
                .style(grey_style),
        )
        .y_axis(ChartAxis::default().bounds([up.low, up.high]).labels(labels).style(grey_style));
    frame.render_widget(chart, area);
}

/// The number of rows of the memory of a fold, with its border.
fn memory_rows(fold: Option<&WatchedFold>) -> u16 {
    let rows = fold.map_or(0, |fold| {
        let sample = fold.follower.sample();
        bars(&fold.status, sample).len() + below(&fold.status, sample).len()
    });
    // A dozen at most.
    rows as u16 + 2
}

fn held(frame: &mut Frame<'_>, area: Rect, fold: &WatchedFold) {
    let sample = fold.follower.sample();
    let limit = fold.status.limit;
    let mut lines: Vec<Line<'_>> = Vec::new();
    let bars = bars(&fold.status, sample);
    let longest = bars.iter().map(|bar| bar.name.chars().count()).max();
    // Within the border: the name, a space, the bar, a space, the number.
    let room = usize::from(area.width).saturating_sub(2 + 2 + NUMBER);
    let width = longest.map_or(NAME, |longest| longest.min(NAME)).min(room / 2);
    let wide = BAR.min(room - width);
    for bar in bars {
        let full = (bar.share * wide as f64).round() as usize;
        let colour = match bar.name.as_str() {
            "resident" => Color::Blue,
            "limit" => Color::Red,
            _ => Color::Gray,
        };
        lines.push(Line::from(vec![
            Span::raw(format!("{:<width$} ", shortened(&bar.name, width))),
            Span::styled("█".repeat(full), Style::new().fg(colour)),
            Span::styled("·".repeat(wide - full), Style::new().fg(Color::DarkGray)),
            Span::raw(format!(" {:>NUMBER$}", bar.bytes.to_string())),
        ]));
    }
    lines.extend(below(&fold.status, sample).into_iter().map(Line::raw));
    let title = match limit {
        Some(limit) => format!(" memory of {}, of the limit of {limit} ", fold.name),
        None => format!(" memory of {} ", fold.name),
    };
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(title)), area);
}

/// Columns of the table of folds, as they are left out where the terminal is too narrow: the last ones first.
const KEPT_FIRST: [usize; 9] = [0, 8, 1, 5, 3, 7, 4, 2, 6];

fn table(frame: &mut Frame<'_>, area: Rect, watched: &Watched, selected: usize) {
    let number = |number: Option<f64>| number.map_or("–".into(), |number| format!("{number:.4}"));
    let name = watched.folds.iter().map(|fold| fold.name.chars().count()).max();
    // Half of a narrow terminal.
    let most = usize::from(area.width / 2).clamp(6, 40);
    let name = name.map_or(most, |name| name.clamp(6, most));
    let [first, second] =
        watched.folds.get(selected).map_or(["score", ""], |fold| fold.follower.score_names());
    let heads = ["fold", "epoch", "step", "loss", "validation", first, second, "time left", "state"];
    let widths = [name, 9, 13, 8, 10, first.len(), second.len(), 12, 12];
    // Within the border, with a space between columns.
    let mut room = usize::from(area.width).saturating_sub(2);
    let mut shown: Vec<usize> = KEPT_FIRST
        .into_iter()
        .take_while(|column| {
            let fits = widths[*column] <= room || *column == 0;
            room = room.saturating_sub(widths[*column] + 1);
            fits
        })
        .collect();
    shown.sort_unstable();
    let rows = watched.folds.iter().map(|fold| {
        let status = &fold.status;
        let last = fold.follower.points().last().map(|(_, point)| *point);
        let steps = fold.follower.sample().map(|sample| sample.steps);
        let cells = [
            shortened(&fold.name, name),
            format!("{}/{}", status.epochs_done, status.epochs),
            format!("{}/{}", or_dash(steps), fold.follower.steps()),
            number(last.and_then(|point| point.train_loss)),
            number(last.and_then(|point| point.validation_loss)),
            number(last.and_then(|point| point.scores[0])),
            number(last.and_then(|point| point.scores[1])),
            or_dash(status.seconds_left.map(duration)),
            status.state.describe(),
        ];
        Row::new(shown.iter().map(|column| cells[*column].clone()).collect::<Vec<_>>())
    });
    // The state takes what is left.
    let constraints = shown.iter().map(|column| match *column {
        8 => Constraint::Min(widths[8] as u16),
        column => Constraint::Length(widths[column] as u16),
    });
    let head = Row::new(shown.iter().map(|column| heads[*column]).collect::<Vec<_>>());
    let table = Table::new(rows, constraints)
        .header(head.style(Style::new().add_modifier(Modifier::BOLD)))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .block(Block::bordered().title(" folds "));
    let mut state = TableState::default().with_selected(Some(selected));
    frame.render_stateful_widget(table, area, &mut state);
}

fn last_events(frame: &mut Frame<'_>, area: Rect, watched: &Watched) {
    let events = watched.events(usize::from(area.height));
    let lines =
        events.into_iter().map(|(fold, told)| Line::raw(format!("{} {fold}: {}", told.time, told.what)));
    let paragraph = Paragraph::new(lines.collect::<Vec<_>>());
    frame.render_widget(paragraph.block(Block::bordered().title(" last events ")), area);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_low_terminal_keeps_the_title_and_the_table_and_leaves_out_what_has_no_room() {
        assert_eq!(heights(60, 12), [CHART, 12, EVENTS]);
        assert_eq!(heights(10, 12), [0, 5, 0]);
        assert_eq!(heights(7, 12), [0, 0, 0]);
        assert_eq!(heights(0, 12), [0, 0, 0]);
        for height in 0..80 {
            let all: u16 = heights(height, 12).iter().sum();
            assert!(all + 1 + LEAST_TABLE <= height.max(1 + LEAST_TABLE), "{height}");
        }
    }

    #[test]
    fn long_names_end_in_an_ellipsis() {
        assert_eq!(shortened("abcdef", 4), "abc…");
        assert_eq!(shortened("äöü", 3), "äöü");
        assert_eq!(shortened("abc", 0), "…");
    }
}
