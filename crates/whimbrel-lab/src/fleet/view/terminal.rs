//! The terminal: entered, drawn to, listened to, and restored.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use tokio::sync::watch;

use super::screen::Screen;
use crate::fleet::board::Board;

/// The time between two frames.
const FRAME: Duration = Duration::from_millis(200);

/// The live view, on a thread of its own, so that drawing delays no delivery.
pub struct LiveView {
    thread: JoinHandle<io::Result<()>>,
    end: Arc<AtomicBool>,
}

impl LiveView {
    /// Takes the terminal. `quit` is set once the user wants the run to end.
    pub fn start(board: Arc<Board>, screen: Screen, quit: watch::Sender<bool>) -> io::Result<LiveView> {
        let end = Arc::new(AtomicBool::new(false));
        let ended = end.clone();
        let thread = thread::Builder::new().name("view".to_owned()).spawn(move || {
            let mut terminal = ratatui::try_init()?;
            let shown = show(&mut terminal, &board, screen, &quit, &ended);
            ratatui::try_restore()?;
            // Without a view no key can end the run.
            shown.inspect_err(|_| _ = quit.send_replace(true))
        })?;
        Ok(LiveView { thread, end })
    }

    /// Restores the terminal.
    pub fn stop(self) -> io::Result<()> {
        self.end.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the view has panicked")))
    }
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    board: &Board,
    mut screen: Screen,
    quit: &watch::Sender<bool>,
    end: &AtomicBool,
) -> io::Result<()> {
    while !end.load(Ordering::Relaxed) {
        let snapshot = board.snapshot();
        terminal.draw(|frame| screen.draw(frame, &snapshot))?;
        if event::poll(FRAME)? && wants_to_quit(&event::read()?) {
            quit.send_replace(true);
        }
    }
    Ok(())
}

/// Whether a key ends the run. In the view's mode the terminal reports Ctrl-C as a key.
fn wants_to_quit(event: &Event) -> bool {
    let Some(key) = event.as_key_press_event() else { return false };
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => true,
        KeyCode::Char('c') => key.modifiers.contains(KeyModifiers::CONTROL),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::crossterm::event::KeyEvent;

    #[test]
    fn q_escape_and_control_c_end_the_run() {
        let quits = |code, modifiers| wants_to_quit(&Event::Key(KeyEvent::new(code, modifiers)));
        assert!(quits(KeyCode::Char('q'), KeyModifiers::NONE));
        assert!(quits(KeyCode::Esc, KeyModifiers::NONE));
        assert!(quits(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert!(!quits(KeyCode::Char('c'), KeyModifiers::NONE));
        assert!(!wants_to_quit(&Event::FocusGained));
    }
}
