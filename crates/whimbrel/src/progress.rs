//! Progress of long work, on standard error if that is a terminal.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A progress bar of bytes.
pub fn bytes(what: &'static str) -> ProgressBar {
    let is_seen = std::io::stderr().is_terminal();
    let target = if is_seen { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let style = "{msg} {wide_bar} {bytes}/{total_bytes}, {bytes_per_sec}, about {eta} left";
    let style = ProgressStyle::with_template(style).expect("the template is well formed");
    ProgressBar::with_draw_target(Some(0), target).with_style(style).with_message(what)
}
