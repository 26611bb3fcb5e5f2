//! Codes of the failures that Semel itself gives to steps and runs, in one table. A workflow's own failures have any code that
//! their author chooses.

macro_rules! failure_codes {
    ($($name:ident $text:literal,)+) => {
        $(#[doc = $text] pub const $name: &str = stringify!($name);)+

        /// All codes with their meanings, in alphabetical order.
        pub const ALL: &[(&str, &str)] = &[$(($name, $text)),+];
    };
}

failure_codes! {
    ABSENT "The server was built without the task.",
    CHILD "The child has failed, was cancelled or has timed out; `error.data` has its `run`, `code` and `data`.",
    CONNECTION "The connection is missing, is not open to the workspace, or its other side cannot be reached.",
    DEFINITION_NOT_FOUND "The child is no definition of the workspace, or is archived.",
    EXPECT "The number of rows is another one than `expect` says.",
    EXPRESSION "An expression has no value; `error.data` has its `pointer` and `expression`.",
    FAILED "The step failed without a code, such as a worker that reports none.",
    HOOK_CONFLICT "The token belongs to another open run, which is `error.data.owner`.",
    HTTP "The other side has refused a call or given no answer; `error.status` is the status, if there was one.",
    LEDGER_FULL "The ledger of the run has reached its maximum size.",
    LIMIT "A limit was reached: of passes, steps, children, rounds, tokens or cost.",
    MCP "The MCP server, or its tool, reports an error.",
    MODEL "The model refuses to answer, or its answer cannot be used.",
    OUTPUT_INVALID "The model's answer does not fit `output`, also after it was asked again.",
    PAYLOAD_CHANGED "The other side says that the key was used for another request.",
    PUBLISH "The broker has refused the message; `error.data` has its code.",
    SMTP "The mail server has refused the mail.",
    SQL "The database has refused the statement; `error.data.state` is its SQLSTATE.",
    TIMEOUT "There was no answer, delivery or decision in time.",
    TOO_LARGE "A value is larger than what is recorded, shown or sent.",
    UNDONE "The steps of the run were undone when it failed, so a retry cannot continue it.",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_sorted_upper_case_words_with_a_sentence_each() {
        assert!(ALL.is_sorted_by(|(one, _), (next, _)| one < next));
        for (code, text) in ALL {
            assert!(code.chars().all(|c| c.is_ascii_uppercase() || c == '_'), "{code}");
            assert!(text.ends_with('.') && text.split_whitespace().count() > 3, "{code}: {text}");
        }
    }

    #[test]
    fn the_page_about_tasks_has_the_same_table() {
        let page = include_str!("../../../../docs/tasks.md");
        let (_, section) = page.split_once("\n## Codes of failures\n").expect("there is such a section");
        let section = section.split("\n## ").next().unwrap_or_default();
        let rows: Vec<_> = section.lines().filter(|line| line.starts_with("| `")).collect();
        let expected: Vec<_> = ALL.iter().map(|(code, text)| format!("| `{code}` | {text} |")).collect();
        assert_eq!(rows, expected);
    }
}
