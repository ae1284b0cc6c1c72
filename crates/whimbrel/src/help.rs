//! Help pages, laid out for the width of the terminal.
//!
//! Options are laid out by the library. The text below them is laid out here: paragraphs, and
//! examples, each a command and, after two spaces or more, its explanation.

use clap::Command;

/// The widest page, in characters.
const WIDEST: usize = 100;

/// The narrowest page, in characters; a narrower terminal cuts lines.
const NARROWEST: usize = 40;

/// Indentation of an explanation that has its own line.
const INDENT: &str = "      ";

/// The width of a page on this terminal, found as the library finds it.
pub fn width() -> usize {
    let terminal = [
        rustix::termios::tcgetwinsize(rustix::stdio::stdout()),
        rustix::termios::tcgetwinsize(rustix::stdio::stderr()),
    ];
    let terminal = terminal.into_iter().flatten().map(|size| usize::from(size.ws_col)).find(|width| *width > 0);
    let told = || std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    terminal.or_else(told).unwrap_or(WIDEST).clamp(NARROWEST, WIDEST)
}

/// Lays out the pages of a command and of its subcommands.
pub fn laid_out(command: Command, width: usize) -> Command {
    let below: Vec<String> = command.get_subcommands().map(|below| below.get_name().to_owned()).collect();
    let command = match command.get_after_help().map(ToString::to_string) {
        Some(text) => command.after_help(lay_out(&text, width)),
        None => command,
    };
    let command = command.term_width(width);
    below.into_iter().fold(command, |command, name| command.mut_subcommand(name, |below| laid_out(below, width)))
}

/// Lays out text for a width.
fn lay_out(text: &str, width: usize) -> String {
    let mut out: Vec<String> = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line.starts_with("  ") {
            let mut rows = vec![line];
            while let Some(row) = lines.next_if(|line| line.starts_with("  ")) {
                rows.push(row);
            }
            examples(&rows, width, &mut out);
            continue;
        }
        let mut paragraph = line.to_owned();
        // A line that ends with its sentence ends a paragraph.
        while !paragraph.ends_with(['.', ':']) && !paragraph.is_empty() {
            let Some(more) = lines.next_if(|line| !line.is_empty() && !line.starts_with("  ")) else { break };
            paragraph = format!("{paragraph} {more}");
        }
        wrap(&paragraph, "", "", width, &mut out);
    }
    out.join("\n")
}

/// Lays out examples: explanations are in a column if all fit there; otherwise each that does not
/// fit is below its command.
fn examples(rows: &[&str], width: usize, out: &mut Vec<String>) {
    let split = |row: &str| {
        let row = row.trim_start().to_owned();
        match row.split_once("  ") {
            Some((command, what)) => (command.to_owned(), what.trim_start().to_owned()),
            None => (row, String::new()),
        }
    };
    let rows: Vec<(String, String)> = rows.iter().map(|row| split(row)).collect();
    let explained = || rows.iter().filter(|(_, what)| !what.is_empty());
    let column = explained().map(|(command, _)| command.chars().count()).max().unwrap_or(0) + 2;
    let fits = explained().all(|(_, what)| 2 + column + what.chars().count() <= width);
    for (command, what) in &rows {
        if fits && !what.is_empty() {
            out.push(format!("  {command:<column$}{what}"));
            continue;
        }
        command_line(command, width, out);
        if !what.is_empty() {
            wrap(what, INDENT, INDENT, width, out);
        }
    }
}

/// Writes a command, continued on a second line after a backslash if it is too long.
fn command_line(command: &str, width: usize, out: &mut Vec<String>) {
    let (mut line, mut is_first) = ("  ".to_owned(), true);
    for word in shell_words(command) {
        if !is_first && line.chars().count() + 1 + word.chars().count() + 2 > width {
            out.push(format!("{line} \\"));
            line = "     ".to_owned();
        }
        if !is_first {
            line.push(' ');
        }
        line += word;
        is_first = false;
    }
    out.push(line);
}

/// The words of a command. A quoted text stays together, and so do an option and its value.
fn shell_words(command: &str) -> Vec<&str> {
    let (mut words, mut begin, mut quote) = (Vec::new(), 0, None);
    for (at, letter) in command.char_indices() {
        match (quote, letter) {
            (None, '\'' | '"') => quote = Some(letter),
            (Some(open), letter) if open == letter => quote = None,
            (None, ' ') => {
                let (word, rest) = (&command[begin..at], &command[at + 1..]);
                let takes_value = word.starts_with('-') && !word.contains(['=', ' ']) && !rest.starts_with('-');
                if !takes_value {
                    words.push(word);
                    begin = at + 1;
                }
            }
            _ => {}
        }
    }
    words.push(&command[begin..]);
    words
}

/// Breaks words into lines of the width.
fn wrap(text: &str, first: &str, later: &str, width: usize, out: &mut Vec<String>) {
    let mut line = first.to_owned();
    for word in text.split_whitespace() {
        if line.trim_end().len() > later.len() && line.chars().count() + word.chars().count() > width {
            out.push(line.trim_end().to_owned());
            line = later.to_owned();
        }
        line += word;
        line.push(' ');
    }
    out.push(line.trim_end().to_owned());
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    #[test]
    fn examples_move_below_their_commands_when_there_is_no_room_beside() {
        let text =
            "A paragraph\nof two lines.\nAnother.\n\nExamples:\n  whimbrel a       one\n  whimbrel bb --c  two words";
        let wide =
            "A paragraph of two lines.\nAnother.\n\nExamples:\n  whimbrel a       one\n  whimbrel bb --c  two words";
        assert_eq!(lay_out(text, 80), wide);
        let narrow = "A paragraph of two lines.\nAnother.\n\nExamples:\n  whimbrel a\n      one\n  whimbrel bb --c\n      two words";
        assert_eq!(lay_out(text, 27), narrow);
        assert_eq!(lay_out("  a 'b c' --long d -f", 12), "  a 'b c' \\\n      --long d \\\n      -f");
    }

    /// Every page at the widths that terminals have.
    #[test]
    fn no_line_of_a_help_page_is_wider_than_the_terminal() {
        fn check(command: &mut Command, width: usize) {
            for page in [command.render_help(), command.render_long_help()] {
                for line in page.to_string().lines() {
                    let is_one_word = line.trim_start().split(' ').count() == 1;
                    let fits = line.chars().count() <= width.min(WIDEST) || is_one_word;
                    assert!(fits, "{} at {width} columns: {line:?}", command.get_name());
                }
            }
            command.get_subcommands_mut().for_each(|below| check(below, width));
        }
        for width in [80, 100, 120] {
            let mut command = laid_out(Cli::command(), width.min(WIDEST));
            command.build();
            check(&mut command, width);
        }
    }
}
