//! A commit that is too large for one request travels as several: each of them is what a driver could have committed that
//! had committed sooner, because every entry fits those before it.

use serde_json::value::RawValue;

use super::{CommitItem, DraftView, PlacedDraft};
use crate::rules::json::InvalidJson;

/// Between two entries, and around them.
const FRAME: usize = 256;

impl CommitItem<Box<RawValue>> {
    /// The commit in pieces of at most so many bytes each, to be sent one after the other. One piece if it fits. A piece of
    /// one entry may be larger.
    pub fn pieces(self, most: usize) -> Result<Vec<Self>, InvalidJson> {
        let drafts: usize = self.drafts.iter().map(|placed| placed.draft.bytes()).sum();
        if self.entries.get().len() + drafts <= most {
            return Ok(vec![self]);
        }
        let entries: Vec<Box<RawValue>> = serde_json::from_str(self.entries.get())
            .map_err(|wrong| InvalidJson::Refused(format!("no entries: {wrong}")))?;
        let Self { run, node, mut expected, seen, drafts, .. } = self;
        let (mut pieces, mut piece) = (Vec::new(), Piece::default());
        let mut close = |piece: &mut Piece| -> Result<(), InvalidJson> {
            let Piece { entries, drafts, .. } = std::mem::take(piece);
            let count = (entries.len() + drafts.len()) as u64;
            let entries = serde_json::value::to_raw_value(&entries)
                .map_err(|wrong| InvalidJson::Refused(wrong.to_string()))?;
            pieces.push(Self { run, node, expected, seen, entries, drafts });
            expected += count;
            Ok(())
        };
        let (mut drafts, mut entries) = (drafts.into_iter().peekable(), entries.into_iter());
        for before in 0.. {
            while let Some(PlacedDraft { draft, .. }) = drafts.next_if(|placed| placed.after == before) {
                if !piece.has_room(draft.bytes(), most) {
                    close(&mut piece)?;
                }
                piece.bytes += draft.bytes();
                piece.drafts.push(PlacedDraft { after: piece.entries.len() as u64, draft });
            }
            let Some(entry) = entries.next() else { break };
            if !piece.has_room(entry.get().len(), most) {
                close(&mut piece)?;
            }
            piece.bytes += entry.get().len();
            piece.entries.push(entry);
        }
        close(&mut piece)?;
        Ok(pieces)
    }
}

#[derive(Default)]
struct Piece {
    entries: Vec<Box<RawValue>>,
    drafts: Vec<PlacedDraft>,
    bytes: usize,
}

impl Piece {
    fn has_room(&self, bytes: usize, most: usize) -> bool {
        self.bytes == 0 || self.bytes + bytes + FRAME <= most
    }
}

impl DraftView {
    /// Roughly how many bytes it takes on its way.
    fn bytes(&self) -> usize {
        match self {
            Self::OpenHook { .. } => FRAME,
            Self::StartChild { input, .. } => FRAME + input.text().len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::RunId;
    use crate::rules::key::Token;
    use crate::rules::path::Visit;
    use uuid::Uuid;

    fn item(entries: &str, drafts: &[u64]) -> CommitItem<Box<RawValue>> {
        let draft = |after: &u64| {
            let (hook, token) = (Visit::parse("h").unwrap(), Token::new("t").unwrap());
            PlacedDraft { after: *after, draft: DraftView::OpenHook { hook, token } }
        };
        CommitItem {
            run: RunId(Uuid::from_u128(1)),
            node: None,
            expected: 7,
            seen: 3,
            entries: RawValue::from_string(entries.to_owned()).unwrap(),
            drafts: drafts.iter().map(draft).collect(),
        }
    }

    fn shape(pieces: &[CommitItem<Box<RawValue>>]) -> Vec<(u64, String, Vec<u64>)> {
        let places = |drafts: &[PlacedDraft]| drafts.iter().map(|placed| placed.after).collect();
        let shape = |piece: &CommitItem<Box<RawValue>>| {
            (piece.expected, piece.entries.get().to_owned(), places(&piece.drafts))
        };
        pieces.iter().map(shape).collect()
    }

    #[test]
    fn a_small_commit_is_one_piece() {
        let pieces = item("[1,2]", &[1]).pieces(10_000).unwrap();
        assert_eq!(shape(&pieces), [(7, "[1,2]".to_owned(), vec![1])]);
    }

    #[test]
    fn pieces_follow_each_other_and_drafts_keep_their_places() {
        let (a, b, c) = ("a".repeat(600), "b".repeat(600), "c".repeat(600));
        let all = format!(r#"["{a}","{b}","{c}"]"#);
        let pieces = item(&all, &[1, 3]).pieces(1_200).unwrap();
        assert_eq!(
            shape(&pieces),
            [
                (7, format!(r#"["{a}"]"#), vec![1]),
                (9, format!(r#"["{b}"]"#), vec![]),
                (10, format!(r#"["{c}"]"#), vec![1]),
            ]
        );
        assert_eq!(item(&all, &[]).pieces(10).unwrap().len(), 3, "one entry at least");
    }
}
