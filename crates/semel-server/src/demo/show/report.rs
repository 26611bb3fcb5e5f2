//! The report of the show: a table of 80 columns for people, JSON for scripts.

use std::fmt;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;

/// The result of the show.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Seed of all random choices; the same seed makes the same choices again.
    pub seed: u64,
    /// Counts of calls, effects and kills.
    pub counts: Counts,
    /// The promises, and whether each was kept.
    pub promises: Vec<Promise>,
    /// Whether all promises were kept.
    pub held: bool,
    /// The folder with all files; absent if it was removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
}

/// A promise, and whether it was kept.
#[derive(Clone, Debug, Serialize)]
pub struct Promise {
    /// The promise, as a sentence.
    pub promise: &'static str,
    /// Whether the promise was kept.
    pub held: bool,
    /// What the audit found, as a sentence.
    pub found: String,
}

impl Promise {
    pub(super) fn new(promise: &'static str, held: bool, found: String) -> Self {
        Self { promise, held, found }
    }
}

/// Counts of calls, effects and kills.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// Orders that were sent to the engine.
    pub orders: u64,
    /// Runs in the store.
    pub runs: u64,
    /// Starts that were answered.
    pub starts_answered: u64,
    /// Starts that were answered with a run that was there.
    pub duplicates_absorbed: u64,
    /// Duplicates that the store has noted: also those whose answer was cut off, but not all of the last moment before a kill.
    pub duplicates_recorded: u64,
    /// Starts with another input under a key in use.
    pub keys_reused_refused: u64,
    /// Calls without an answer.
    pub calls_cut_off: u64,
    /// Deliveries that were answered.
    pub deliveries: u64,
    /// Deliveries that were absorbed as duplicates, out of `deliveries`.
    pub deliveries_absorbed: u64,
    /// Calls that the provider has seen, without look-ups.
    pub attempts: u64,
    /// Effects whose answer was lost.
    pub answers_lost: u64,
    /// Calls that failed before anything took place.
    pub failed_before: u64,
    /// Calls for what had taken place under the same key.
    pub repeated: u64,
    /// Look-ups that the provider has answered.
    pub look_ups: u64,
    /// Charges at the provider.
    pub charges: u64,
    /// Debits in the shop's database.
    pub debits: u64,
    /// Letters at the provider.
    pub letters: u64,
    /// Receipts at the provider.
    pub receipts: u64,
    /// Calls that came after a later one, refused by the provider.
    pub stale_refused_by_provider: u64,
    /// Commits of an owner that had lost its run, refused by the store.
    pub stale_refused_by_store: u64,
    /// How often the engine was killed.
    pub kills: u64,
    /// Calls to the provider that were open at kills.
    pub open_at_kills: u64,
    /// The longest time without an engine.
    pub longest_gap_ms: u64,
    /// Runs that were resumed after five crashes.
    pub resumed: u64,
    /// Duration of the demo.
    pub time_ms: u64,
}

impl Counts {
    /// What is counted, how much, and what it means.
    fn rows(&self) -> Vec<(&'static str, String, String)> {
        let row = |what, count: u64, means: String| (what, count.to_string(), means);
        let stale = self.stale_refused_by_provider + self.stale_refused_by_store;
        vec![
            row("orders", self.orders, format!("{} runs in the store", self.runs)),
            row("starts answered", self.starts_answered, "several callers for each order".to_owned()),
            row("  duplicates absorbed", self.duplicates_absorbed, "answered with the same run".to_owned()),
            row("  refused", self.keys_reused_refused, "same key, other amount: KEY_REUSED".to_owned()),
            row(
                "calls cut off by kills",
                self.calls_cut_off,
                "their callers got no answer and asked again".to_owned(),
            ),
            row("approvals delivered", self.deliveries, format!("{} absorbed", self.deliveries_absorbed)),
            row("attempts at the provider", self.attempts, format!("and {} look-ups", self.look_ups)),
            row("  answers lost", self.answers_lost, "the effect had taken place".to_owned()),
            row("  failed before", self.failed_before, "the effect had not".to_owned()),
            row("  repeated", self.repeated, "same key, not done again".to_owned()),
            row("effects: charges", self.charges, "keyed step, provider's file".to_owned()),
            row("         debits", self.debits, "transaction, shop's database".to_owned()),
            row("         letters", self.letters, "reconciled step, provider's file".to_owned()),
            row("         receipts", self.receipts, "once, provider's file".to_owned()),
            row(
                "stale writes refused",
                stale,
                format!(
                    "{} by the provider, {} by the store",
                    self.stale_refused_by_provider, self.stale_refused_by_store
                ),
            ),
            row("kills (SIGKILL)", self.kills, format!("{} calls were open", self.open_at_kills)),
            (
                "longest gap",
                format!("{} ms", self.longest_gap_ms),
                "from a kill to the next engine".to_owned(),
            ),
            ("time", format!("{} ms", self.time_ms), "without opening and audit".to_owned()),
        ]
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        for (what, count, means) in self.counts.rows() {
            table.add_row([what.to_owned(), count, means]);
        }
        if let Some(column) = table.column_mut(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        writeln!(f, "\n{}\n", table.trim_fmt())?;
        for Promise { promise, held, found } in &self.promises {
            writeln!(f, " {} {promise}: {found}", if *held { "held  " } else { "BROKEN" })?;
        }
        let said = match (self.held, self.promises.iter().filter(|promise| !promise.held).count()) {
            (true, _) => "Every promise held.".to_owned(),
            (false, broken) => format!("{broken} of {} promises are broken.", self.promises.len()),
        };
        writeln!(f, "\n{said}")?;
        if let Some(folder) = &self.folder {
            writeln!(f, "Everything is in {folder}.")?;
        }
        Ok(())
    }
}
