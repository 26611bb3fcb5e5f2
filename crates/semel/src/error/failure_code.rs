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
    ABSENT "This server was built without the task, or does not have it yet.",
    CANCELLED "The run was asked to end.",
    CHILD "A child run has failed, was cancelled or timed out.",
    CONNECTION "The connection does not exist on this server, or cannot be used.",
    DEFINITION_NOT_FOUND "The definition that a step names does not exist.",
    EXPECT "A statement has found another number of rows than `expect` says.",
    EXPRESSION "An expression has no value, or one that does not fit.",
    FAILED "The step has failed, and its failure has no code of its own.",
    HOOK_CONFLICT "Another run has an open hook with the same token.",
    HTTP "An HTTP server has answered with an error, or has not answered.",
    LEDGER_FULL "The ledger of the run has reached its limit, so nothing new begins.",
    LIMIT "A limit on steps, calls, tokens, money or runs is reached.",
    MCP "An MCP server has refused a call, or cannot be used.",
    MODEL "A model has given no answer that can be used.",
    OUTPUT_INVALID "The answer of a model does not fit the schema of `output`, after two more tries.",
    PAYLOAD_CHANGED "The other system has seen the effect key with another request.",
    PUBLISH "A message broker has refused a message, or has not answered.",
    SMTP "A mail server has refused a mail, or has not answered.",
    SQL "A database has refused a statement, or has not answered.",
    TIMEOUT "The time for the step is over.",
    TOO_LARGE "A value, result or message exceeds its limit.",
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
