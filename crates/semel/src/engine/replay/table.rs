//! Replays for people: tables and counts.

use std::fmt;

use serde_json::Value;

use super::{Replay, ReplayKind, ReplayRow, ReplayVerdict};

/// As much of a value as fits beside another.
const WIDEST: usize = 40;

impl fmt::Display for ReplayVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Identical => "identical",
            Self::Changed => "changed",
            Self::Missing => "missing",
            Self::Added => "added",
        })
    }
}

impl fmt::Display for ReplayKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Step => "step",
            Self::Timer => "timer",
            Self::Hook => "hook",
            Self::Child => "child",
            Self::Value => "value",
            Self::Once => "once",
            Self::Run => "run",
        })
    }
}

/// A line that says how it came out, then a table with a line for each row.
impl fmt::Display for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}: ", self.run, self.workflow, self.status)?;
        self.write_counts(f)?;
        let rows: Vec<[String; 5]> = self.rows.iter().map(cells).collect();
        let heads = ["VERDICT", "KIND", "PATH", "ORIGINAL", "REPLAYED"].map(str::to_owned);
        let width = |column: usize| {
            let cells = rows.iter().chain([&heads]).map(|row| row[column].chars().count());
            cells.max().unwrap_or_default()
        };
        let widths = [0, 1, 2, 3].map(width);
        for row in [&heads].into_iter().chain(&rows) {
            writeln!(f)?;
            for (cell, width) in row.iter().zip(widths) {
                write!(f, "{cell:width$}  ")?;
            }
            f.write_str(&row[4])?;
        }
        Ok(())
    }
}

impl Replay {
    /// `3 identical, 1 missing`
    pub(super) fn write_counts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for verdict in
            [ReplayVerdict::Identical, ReplayVerdict::Changed, ReplayVerdict::Missing, ReplayVerdict::Added]
        {
            let count = self.count(verdict);
            if count > 0 {
                write!(f, "{}{count} {verdict}", if first { "" } else { ", " })?;
                first = false;
            }
        }
        if first { f.write_str("nothing recorded") } else { Ok(()) }
    }
}

fn cells(row: &ReplayRow) -> [String; 5] {
    [
        row.verdict.to_string(),
        row.kind.to_string(),
        row.path.clone(),
        short(row.original.as_ref()),
        short(row.replayed.as_ref()),
    ]
}

fn short(value: Option<&Value>) -> String {
    let Some(value) = value else { return "-".to_owned() };
    let text = value.to_string();
    match text.char_indices().nth(WIDEST) {
        None => text,
        Some((cut, _)) => format!("{}…", &text[..cut]),
    }
}
