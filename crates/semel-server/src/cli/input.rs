//! Values given to a command: on the command line, in a file, or on stdin.

use std::io::Read as _;
use std::path::PathBuf;

use semel::rules::json::Payload;

use super::exit::{Done, Exit, Failure};
use crate::api::{Value, value};

/// A JSON value, given in one of three ways.
#[derive(Debug, clap::Args)]
pub(super) struct Given {
    /// JSON value; `-` reads it from stdin.
    #[arg(long, value_name = "JSON", conflicts_with = "input_file")]
    input: Option<String>,
    /// File that holds the JSON value; `-` is stdin.
    #[arg(long, value_name = "FILE")]
    input_file: Option<PathBuf>,
}

impl Given {
    /// The value; `None` if none was given.
    pub(super) fn read(&self) -> Done<Option<Value>> {
        let text = match (&self.input, &self.input_file) {
            (Some(text), _) if text == "-" => stdin()?,
            (None, Some(path)) if path.as_os_str() == "-" => stdin()?,
            (Some(text), _) => text.clone(),
            (None, Some(path)) => std::fs::read_to_string(path).map_err(|error| {
                let exit = match error.kind() {
                    std::io::ErrorKind::NotFound => Exit::NotFound,
                    _ => Exit::Failed,
                };
                Failure::new(exit, format!("{}: {error}", path.display()))
            })?,
            (None, None) => return Ok(None),
        };
        parse(&text).map(Some)
    }
}

/// Parses a value with the same checks as the server.
pub(super) fn parse(text: &str) -> Done<Value> {
    let payload = Payload::parse(text).map_err(|refused| {
        let failure = Failure::new(Exit::Usage, refused.to_string());
        failure.help("quote JSON for the shell, as in --input '{\"amount\": 1999}'; a text is '\"text\"'")
    })?;
    Ok(value(&payload))
}

fn stdin() -> Done<String> {
    let mut text = String::new();
    let read = std::io::stdin().lock().read_to_string(&mut text);
    read.map_err(|error| Failure::new(Exit::Usage, format!("stdin is not UTF-8 text: {error}")))?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_every_digit_and_mistakes_say_how_to_quote() {
        assert_eq!(parse(" {\"n\": 9007199254740993} ").unwrap().get(), "{\"n\": 9007199254740993}");
        let failure = parse("{cents: 5}").unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
        assert!(failure.to_string().contains("quote JSON"), "{failure}");
    }
}
