//! How a command ends: its exit code, and its error message.

use std::fmt;

use semel::ErrorCode;

use crate::api::{DocumentProblem, ProblemView};

/// The exit codes with their meanings, as `--help` and the documentation list them.
pub const EXIT_CODES: [(u8, &str); 8] = [
    (0, "done"),
    (1, "failed, for any other reason"),
    (2, "the command, or a value in it, is invalid"),
    (3, "there is no such run, key, hook, definition or file"),
    (4, "refused: another call was first, or the state does not allow it"),
    (5, "the server or the store cannot be reached; try again"),
    (6, "no valid token, or one that does not allow it"),
    (7, "the run has ended, but not completed, or is still open after --timeout"),
];

/// The exit codes as a section of the help.
pub(super) fn help() -> String {
    let codes = EXIT_CODES.map(|(code, meaning)| format!("  {code}  {meaning}")).join("\n");
    format!("Exit codes:\n{codes}")
}

/// Exit code of a failed command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    /// A failure that no other code names.
    Failed = 1,
    /// The command or a value in it is invalid.
    Usage = 2,
    /// The requested object does not exist.
    NotFound = 3,
    /// Another call was first, or the state does not allow it.
    Refused = 4,
    /// The server or the store cannot be reached.
    Unavailable = 5,
    /// The token is missing, invalid, or lacks the permission.
    Auth = 6,
    /// The run has ended without completing, or is open after the timeout.
    NotCompleted = 7,
}

/// Failure of a command: message, hint and exit code.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) exit: Exit,
    message: String,
    help: Option<String>,
    /// Problems of a definition, as a server has answered them.
    pub(super) problems: Vec<DocumentProblem>,
}

/// The result of a command.
pub(super) type Done<T = ()> = Result<T, Failure>;

impl Failure {
    pub(super) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), help: None, problems: Vec::new() }
    }

    /// Adds a hint on what to do.
    pub(super) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Converts a problem that the server has answered.
    pub(super) fn told(problem: &ProblemView) -> Self {
        let ProblemView { detail, code, .. } = problem;
        let message = match problem.owner.as_ref().filter(|owner| !detail.contains(*owner)) {
            Some(owner) => format!("{detail} ({code}); the owner is {owner}"),
            None => format!("{detail} ({code})"),
        };
        let problems = problem.problems.clone();
        let failure = Self { problems, ..Self::new(exit_of(problem.status), message) };
        match (problem.status, ErrorCode::from_text(code)) {
            // The message says what to do, whatever the status suggests.
            (_, Some(ErrorCode::DefinitionNotFound | ErrorCode::VersionTaken | ErrorCode::InputInvalid)) => {
                failure
            }
            (401, _) => {
                failure.help("set a token with --token or SEMEL_TOKEN; `semel token create` makes one")
            }
            (403, _) => failure.help("use a token with more permissions; `semel token create` makes one"),
            (_, Some(ErrorCode::AlreadyDecided)) => {
                failure.help("`semel approval show APPROVAL` shows the decision that counts")
            }
            (409, _) => failure
                .help("`semel run show RUN` shows its state; `semel run fork` starts it again as a new run"),
            (429, _) => failure.help("wait a moment, and try again"),
            _ => failure,
        }
    }
}

/// The exit code for an HTTP status.
fn exit_of(status: u16) -> Exit {
    match status {
        400 | 405 => Exit::Usage,
        401 | 403 => Exit::Auth,
        404 => Exit::NotFound,
        409 | 413 | 422 => Exit::Refused,
        429 | 503 => Exit::Unavailable,
        _ => Exit::Failed,
    }
}

impl From<semel::Error> for Failure {
    fn from(error: semel::Error) -> Self {
        let failure = Self::new(exit_of(error.status()), error.to_string());
        match error {
            semel::Error::Locked { .. } => {
                failure.help("stop the server that has it open, or ask that server: `semel run ls`")
            }
            semel::Error::Open { .. } => failure.help("check the address after --store"),
            semel::Error::Corrupt { .. } => Self { exit: Exit::Failed, ..failure },
            _ => failure,
        }
    }
}

impl From<crate::serve::Error> for Failure {
    fn from(error: crate::serve::Error) -> Self {
        use crate::serve::Error;
        match error {
            Error::Store(error) => error.into(),
            Error::Config(_) => Self::new(Exit::Usage, error.to_string()),
            Error::Listen { .. } => Self::new(Exit::Unavailable, error.to_string()),
            _ => Self::new(Exit::Failed, error.to_string()),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.help {
            Some(help) => write!(f, "\n  {help}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exit_has_its_line() {
        use Exit::{Auth, Failed, NotCompleted, NotFound, Refused, Unavailable, Usage};
        let all = [Failed, Usage, NotFound, Refused, Unavailable, Auth, NotCompleted];
        let codes: Vec<u8> = all.into_iter().map(|exit| exit as u8).collect();
        assert_eq!(codes, EXIT_CODES.iter().skip(1).map(|(code, _)| *code).collect::<Vec<_>>());
    }

    #[test]
    fn the_documentation_has_the_same_list() {
        let page = include_str!("../../../../docs/cli.md");
        for (code, meaning) in EXIT_CODES {
            assert!(page.contains(&format!("\n| {code} | {meaning} |\n")), "{code} {meaning}");
        }
    }

    #[test]
    fn every_problem_has_an_exit_and_says_what_to_do() {
        for code in ErrorCode::ALL {
            let status = code.status();
            let problem = ProblemView {
                kind: String::new(),
                title: code.title().to_owned(),
                status,
                detail: "what was wrong".to_owned(),
                code: code.to_string(),
                owner: Some("run_7".to_owned()),
                pointers: Vec::new(),
                problems: Vec::new(),
            };
            let failure = Failure::told(&problem);
            assert_ne!(failure.exit, Exit::Failed, "{code}");
            assert!(failure.to_string().contains("run_7"), "{failure}");
            assert!(status != 401 || failure.to_string().contains("SEMEL_TOKEN"), "{failure}");
        }
    }
}
