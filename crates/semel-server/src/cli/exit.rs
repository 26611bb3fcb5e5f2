//! How a command ends: its exit code, and what it says if it did not do what it should.

use std::fmt;

use crate::api::ProblemView;

/// The exit codes, each with its meaning, as `--help` and the documentation list them.
pub const EXIT_CODES: [(u8, &str); 8] = [
    (0, "done"),
    (1, "failed, for any other reason"),
    (2, "the command, or a value in it, is not acceptable"),
    (3, "there is no such run, key, hook or file"),
    (4, "refused: somebody else was first, or the state does not allow it"),
    (5, "the server or the store cannot be reached; try again"),
    (6, "no valid token, or one that does not allow it"),
    (7, "the run has ended, but not completed"),
];

/// The exit codes as a part of the help.
pub(super) fn help() -> String {
    let codes = EXIT_CODES.map(|(code, meaning)| format!("  {code}  {meaning}")).join("\n");
    format!("Exit codes:\n{codes}")
}

/// Why a command did not do what it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    /// For any other reason.
    Failed = 1,
    /// What was asked is not acceptable.
    Usage = 2,
    /// There is no such thing.
    NotFound = 3,
    /// Somebody else was first, or the state does not allow it.
    Refused = 4,
    /// Nobody answers.
    Unavailable = 5,
    /// Who asks is unknown, or not allowed.
    Auth = 6,
    /// The run ended otherwise.
    NotCompleted = 7,
}

/// What a command says when it ends otherwise than well.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) exit: Exit,
    message: String,
    help: Option<String>,
}

/// The result of a command.
pub(super) type Done<T = ()> = Result<T, Failure>;

impl Failure {
    pub(super) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), help: None }
    }

    /// What to do about it.
    pub(super) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// A problem that the server has told.
    pub(super) fn told(problem: &ProblemView) -> Self {
        let ProblemView { detail, code, .. } = problem;
        let message = match problem.owner.as_ref().filter(|owner| !detail.contains(*owner)) {
            Some(owner) => format!("{detail} ({code}); the owner is {owner}"),
            None => format!("{detail} ({code})"),
        };
        let failure = Self::new(exit_of(problem.status), message);
        match problem.status {
            401 => failure.help("give a token with --token or SEMEL_TOKEN; `semel token create` makes one"),
            403 => failure.help("use a token with more permissions; `semel token create` makes one"),
            409 => failure.help("`semel run show RUN` shows its state; `semel run fork` does it once more"),
            429 => failure.help("wait a moment, and try again"),
            _ => failure,
        }
    }
}

/// The exit code that goes with an HTTP status.
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
            semel::Error::Open { .. } => failure.help("look at the address after --store"),
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
        for (code, status, title) in crate::http::CODES {
            let problem = ProblemView {
                kind: String::new(),
                title: title.to_owned(),
                status,
                detail: "what was wrong".to_owned(),
                code: code.to_owned(),
                owner: Some("run_7".to_owned()),
                pointers: Vec::new(),
            };
            let failure = Failure::told(&problem);
            assert_ne!(failure.exit, Exit::Failed, "{code}");
            assert!(failure.to_string().contains("run_7"), "{failure}");
            assert!(status != 401 || failure.to_string().contains("SEMEL_TOKEN"), "{failure}");
        }
    }
}
