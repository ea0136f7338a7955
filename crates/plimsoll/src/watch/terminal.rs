//! The view in a terminal: it goes on until it is left.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGHUP, SIGTERM};

use super::frame::draw;
use super::watched::Watched;
use crate::failure::{Failure, Outcome};

/// How often files are read.
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
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&ended))?;
    }
    let mut terminal = ratatui::try_init()?;
    let went = follow(&mut terminal, watched, &ended);
    ratatui::try_restore()?;
    went
}

fn follow(terminal: &mut DefaultTerminal, watched: &mut Watched, ended: &AtomicBool) -> Outcome {
    let mut selected = watched.first();
    loop {
        let next = Instant::now() + EVERY;
        selected = selected.min(watched.folds.len().saturating_sub(1));
        terminal.draw(|frame| draw(frame, watched, selected))?;
        while event::poll(next.saturating_duration_since(Instant::now()))? {
            match event::read()? {
                Event::Key(key) if is_end(&key) => return Ok(()),
                Event::Key(KeyEvent { code: KeyCode::Down, kind: KeyEventKind::Press, .. }) => selected += 1,
                Event::Key(KeyEvent { code: KeyCode::Up, kind: KeyEventKind::Press, .. }) => {
                    selected = selected.saturating_sub(1);
                }
                _ => {}
            }
            selected = selected.min(watched.folds.len().saturating_sub(1));
            terminal.draw(|frame| draw(frame, watched, selected))?;
        }
        if ended.load(Ordering::Relaxed) {
            return Ok(());
        }
        watched.refresh()?;
    }
}

/// Whether a key ends the view: q, escape, or Ctrl-C, which is a key while the terminal is ours.
fn is_end(key: &KeyEvent) -> bool {
    let control_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind == KeyEventKind::Press && (control_c || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc))
}
