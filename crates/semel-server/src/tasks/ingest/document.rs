//! The document: the arguments of the task, and the chunks of the text.

use std::sync::Arc;

use semel::{Fail, Result, fatal};
use serde_json::Value as Json;
use sha2::{Digest as _, Sha256};
use text_splitter::{ChunkConfig, MarkdownSplitter, TextSplitter};

use super::table::{TABLE, Table};
use crate::access::hex;

/// Length of a chunk, if the author does not say it: some paragraphs, of which one vector can still tell the meaning.
pub(super) const SIZE: usize = 1_000;
/// Minimum that can be said: a sentence.
pub(super) const LEAST_SIZE: usize = 50;
/// Maximum that can be said: about what models of embeddings read at once.
pub(super) const MOST_SIZE: usize = 20_000;
/// Maximum number of chunks of a document: their vectors are part of the run's ledger, which is read as a whole.
pub(super) const MOST_CHUNKS: usize = 1_000;
/// Maximum length of the id of a document in bytes: it is part of an index.
const ID: usize = 1_000;

/// A document, and how it is divided.
#[derive(Clone, Debug)]
pub(super) struct Document {
    pub(super) id: String,
    pub(super) table: Table,
    /// Name of the model; that of the connection if absent.
    pub(super) model: Option<String>,
    text: Arc<str>,
    is_markdown: bool,
    /// Maximum length of a chunk in characters.
    size: usize,
    /// Characters that a chunk repeats of the one before.
    overlap: usize,
}

impl Document {
    /// The document of evaluated arguments.
    pub(super) fn read(args: &Json) -> Result<Self> {
        let (id, text) = (text(args, "document")?, text(args, "text")?);
        if id.is_empty() || id.len() > ID {
            return Err(wrong(format!("`document` has 1 to {ID} bytes, and this one has {}", id.len())));
        }
        let number = |name: &str| args[name].as_u64().and_then(|number| usize::try_from(number).ok());
        Ok(Self {
            id: id.to_owned(),
            table: Table::new(args["table"].as_str().unwrap_or(TABLE)),
            model: args["embed"]["model"].as_str().map(str::to_owned),
            text: text.into(),
            is_markdown: args["format"] == "markdown",
            size: number("size").unwrap_or(SIZE),
            overlap: number("overlap").unwrap_or_default(),
        })
    }

    /// Where the chunks are: the first byte of each, and the byte after its last.
    pub(super) async fn places(&self) -> Result<Vec<(usize, usize)>> {
        let document = self.clone();
        // A long text keeps a processor busy for a while.
        let places = tokio::task::spawn_blocking(move || document.divided()).await.map_err(fatal)?;
        if places.len() > MOST_CHUNKS {
            let why = format!(
                "the document has more than {MOST_CHUNKS} chunks: give a larger `size`, or make several documents of it"
            );
            return Err(fatal(why).with_code("TOO_LARGE"));
        }
        Ok(places)
    }

    /// At most one chunk more than there may be: the rest of a text that is too long is not looked at.
    fn divided(&self) -> Vec<(usize, usize)> {
        let config = ChunkConfig::new(self.size)
            .with_overlap(self.overlap)
            .expect("the check of the arguments leaves no overlap as large as a chunk");
        let place = |(at, chunk): (usize, &str)| (at, at + chunk.len());
        if self.is_markdown {
            let splitter = MarkdownSplitter::new(config);
            splitter.chunk_indices(&self.text).map(place).take(MOST_CHUNKS + 1).collect()
        } else {
            let splitter = TextSplitter::new(config);
            splitter.chunk_indices(&self.text).map(place).take(MOST_CHUNKS + 1).collect()
        }
    }

    /// The text of a chunk.
    pub(super) fn chunk(&self, (from, to): (usize, usize)) -> &str {
        &self.text[from..to]
    }

    /// The hash of each chunk: of the name of the model and the text, so that equal hashes have equal vectors.
    pub(super) fn hashes(&self, model: &str, places: &[(usize, usize)]) -> Vec<String> {
        let hash = |place: &(usize, usize)| {
            let hash = Sha256::new().chain_update(model).chain_update([0]).chain_update(self.chunk(*place));
            hex(&hash.finalize())
        };
        places.iter().map(hash).collect()
    }
}

fn text<'j>(args: &'j Json, name: &str) -> Result<&'j str> {
    let text = args[name].as_str().ok_or_else(|| wrong(format!("`{name}` is no text")))?;
    match text.find('\0') {
        Some(at) => Err(wrong(format!(
            "`{name}` has a character 0 at byte {at}, which PostgreSQL does not keep: take it out"
        ))),
        None => Ok(text),
    }
}

/// A mistake in what was evaluated: no other attempt mends it, and nothing was paid for.
fn wrong(message: String) -> Fail {
    fatal(message).with_code("EXPRESSION")
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use serde_json::json;

    use super::*;

    fn chunks(args: &Json) -> Vec<String> {
        let document = Document::read(args).unwrap();
        document.divided().into_iter().map(|place| document.chunk(place).to_owned()).collect()
    }

    #[test]
    fn chunks_end_at_sentences_and_headings() {
        let plain = "The first sentence is here. The second one follows it.\n\nA paragraph of its own.";
        let sized = |size: usize| chunks(&json!({"document": "d", "text": plain, "size": size}));
        assert_eq!(
            sized(54),
            ["The first sentence is here. The second one follows it.", "A paragraph of its own."]
        );
        assert_eq!(
            sized(50),
            ["The first sentence is here.", "The second one follows it.", "A paragraph of its own."]
        );
        let markdown =
            "# Ink\n\nInk is blue, and it dries slowly.\n\n# Paper\n\nPaper is white, and it burns.\n";
        let divided = chunks(&json!({"document": "d", "text": markdown, "format": "markdown", "size": 60}));
        assert_eq!(
            divided,
            ["# Ink\n\nInk is blue, and it dries slowly.", "# Paper\n\nPaper is white, and it burns."]
        );
        let over = chunks(&json!({"document": "d", "text": plain, "size": 54, "overlap": 27}));
        assert!(over.len() >= 2 && over.concat().len() > plain.len() - 4, "{over:?}");
    }

    #[test]
    fn a_text_without_an_end_is_divided_quickly_and_an_endless_one_only_so_far() {
        for (text, format) in [
            ("x".repeat(1 << 17), "plain"),
            ("x".repeat(1 << 17), "markdown"),
            ("# \n> * ".repeat(10_000), "markdown"),
            ("\u{301}".repeat(1 << 15), "plain"),
            ("🧵 ".repeat(20_000), "plain"),
        ] {
            for size in [MOST_SIZE, LEAST_SIZE] {
                let divided = chunks(&json!({"document": "d", "text": text, "format": format, "size": size}));
                assert!(divided.len() <= MOST_CHUNKS + 1);
                assert!(divided.iter().all(|chunk| chunk.chars().count() <= size));
            }
        }
        assert!(chunks(&json!({"document": "d", "text": " \n\t"})).is_empty());
    }

    #[test]
    fn what_cannot_be_kept_is_refused() {
        for (args, why) in [
            (json!({"document": "d", "text": "a\0b"}), "character 0 at byte 1"),
            (json!({"document": "\0", "text": "a"}), "character 0"),
            (json!({"document": "", "text": "a"}), "1 to 1000 bytes"),
            (json!({"document": "x".repeat(1_001), "text": "a"}), "1001"),
            (json!({"document": "d", "text": 7}), "`text` is no text"),
        ] {
            let fail = Document::read(&args).unwrap_err();
            assert_eq!(fail.code(), Some("EXPRESSION"));
            assert!(fail.to_string().contains(why), "{fail}");
        }
    }

    #[test]
    fn a_hash_is_of_model_and_text() {
        let document = Document::read(&json!({"document": "d", "text": "ab"})).unwrap();
        let hash = |model: &str, place| document.hashes(model, &[place]).remove(0);
        let mut hashes = vec![hash("m", (0, 2)), hash("n", (0, 2)), hash("m", (0, 1)), hash("ma", (1, 2))];
        hashes.sort();
        hashes.dedup();
        assert_eq!(hashes.len(), 4);
        let mut text = String::new();
        write!(text, "{hashes:?}").unwrap();
        assert!(hashes.iter().all(|hash| hash.len() == 64), "{text}");
    }
}
