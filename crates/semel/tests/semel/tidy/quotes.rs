//! Code that a document quotes from a file: it must stand in that file as it does in the document.

use super::{FILES, Finding, Source};

/// What introduces a quotation: `From [order.rs](../crates/semel/examples/order.rs):`, and then a block of code.
const FROM: &str = "From [";

/// Quotations that do not stand in their files, and documents without any.
pub(super) fn invented(document: &Source) -> Vec<Finding> {
    let lines: Vec<&str> = document.text.lines().collect();
    let starts = (0..lines.len()).filter(|at| lines[*at].starts_with(FROM)).collect::<Vec<_>>();
    if starts.is_empty() {
        return vec![(1, "it quotes no file".to_owned())];
    }
    let found = starts.into_iter().filter_map(|at| Some((at + 1, wrong(&lines[at..])?)));
    found.collect()
}

/// What is wrong with the quotation that begins here.
fn wrong(lines: &[&str]) -> Option<String> {
    let path = lines[0].split_once("](../").and_then(|(_, rest)| rest.split_once(')'));
    let Some((path, _)) = path else { return Some("it does not name a file by `../`".to_owned()) };
    let mut rest = lines[1..].iter().skip_while(|line| !line.starts_with("```"));
    rest.next();
    let code: Vec<&str> = rest.take_while(|line| **line != "```").copied().collect();
    let Some(file) = FILES.iter().find(|file| file.path == path) else {
        return Some(format!("{path} is not there"));
    };
    let all: Vec<&str> = file.text.lines().collect();
    let stands = !code.is_empty() && all.windows(code.len()).any(|part| part == code);
    (!stands).then(|| format!("this code does not stand in {path}: copy it from there again"))
}

/// A quotation that was made up.
pub(super) fn sample() -> String {
    format!("{FROM}order.rs](../crates/semel/examples/order.rs):\n\n```rust\nlet price = \"made up\";\n```\n")
}
