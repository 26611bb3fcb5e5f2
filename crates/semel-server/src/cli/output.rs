//! Output of commands: tables, JSON, times, colours. Results go to stdout, everything else to stderr.

use std::io::{self, IsTerminal, Write as _};

use comfy_table::{ColumnConstraint, ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use semel::clock::{Clock as _, SystemClock};
use serde::Serialize;

use super::exit::{Done, Exit, Failure};
use crate::api::CappedView;

/// Format of results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    /// Tables and sentences for people.
    #[default]
    Table,
    /// One indented JSON document.
    Json,
    /// One JSON document per line, for lists and live events.
    Ndjson,
}

/// Marks a word that is coloured on a terminal. The character has no width and never occurs in texts that are shown.
const MARK: char = '\u{2063}';

/// Writes a result and a line end to stdout.
pub(super) fn print(text: &str) -> Done {
    let mut out = io::stdout().lock();
    written(out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()))
}

/// A closed pipe is no error: the reader has seen enough, and nothing is left to do.
fn written(result: io::Result<()>) -> Done {
    match result {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => Err(Failure::new(Exit::Failed, format!("the output cannot be written: {error}"))),
    }
}

/// Writes a note for people to stderr.
pub(super) fn note(text: &str) {
    eprintln!("{text}");
}

/// Serialises one of our own types as JSON.
pub(super) fn json<T: Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).expect("plain data with text keys")
}

/// Whether stdout is a terminal that shows colours.
fn is_colourful() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Width of the terminal in characters; `None` if stdout is no terminal.
fn terminal_width() -> Option<u16> {
    terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| width.0)
}

/// Table of text cells for people. On a terminal it is as wide as the terminal: long cells are wrapped, and columns
/// that are only of interest on a wide terminal are left out.
pub(super) struct Rows {
    table: Table,
    empty: &'static str,
    count: usize,
    /// Columns that are shown only if the terminal has at least this width.
    wide: Vec<(usize, u16)>,
    /// Columns whose cells are never wrapped.
    whole: Vec<usize>,
}

impl Rows {
    /// A table with these columns; `empty` is shown if it has no rows.
    pub(super) fn new<const N: usize>(columns: [&str; N], empty: &'static str) -> Self {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(columns);
        Self { table, empty, count: 0, wide: Vec::new(), whole: Vec::new() }
    }

    /// Never wraps the cells of these columns: ids, which people copy, and words.
    pub(super) fn whole<const N: usize>(mut self, columns: [usize; N]) -> Self {
        self.whole.extend(columns);
        self
    }

    /// Shows these columns only on terminals with at least this width. Other outputs have all columns.
    pub(super) fn only_from<const N: usize>(mut self, width: u16, columns: [usize; N]) -> Self {
        self.wide.extend(columns.map(|column| (column, width)));
        self
    }

    /// Leaves a column out.
    pub(super) fn hide(&mut self, column: usize) {
        self.constrain(column, ColumnConstraint::Hidden);
    }

    fn constrain(&mut self, column: usize, constraint: ColumnConstraint) {
        if let Some(column) = self.table.column_mut(column) {
            column.set_constraint(constraint);
        }
    }

    /// Makes the table as wide as the terminal.
    fn fit(&mut self, terminal: u16) {
        self.table.set_content_arrangement(ContentArrangement::Dynamic).set_width(terminal);
        for column in self.whole.clone() {
            self.constrain(column, ColumnConstraint::ContentWidth);
        }
        for (column, _) in self.wide.clone().into_iter().filter(|(_, width)| terminal < *width) {
            self.constrain(column, ColumnConstraint::Hidden);
        }
    }

    pub(super) fn add<const N: usize>(&mut self, cells: [String; N]) {
        self.count += 1;
        self.table.add_row(cells);
    }

    /// The table as text, without trailing blanks.
    pub(super) fn text(self) -> String {
        self.text_for(terminal_width())
    }

    fn text_for(mut self, terminal: Option<u16>) -> String {
        if self.count == 0 {
            return self.empty.to_owned();
        }
        if let Some(width) = terminal {
            self.fit(width);
        }
        let lines = self
            .table
            .lines()
            .map(|line| line.trim_end().strip_prefix(' ').map(str::to_owned).unwrap_or(line));
        paint(&lines.collect::<Vec<_>>().join("\n"), is_colourful())
    }

    pub(super) fn print(self) -> Done {
        print(&self.text())
    }
}

/// Lines of names and values.
pub(super) fn facts(facts: &[(&str, String)]) -> String {
    let width = facts.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    let shown = facts.iter().filter(|(_, value)| !value.is_empty());
    let lines: Vec<_> = shown.map(|(name, value)| format!("{name:width$}  {value}")).collect();
    paint(&lines.join("\n"), is_colourful())
}

/// Marks a status word for colouring.
pub(super) fn status(word: &str) -> String {
    format!("{MARK}{word}{MARK}")
}

/// Colours the marked words, or only removes the marks.
fn paint(text: &str, colourful: bool) -> String {
    let parts = text.split(MARK).enumerate();
    let painted = parts.map(|(n, part)| match colour(part).filter(|_| colourful && n % 2 == 1) {
        Some(code) => format!("\u{1b}[{code}m{part}\u{1b}[0m"),
        None => part.to_owned(),
    });
    painted.collect()
}

fn colour(word: &str) -> Option<u8> {
    match word {
        "COMPLETED" | "ok" => Some(32),
        "FAILED" | "TIMED_OUT" | "IN_DOUBT" | "wrong" => Some(31),
        "PAUSED" | "RETRYING" | "CANCELLED" | "look" => Some(33),
        "RUNNING" | "WAITING" | "PENDING" => Some(36),
        _ => None,
    }
}

/// Makes foreign text safe for a terminal: one line, no control characters.
pub(super) fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || c == MARK { ' ' } else { c }).collect()
}

/// Makes foreign text safe for a terminal, and cuts it off if it is long.
pub(super) fn plain(text: &str) -> String {
    const MOST: usize = 80;
    let mut plain: String = one_line(text).chars().take(MOST).collect();
    if text.chars().count() > MOST {
        plain.push('…');
    }
    plain
}

/// Shows a number that was counted up to a bound.
pub(super) fn capped(number: CappedView) -> String {
    format!("{}{}", number.count, if number.more { "+" } else { "" })
}

/// Shows an RFC 3339 time in a table: how long ago within a week, else the date.
pub(super) fn ago(text: &str) -> String {
    ago_at(text, SystemClock::new().now().0)
}

fn ago_at(text: &str, now: i64) -> String {
    let Ok(at) = text.parse::<Timestamp>() else { return plain(text) };
    let seconds = (now - at.as_millisecond()).div_euclid(1_000);
    match seconds {
        -604_800..604_800 => near(seconds),
        _ => at.strftime("%Y-%m-%d").to_string(),
    }
}

/// A time relative to now, in the largest unit that has at least one.
fn near(seconds: i64) -> String {
    match seconds {
        0 => "now".to_owned(),
        ago if ago > 0 => format!("{} ago", span(ago)),
        ahead => format!("in {}", span(-ahead)),
    }
}

/// Shows an RFC 3339 time to the second, in UTC.
pub(super) fn second(text: &str) -> String {
    match text.parse::<Timestamp>() {
        Ok(at) => at.strftime("%Y-%m-%d %H:%M:%SZ").to_string(),
        Err(_) => plain(text),
    }
}

/// Shows an RFC 3339 time as age and date.
pub(super) fn when(text: &str) -> String {
    when_at(text, SystemClock::new().now().0)
}

fn when_at(text: &str, now: i64) -> String {
    let Ok(at) = text.parse::<Timestamp>() else { return plain(text) };
    let seconds = (now - at.as_millisecond()).div_euclid(1_000);
    format!("{} ({})", near(seconds), second(text))
}

/// Whole seconds in the largest unit that has at least one.
pub(super) fn span(seconds: i64) -> String {
    match seconds {
        ..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Progress bar of long work. It is shown on stderr, and only on a terminal.
pub(super) fn progress(total: Option<u64>, what: &str) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (bar, template) = match total {
        Some(total) => (ProgressBar::new(total), "{msg} [{bar:30}] {human_pos}/{human_len} {per_sec} {eta}"),
        None => (ProgressBar::new_spinner(), "{spinner} {msg} {human_pos} {per_sec}"),
    };
    let style = ProgressStyle::with_template(template).expect("a fixed template");
    bar.with_style(style).with_message(what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_relative_and_absolute() {
        let now = 1_700_000_000_000;
        let shown = |text: &str| when_at(text, now);
        assert_eq!(shown("2023-11-14T22:13:20.000Z"), "now (2023-11-14 22:13:20Z)");
        assert_eq!(shown("2023-11-14T22:10:20.000Z"), "3m ago (2023-11-14 22:10:20Z)");
        assert_eq!(shown("2023-11-15T22:13:20.000Z"), "in 1d (2023-11-15 22:13:20Z)");
        assert_eq!(shown("soon"), "soon");
        assert_eq!(ago_at("2023-11-14T22:10:20.000Z", now), "3m ago");
        assert_eq!(ago_at("2023-11-15T22:13:20.000Z", now), "in 1d");
        assert_eq!(ago_at("2023-01-31T22:13:20.000Z", now), "2023-01-31");
    }

    #[test]
    fn a_table_is_as_wide_as_the_terminal() {
        let table = || {
            let mut rows = Rows::new(["ID", "WHAT", "DETAIL"], "nothing").whole([0]).only_from(100, [2]);
            rows.add(["run_01j0000000e00800000000007z".to_owned(), "a long text ".repeat(8), "d".repeat(40)]);
            rows
        };
        let narrow = table().text_for(Some(60));
        assert!(narrow.lines().all(|line| line.chars().count() <= 60), "{narrow}");
        assert!(narrow.contains("run_01j0000000e00800000000007z") && !narrow.contains("DETAIL"), "{narrow}");
        assert!(table().text_for(Some(120)).contains("DETAIL"));
        let piped = table().text_for(None);
        assert_eq!(piped.lines().count(), 2, "{piped}");
        assert!(piped.contains("DETAIL"), "{piped}");
    }

    #[test]
    fn only_marked_words_are_coloured_and_only_if_wanted() {
        let text = format!("COMPLETED {} {}", status("COMPLETED"), status("odd"));
        assert_eq!(paint(&text, false), "COMPLETED COMPLETED odd");
        assert_eq!(paint(&text, true), "COMPLETED \u{1b}[32mCOMPLETED\u{1b}[0m odd");
    }

    #[test]
    fn a_foreign_text_cannot_move_the_cursor() {
        assert_eq!(plain("a\u{1b}[2Jb\nc\u{2063}"), "a [2Jb c ");
        assert_eq!(plain(&"x".repeat(100)).chars().count(), 81);
    }

    #[test]
    fn a_table_is_aligned_and_says_if_it_is_empty() {
        assert_eq!(Rows::new(["A"], "nothing").text(), "nothing");
        let mut rows = Rows::new(["A", "STATUS"], "nothing");
        rows.add(["longer".to_owned(), status("FAILED")]);
        rows.add(["x".to_owned(), status("PAUSED")]);
        assert_eq!(rows.text(), "A       STATUS\nlonger  FAILED\nx       PAUSED");
    }
}
