//! Codes of the failures that the server itself gives to steps of definitions: what `error.code` can be in a `catch`, beside the codes
//! of `fail` and those that workers report. The table in `docs/definitions.md` is this one.

/// A code, and what it stands for.
#[derive(Clone, Copy, Debug)]
pub struct StepCode {
    /// The code, as `error.code` has it.
    pub name: &'static str,
    /// The reason of the failure, for the documentation.
    pub about: &'static str,
}

const fn code(name: &'static str, about: &'static str) -> StepCode {
    StepCode { name, about }
}

/// Every code that a `catch` can find, in the order of the alphabet.
pub const STEP_CODES: &[StepCode] = &[
    code("ABSENT", "The server was built without the task."),
    code(
        "CHILD",
        "The child has failed, was cancelled or has timed out; `error.data` has its `run`, `code` and `data`.",
    ),
    code(
        "CONNECTION",
        "The connection is missing, is not open to the workspace, or its other side cannot be reached.",
    ),
    code("DEFINITION_NOT_FOUND", "The child is no definition of the workspace, or is archived."),
    code("EXPECT", "The number of rows is another one than `expect` says."),
    code("EXPRESSION", "An expression has no value; `error.data` has its `pointer` and `expression`."),
    code("FAILED", "The step failed without a code, such as a worker that reports none."),
    code("HOOK_CONFLICT", "The token belongs to another open run, which is `error.data.owner`."),
    code(
        "HTTP",
        "The other side has refused a call or given no answer; `error.status` is the status, if there was one.",
    ),
    code("LEDGER_FULL", "The ledger of the run has reached its maximum size."),
    code("LIMIT", "A limit was reached: of passes, steps, children, rounds, tokens or cost."),
    code("MCP", "The MCP server, or its tool, reports an error."),
    code("MODEL", "The model refuses to answer, or its answer cannot be used."),
    code("OUTPUT_INVALID", "The model's answer does not fit `output`, also after it was asked again."),
    code("PAYLOAD_CHANGED", "The other side says that the key was used for another request."),
    code("PUBLISH", "The broker has refused the message; `error.data` has its code."),
    code("SMTP", "The mail server has refused the mail."),
    code("SQL", "The database has refused the statement; `error.data.state` is its SQLSTATE."),
    code("TIMEOUT", "There was no answer, delivery or decision in time."),
    code("TOO_LARGE", "A value is larger than what is recorded, shown or sent."),
];

/// Code of a run that has failed, was undone, and is asked to go on. No `catch` sees it: the run fails before its first step.
pub const UNDONE: &str = "UNDONE";

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    const PAGE: &str = include_str!("../../../../docs/definitions.md");

    /// Where failures of steps come from.
    const SOURCES: [&str; 4] = [
        "semel-server/src/tasks",
        "semel-server/src/databases",
        "semel-server/src/definitions/interpret",
        "semel/src/engine/run",
    ];

    /// The texts of the sources below a folder, without the tests at their ends.
    fn sources(folder: &Path, found: &mut String) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("tests") {
                sources(&path, found);
            } else if path.extension().is_some_and(|end| end == "rs") && !path.ends_with("tests.rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push_str(text.split("#[cfg(test)]\nmod tests {").next().unwrap());
            }
        }
    }

    /// Texts in capitals that stand behind one of the ways to say a code.
    fn codes_in(text: &str) -> BTreeSet<String> {
        let ways = ["with_code(\"", "code: \"", "=> \"", "retryable(\"", "unwrap_or(\"", "{ \""];
        let after = ways.iter().flat_map(|way| text.split(way).skip(1));
        let words = after.filter_map(|rest| rest.split('"').next());
        let is_code = |word: &&str| {
            word.len() > 2 && word.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
        };
        words.filter(is_code).map(str::to_owned).collect()
    }

    #[test]
    fn every_code_of_a_step_is_in_the_list_and_every_code_in_the_list_is_given() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut text = String::new();
        for folder in SOURCES {
            sources(&crates.join(folder), &mut text);
        }
        let mut given = codes_in(&text);
        // Methods and statements are texts in capitals too.
        for word in ["COMMIT", "ROLLBACK", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "SECRET"] {
            given.remove(word);
        }
        let listed: BTreeSet<_> = STEP_CODES.iter().map(|code| code.name.to_owned()).collect();
        assert_eq!(given, listed);
        assert!(STEP_CODES.is_sorted_by_key(|code| code.name));
    }

    #[test]
    fn the_page_has_the_table_of_codes() {
        let table = PAGE.split("| `error.code` | reason |\n|---|---|\n").nth(1).expect("the table is there");
        let rows: Vec<_> = table.lines().take_while(|line| line.starts_with('|')).collect();
        let expected: Vec<_> =
            STEP_CODES.iter().map(|code| format!("| `{}` | {} |", code.name, code.about)).collect();
        assert_eq!(rows, expected);
        assert!(PAGE.contains(&format!("`{UNDONE}`")));
    }
}
