//! The view in a terminal, which runs until the user leaves it.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use plimsoll_report::live::Watched;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::frame::draw;
use crate::failure::{Failure, Outcome};
use crate::signals;

/// The interval between reads of files.
const EVERY: Duration = Duration::from_secs(1);

/// Shows what is watched until `q` is pressed.
pub fn show(watched: &mut Watched) -> Outcome {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(Failure::new(
            "the view needs a terminal",
            "--once prints one frame as text, and --serve shows a page in a browser",
        ));
    }
    // The terminal is put right again before the process ends.
    let ended = signals::end_flag()?;
    let mut terminal = ratatui::try_init()?;
    let went = follow(&mut terminal, watched, &ended);
    ratatui::try_restore()?;
    went
}

fn follow(terminal: &mut DefaultTerminal, watched: &mut Watched, ended: &AtomicBool) -> Outcome {
    let mut view = View { selected: watched.first() };
    loop {
        let next = Instant::now() + EVERY;
        terminal.draw(|frame| draw(frame, watched, view.shown_index(watched.folds.len())))?;
        while event::poll(next.saturating_duration_since(Instant::now()))? {
            if let Event::Key(key) = event::read()?
                && !view.goes_on(&key, watched.folds.len())
            {
                return Ok(());
            }
            // Anything else is a terminal of another size.
            terminal.draw(|frame| draw(frame, watched, view.shown_index(watched.folds.len())))?;
        }
        if ended.load(Ordering::Relaxed) {
            return Ok(());
        }
        watched.refresh()?;
    }
}

/// The shown part.
struct View {
    /// The place of the fold.
    selected: usize,
}

impl View {
    /// The index of the shown fold among `folds` folds.
    fn shown_index(&self, folds: usize) -> usize {
        self.selected.min(folds.saturating_sub(1))
    }

    /// Handles a key, with `folds` folds; returns `false` if it ends the view.
    fn goes_on(&mut self, key: &KeyEvent, folds: usize) -> bool {
        if is_end(key) {
            return false;
        }
        let last = folds.saturating_sub(1);
        self.selected = match key.code {
            _ if key.kind == KeyEventKind::Release => self.selected,
            KeyCode::Down | KeyCode::Char('j') => (self.shown_index(folds) + 1).min(last),
            KeyCode::Up | KeyCode::Char('k') => self.shown_index(folds).saturating_sub(1),
            KeyCode::Home => 0,
            KeyCode::End => last,
            _ => self.selected,
        };
        true
    }
}

/// Returns `true` if a key ends the view: q, escape, or Ctrl-C, which is a key in raw mode.
fn is_end(key: &KeyEvent) -> bool {
    let control_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind == KeyEventKind::Press && (control_c || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(code: KeyCode) -> KeyEvent {
        KeyEvent::new(code, KeyModifiers::NONE)
    }

    #[test]
    fn arrows_choose_a_fold_that_is_there() {
        let mut view = View { selected: 1 };
        let mut press = |code, folds| {
            assert!(view.goes_on(&key(code), folds));
            view.shown_index(folds)
        };
        assert_eq!([press(KeyCode::Down, 3), press(KeyCode::Down, 3), press(KeyCode::Down, 3)], [2, 2, 2]);
        assert_eq!([press(KeyCode::Up, 3), press(KeyCode::Up, 3), press(KeyCode::Up, 3)], [1, 0, 0]);
        assert_eq!(
            [press(KeyCode::End, 3), press(KeyCode::Char('k'), 3), press(KeyCode::Home, 3)],
            [2, 1, 0]
        );
        // Any other key, a fold less, and none at all.
        assert_eq!([press(KeyCode::End, 3), press(KeyCode::Char('x'), 2), press(KeyCode::Up, 2)], [2, 1, 0]);
        assert_eq!([press(KeyCode::Down, 0), press(KeyCode::Up, 0)], [0, 0]);
    }

    #[test]
    fn q_escape_and_control_c_end_the_view_and_c_alone_does_not() {
        let mut view = View { selected: 0 };
        for code in [KeyCode::Char('q'), KeyCode::Esc] {
            assert!(!view.goes_on(&key(code), 1));
        }
        assert!(view.goes_on(&key(KeyCode::Char('c')), 1));
        assert!(!view.goes_on(&KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL), 1));
    }
}
