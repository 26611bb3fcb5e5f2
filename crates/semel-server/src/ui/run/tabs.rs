//! The tabs of a run's page.

use semel::rules::receipt::{DifferingValue, ReceiptKind};
use semel::rules::status::Status;

use super::{RunRest, RunTab, icon_of};
use crate::api::{DuplicatesView, InboxView, LedgerView, RunView, StepDetail};
use crate::ui::Ui;
use crate::ui::desk::PageRefusal;
use crate::ui::gate::Visitor;
use crate::ui::parts::{Markup, Shown, icon, shown, when};
use crate::ui::query::{Fields, encoded};
use crate::ui::runs::RunRow;
use crate::ui::timeline::state_of;
use crate::ui::words;

/// Entries on a page of the ledger.
const ENTRIES: u64 = 100;
/// Entries below the timeline, the latest ones.
const LATEST: u64 = 5;
/// How much of an entry is in its row, in characters.
const BRIEF: usize = 160;
/// Names of the tabs, the first one being the usual one.
const TABS: [(&str, &str); 6] = [
    ("Timeline", "timeline"),
    ("Ledger", "ledger"),
    ("Duplicates", "duplicates"),
    ("Inbox", "inbox"),
    ("Input & result", "values"),
    ("Lineage", "lineage"),
];

/// The tab of a page.
pub(super) fn named(asked: Option<&str>) -> &'static str {
    TABS.iter().map(|(_, name)| *name).find(|name| Some(*name) == asked).unwrap_or(TABS[0].1)
}

pub(super) fn all(here: &str, tab: &str, run: &RunView, rest: &RunRest) -> Vec<RunTab> {
    let count = |name: &str| match name {
        "ledger" => Some(run.version),
        "duplicates" => Some(rest.duplicates.iter().map(|kind| kind.count).sum()),
        "inbox" => Some(rest.unconsumed),
        _ => None,
    };
    let to = |name: &str| if name == TABS[0].1 { here.to_owned() } else { format!("{here}?tab={name}") };
    TABS.iter()
        .map(|(title, name)| RunTab { title, to: to(name), here: *name == tab, count: count(name) })
        .collect()
}

/// A line of the ledger.
pub(super) struct EntryRow {
    pub(super) number: u64,
    pub(super) at: Markup,
    pub(super) kind: String,
    /// The beginning of the entry, on one line.
    pub(super) brief: String,
    /// The whole entry.
    pub(super) whole: Shown,
}

/// Entries of a page, and the addresses of those before and after.
pub(super) type LedgerRows = (Vec<EntryRow>, Option<String>, Option<String>);

/// The entries that a tab shows: the latest five, or a page.
pub(super) async fn ledger(
    ui: &Ui,
    visitor: &Visitor,
    run: &RunView,
    asked: &Fields,
    tab: &str,
) -> Result<LedgerRows, PageRefusal> {
    let (from, limit) = match tab {
        "ledger" => (asked.number("from")?.unwrap_or(1).max(1), ENTRIES),
        "timeline" => (run.version.saturating_sub(LATEST - 1).max(1), LATEST),
        _ => return Ok((Vec::new(), None, None)),
    };
    let path = format!("/workflow-runs/{}/ledger?from={from}&limit={limit}", encoded(&run.id));
    let page: LedgerView = ui.get(visitor, &path).await?;
    let row = |entry: &crate::api::EntryView| EntryRow {
        number: entry.number,
        at: when(&entry.at),
        kind: entry.kind.clone(),
        brief: brief(entry.entry.get(), &entry.kind),
        whole: shown(entry.entry.get()),
    };
    let mut rows: Vec<_> = page.entries.iter().map(row).collect();
    if tab == "timeline" {
        rows.reverse();
    }
    let link = |from: u64| visitor.to(&format!("/runs/{}?tab=ledger&from={from}", encoded(&run.id)));
    let older = (from > 1).then(|| link(from.saturating_sub(ENTRIES).max(1)));
    Ok((rows, older, page.next.map(link)))
}

/// The members of an entry on one line, as their text.
fn brief(entry: &str, kind: &str) -> String {
    let inside = entry.strip_prefix(&format!("{{\"{kind}\":")).and_then(|rest| rest.strip_suffix('}'));
    let text = inside.unwrap_or(entry);
    let mut cut: String =
        text.chars().take(BRIEF).map(|char| if char.is_control() { ' ' } else { char }).collect();
    if cut.len() < text.len() {
        cut.push('…');
    }
    cut
}

/// A duplicate that the run has absorbed, or a call that was refused because of it.
pub(in crate::ui) struct DuplicateRow {
    pub(in crate::ui) at: Markup,
    pub(in crate::ui) call: &'static str,
    pub(in crate::ui) answer: &'static str,
    /// Error code of a refused call.
    pub(in crate::ui) code: String,
    pub(in crate::ui) detail: String,
    /// Name of the caller; empty if it is not recorded.
    pub(in crate::ui) by: String,
    pub(in crate::ui) request: String,
    /// Places at which a refused start differs from the one that made the run.
    pub(in crate::ui) differs: Vec<DifferingValue>,
}

/// The absorbed duplicates, newest first. Each kind keeps its last ones.
pub(in crate::ui) fn duplicates(all: &[DuplicatesView]) -> Vec<DuplicateRow> {
    let mut rows: Vec<_> = all
        .iter()
        .flat_map(|kind| kind.recent.iter().map(move |one| (one.at.as_str(), kind.kind, one)))
        .collect();
    rows.sort_by(|(at, ..), (other, ..)| other.cmp(at));
    let row = |(at, kind, one): (&str, ReceiptKind, &crate::api::AbsorbedView)| {
        let (call, answer) = words_of(kind);
        DuplicateRow {
            at: when(at),
            call,
            answer,
            code: one.code.clone().unwrap_or_default(),
            detail: one.detail.clone(),
            by: one.by.clone().unwrap_or_default(),
            request: one.request_id.clone().unwrap_or_default(),
            differs: one.pointers.clone(),
        }
    };
    rows.into_iter().map(row).collect()
}

/// What came twice, and what it got.
fn words_of(kind: ReceiptKind) -> (&'static str, &'static str) {
    match kind {
        ReceiptKind::Start => ("Start", "got this run"),
        ReceiptKind::Delivery => ("Delivery", "accepted before, consumed once"),
        ReceiptKind::Result => ("Result", "refused: its owner had lost the run"),
        ReceiptKind::Control => ("Operator call", "done before"),
        ReceiptKind::Refused => ("Call", "refused"),
    }
}

/// A message that the run has not consumed.
pub(super) struct MessageRow {
    pub(super) number: u64,
    pub(super) at: Markup,
    pub(super) text: Shown,
}

/// The first messages that wait in the inbox.
pub(super) async fn messages(ui: &Ui, visitor: &Visitor, api: &str) -> Result<Vec<MessageRow>, PageRefusal> {
    let inbox: InboxView = ui.get(visitor, &format!("{api}/inbox")).await?;
    let row = |message: &crate::api::MessageView| MessageRow {
        number: message.number,
        at: when(&message.at),
        text: shown(message.message.get()),
    };
    Ok(inbox.messages.iter().map(row).collect())
}

/// The step beside the timeline.
pub(super) struct StepPane {
    pub(super) path: String,
    pub(super) tick: u32,
    pub(super) icon: Markup,
    pub(super) state: &'static str,
    pub(super) effect_key: Option<String>,
    pub(super) class: &'static str,
    pub(super) token: Option<String>,
    pub(super) other: Option<String>,
    pub(super) until: Option<Markup>,
    pub(super) reason: Option<String>,
    pub(super) attempts: Vec<AttemptRow>,
    pub(super) value: Option<Shown>,
    pub(super) note: Option<Shown>,
    pub(super) entries: Vec<u64>,
}

/// An attempt at the step.
pub(super) struct AttemptRow {
    pub(super) number: u32,
    pub(super) began: Markup,
    pub(super) took: String,
    pub(super) node: String,
    pub(super) fence: String,
    pub(super) lost: bool,
    pub(super) error: Option<String>,
}

/// The step that the address names; none if there is none.
pub(super) async fn step(
    ui: &Ui,
    visitor: &Visitor,
    api: &str,
    asked: &Fields,
) -> Result<Option<StepPane>, PageRefusal> {
    let Some(path) = asked.get("step") else { return Ok(None) };
    let tick = asked.number("tick")?.unwrap_or(1);
    let found = ui.look(visitor, &format!("{api}/steps/{}?tick={tick}", encoded(path))).await?;
    let now = ui.app.clock.now().0;
    Ok(found.map(|step: StepDetail| pane(step, now)))
}

fn pane(StepDetail { span, value, note, entries }: StepDetail, now: i64) -> StepPane {
    use semel::rules::entry::Class;
    let attempt = |one: &crate::api::SpanAttempt| AttemptRow {
        number: one.number,
        began: when(&one.started_at),
        took: if one.lost {
            "–".to_owned()
        } else {
            words::between(&one.started_at, one.ended_at.as_deref(), now)
        },
        node: one.node.clone().unwrap_or_default(),
        fence: one.fence.map(|fence| fence.to_string()).unwrap_or_default(),
        lost: one.lost,
        error: one.error.as_ref().map(|error| error.message.clone()),
    };
    StepPane {
        icon: icon(icon_of(&span)),
        state: state_of(span.status),
        class: match span.class {
            Some(Class::Keyed) => {
                "Keyed. The same key in every attempt, after a takeover, and in a restart or fork: a provider that knows it acts once."
            }
            Some(Class::AtMostOnce) => {
                "At most once. It never runs again by itself; if its outcome is lost, you are asked."
            }
            Some(Class::Reconcile) => {
                "Reconciled. Before it runs again, the provider is asked whether it took place."
            }
            Some(Class::Tx) => {
                "Transactional. It commits with the rows of your database, and its fence table tells whether it did."
            }
            None => "",
        },
        until: span.until.as_deref().map(when),
        attempts: span.attempts.iter().map(attempt).collect(),
        value: value.as_ref().map(|value| shown(value.get())),
        note: note.as_ref().map(|note| shown(note.get())),
        path: span.path,
        tick: span.tick,
        effect_key: span.effect_key,
        token: span.token,
        other: span.other,
        reason: span.reason,
        entries,
    }
}

/// Relatives of a run.
pub(super) struct Lineage {
    pub(super) parent: Option<RunRow>,
    pub(super) origin: Option<RunRow>,
    pub(super) children: Vec<ChildRow>,
}

/// A child run or a remote step.
pub(super) struct ChildRow {
    pub(super) path: String,
    pub(super) run: String,
    pub(super) to: String,
    pub(super) workflow: String,
    pub(super) state: String,
}

/// Parent, children, and the run whose effect keys this one shares.
pub(super) async fn lineage(
    ui: &Ui,
    visitor: &Visitor,
    run: &RunView,
    rest: &RunRest,
) -> Result<Lineage, PageRefusal> {
    let now = ui.app.clock.now().0;
    let row = async |id: Option<&str>| -> Result<Option<RunRow>, PageRefusal> {
        let Some(id) = id else { return Ok(None) };
        let path = format!("/workflow-runs/{}?steps=none", encoded(id));
        match ui.text(visitor, &path).await {
            Ok(text) => Ok(Some(RunRow::of(visitor, &crate::ui::desk::read::<RunView>(&text)?, now))),
            Err(PageRefusal(problem)) if problem.status == 404 => Ok(None),
            Err(refused) => Err(refused),
        }
    };
    let child = |child: &crate::api::ChildView| ChildRow {
        path: child.path.clone(),
        to: visitor.to(&format!("/runs/{}", encoded(&child.run))),
        run: child.run.clone(),
        workflow: child.workflow.clone().unwrap_or_default(),
        state: child.status.map(|status: Status| format!("{status:?}")).unwrap_or_default(),
    };
    Ok(Lineage {
        parent: row(run.parent.as_deref()).await?,
        origin: row(Some(run.lineage.as_str()).filter(|lineage| *lineage != run.id)).await?,
        children: rest.children.iter().map(child).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_brief_and_keeps_its_digits() {
        let entry = r#"{"stepCompleted":{"step":"pay","value":9007199254740993}}"#;
        assert_eq!(brief(entry, "stepCompleted"), r#"{"step":"pay","value":9007199254740993}"#);
        let long = brief(&format!("{{\"noted\":{}}}", "é".repeat(300)), "noted");
        assert_eq!(long.chars().count(), BRIEF + 1);
    }

    #[test]
    fn an_unknown_tab_is_the_first() {
        assert_eq!(
            [named(None), named(Some("x")), named(Some("ledger"))],
            ["timeline", "timeline", "ledger"]
        );
    }
}
