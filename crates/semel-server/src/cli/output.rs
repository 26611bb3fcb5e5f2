//! What people and scripts see: tables, JSON, times, colours. Results go to stdout, everything else to stderr.

use std::io::{self, IsTerminal, Write as _};

use comfy_table::{ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use semel::clock::{Clock as _, SystemClock};
use serde::Serialize;

use super::exit::{Done, Exit, Failure};

/// How results are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    /// For people.
    #[default]
    Table,
    /// One JSON document.
    Json,
    /// One JSON document per line, for lists and for what is watched.
    Ndjson,
}

/// Around a word that is coloured on a terminal: without width, and never in a text that we show.
const MARK: char = '\u{2063}';

/// Writes a result, and a line end.
pub(super) fn print(text: &str) -> Done {
    let mut out = io::stdout().lock();
    written(out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()))
}

/// Whoever reads our output may stop reading: nothing is wrong then, and nothing is left to do.
fn written(result: io::Result<()>) -> Done {
    match result {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => Err(Failure::new(Exit::Failed, format!("the output cannot be written: {error}"))),
    }
}

/// A word to people, beside the results.
pub(super) fn note(text: &str) {
    eprintln!("{text}");
}

/// Our own values as JSON.
pub(super) fn json<T: Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).expect("plain data with text keys")
}

/// Whether stdout shows colours.
fn is_colourful() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// A table for people.
pub(super) struct Rows {
    table: Table,
    empty: &'static str,
    count: usize,
}

impl Rows {
    /// A table with these columns, and what is said if it has no rows.
    pub(super) fn new<const N: usize>(columns: [&str; N], empty: &'static str) -> Self {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(columns);
        Self { table, empty, count: 0 }
    }

    pub(super) fn add<const N: usize>(&mut self, cells: [String; N]) {
        self.count += 1;
        self.table.add_row(cells);
    }

    /// The text, without trailing blanks.
    pub(super) fn text(&self) -> String {
        if self.count == 0 {
            return self.empty.to_owned();
        }
        let lines = self
            .table
            .lines()
            .map(|line| line.trim_end().strip_prefix(' ').map(str::to_owned).unwrap_or(line));
        paint(&lines.collect::<Vec<_>>().join("\n"), is_colourful())
    }

    pub(super) fn print(&self) -> Done {
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

/// A state, to be coloured.
pub(super) fn status(word: &str) -> String {
    format!("{MARK}{word}{MARK}")
}

/// Colours the marked words, or only takes the marks away.
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

/// A text of somebody else's, fit for a terminal: one line, without control characters, cut off if it is long.
pub(super) fn plain(text: &str) -> String {
    const MOST: usize = 80;
    let shown = |c: char| if c.is_control() || c == MARK { ' ' } else { c };
    let mut plain: String = text.chars().take(MOST).map(shown).collect();
    if text.chars().count() > MOST {
        plain.push('…');
    }
    plain
}

/// A time as it travels, as people want it: how long ago, and when.
pub(super) fn when(text: &str) -> String {
    when_at(text, SystemClock::new().now().0)
}

fn when_at(text: &str, now: i64) -> String {
    let Ok(at) = text.parse::<Timestamp>() else { return plain(text) };
    let seconds = (now - at.as_millisecond()).div_euclid(1_000);
    let near = match seconds {
        0 => "now".to_owned(),
        ago if ago > 0 => format!("{} ago", span(ago)),
        ahead => format!("in {}", span(-ahead)),
    };
    format!("{near} ({})", at.strftime("%Y-%m-%d %H:%M:%SZ"))
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

/// The progress of long work, shown on a terminal only, and beside the results.
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
        let mut rows = Rows::new(["A", "STATUS"], "nothing");
        assert_eq!(rows.text(), "nothing");
        rows.add(["longer".to_owned(), status("FAILED")]);
        rows.add(["x".to_owned(), status("PAUSED")]);
        assert_eq!(rows.text(), "A       STATUS\nlonger  FAILED\nx       PAUSED");
    }
}
