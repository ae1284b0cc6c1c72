//! Tables, spans of time and sizes, as text.

use std::fmt::Write;
use std::io::IsTerminal;

/// Characters of a name in a table on a terminal, at most.
const NAME_MAX: usize = 48;

/// Highlighting of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Normal.
    Plain,
    /// All is well.
    Good,
    /// To be looked at.
    Warn,
    /// Less important than the others.
    Dim,
}

/// A cell of a table.
#[derive(Clone, Debug)]
pub struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// A highlighted cell.
    pub fn new(text: impl Into<String>, tone: Tone) -> Cell {
        Cell { text: text.into(), tone }
    }

    /// A cell without a value.
    pub fn none() -> Cell {
        Cell::new("-", Tone::Dim)
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Cell {
        Cell::new(text, Tone::Plain)
    }
}

/// A table; numbers are aligned to the right.
#[derive(Debug)]
pub struct Table {
    head: Vec<(&'static str, bool)>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table with these columns; those whose name ends with '>' are aligned to the right.
    pub fn new(columns: &[&'static str]) -> Table {
        let head = columns.iter().map(|name| (name.trim_end_matches('>'), name.ends_with('>'))).collect();
        Table { head, rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// Whether the table has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table as text; coloured on request.
    pub fn text(&self, coloured: bool) -> String {
        let heads = self.head.iter().enumerate();
        let widths: Vec<usize> = heads
            .map(|(at, (name, _))| {
                let cells = self.rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.text.chars().count());
                cells.max().unwrap_or(0).max(name.chars().count())
            })
            .collect();
        let mut out = String::new();
        let head: Vec<Cell> = self.head.iter().map(|(name, _)| Cell::new(*name, Tone::Dim)).collect();
        for row in std::iter::once(&head).chain(&self.rows) {
            let mut line = String::new();
            for (at, cell) in row.iter().enumerate() {
                let pad = " ".repeat(widths[at].saturating_sub(cell.text.chars().count()));
                let text = paint(&cell.text, cell.tone, coloured);
                let is_last = at + 1 == row.len();
                let gap = if is_last { "" } else { "  " };
                let written = match self.head[at].1 {
                    true => write!(line, "{pad}{text}{gap}"),
                    false if is_last => write!(line, "{text}"),
                    false => write!(line, "{text}{pad}{gap}"),
                };
                written.expect("a string takes everything");
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}

/// A text with the colour of its tone.
pub fn paint(text: &str, tone: Tone, coloured: bool) -> String {
    let code = match tone {
        Tone::Plain => "",
        Tone::Good => "32",
        Tone::Warn => "33",
        Tone::Dim => "2",
    };
    if coloured && !code.is_empty() { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
}

/// Whether standard output is coloured: on terminals, unless `NO_COLOR` is set.
pub fn is_coloured() -> bool {
    let is_unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    std::io::stdout().is_terminal() && !is_unwanted
}

/// A name that a client has chosen, with control and invisible characters escaped for the terminal,
/// and cut on a terminal.
pub fn name(text: &str) -> String {
    let is_plain = |c: char| !c.is_control() && !is_invisible(c);
    let shown: String =
        text.chars().map(|c| if is_plain(c) { c.to_string() } else { c.escape_unicode().to_string() }).collect();
    if shown.chars().count() > NAME_MAX && std::io::stdout().is_terminal() {
        return shown.chars().take(NAME_MAX - 1).chain(['…']).collect();
    }
    shown
}

/// Marks that change the direction of a text, or do not show.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// A span of time with its two greatest units.
pub fn span(millis: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s")];
    let Some(at) = UNITS.iter().position(|(unit, _)| millis >= *unit) else { return format!("{millis}ms") };
    let (unit, name) = UNITS[at];
    let first = format!("{}{name}", millis / unit);
    match UNITS.get(at + 1) {
        Some((next, next_name)) if millis % unit >= *next => format!("{first} {}{next_name}", millis % unit / next),
        None if millis < 10_000 => format!("{:.1}s", millis as f64 / 1000.0),
        _ => first,
    }
}

/// A number of bytes with its unit.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    let Some(at) = (0..UNITS.len()).rev().find(|at| bytes >= 1 << (10 * (at + 1))) else { return format!("{bytes} B") };
    let number = bytes as f64 / (1_u64 << (10 * (at + 1))) as f64;
    let digits = usize::from(number < 99.95 && number.fract() >= 0.05);
    format!("{number:.digits$} {}", UNITS[at])
}

/// A short span of time, given in microseconds.
pub fn delay(micros: u64) -> String {
    match micros {
        0..100 => format!("{micros} µs"),
        100..9_950 => format!("{:.1} ms", micros as f64 / 1e3),
        9_950..1_000_000 => format!("{} ms", (micros + 500) / 1000),
        _ => format!("{:.1} s", micros as f64 / 1e6),
    }
}

/// A count with what is counted.
pub fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// A time as text.
pub fn moment(millis: u64) -> String {
    let at = i64::try_from(millis).ok().and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok());
    at.map_or_else(|| millis.to_string(), |at| at.strftime("%Y-%m-%d %H:%M:%SZ").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_two_units_at_most() {
        let cases = [
            (0, "0ms"),
            (999, "999ms"),
            (1000, "1.0s"),
            (2540, "2.5s"),
            (12_345, "12s"),
            (60_000, "1m"),
            (192_000, "3m 12s"),
        ];
        for (millis, text) in cases {
            assert_eq!(span(millis), text);
        }
        assert_eq!(span(7 * 86_400_000 - 1), "6d 23h");
        assert_eq!(span(86_400_000 + 60_000), "1d", "minutes of a day do not matter");
    }

    #[test]
    fn delays_have_two_digits_or_more() {
        let cases =
            [(0, "0 µs"), (99, "99 µs"), (100, "0.1 ms"), (1249, "1.2 ms"), (9_949, "9.9 ms"), (9_950, "10 ms")];
        for (micros, text) in cases.into_iter().chain([(35_400, "35 ms"), (1_500_000, "1.5 s")]) {
            assert_eq!(delay(micros), text);
        }
    }

    #[test]
    fn sizes_have_units() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (64 << 30, "64 GiB"),
            (200 << 20, "200 MiB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn names_do_nothing_to_a_terminal() {
        assert_eq!(name("fleet/größe"), "fleet/größe");
        assert_eq!(name("\u{1b}[31mred\u{202e}"), "\\u{1b}[31mred\\u{202e}");
    }

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(&["NAME", "COUNT>", "MORE"]);
        table.row(vec!["a".into(), "7".into(), "x".into()]);
        table.row(vec!["longer".into(), "1234567".into(), Cell::none()]);
        assert_eq!(table.text(false), "NAME      COUNT  MORE\na             7  x\nlonger  1234567  -\n");
        assert!(table.text(true).contains("\u{1b}[2m-\u{1b}[0m"));
    }
}
