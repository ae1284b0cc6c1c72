//! The progress of a long run, on standard error if that is a terminal.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar of `length` steps with a message and the time left.
pub fn bar(length: u64) -> ProgressBar {
    let target =
        if std::io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg} (about {eta} left)");
    ProgressBar::with_draw_target(Some(length), target).with_style(style.expect("the template is well formed"))
}
