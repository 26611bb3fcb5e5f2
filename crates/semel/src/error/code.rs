//! The error codes: one table of their texts, HTTP statuses and titles. Everything that lists codes is made from it:
//! the answers of a server, its OpenAPI document and pages, exit codes, and the client of remote workers.

use std::fmt;

/// Calls a macro with the table of error codes: name of the variant, text, HTTP status, whether the same call may
/// succeed later, title, documentation.
#[doc(hidden)]
#[macro_export]
macro_rules! error_codes {
    ($with:ident) => {
        $with! {
            Validation "VALIDATION_ERROR" 400 false "The request is not valid" "The request must be changed.",
            Auth "AUTH_ERROR" 401 false "Authentication failed" "A server's answer to a missing or invalid credential.",
            Forbidden "FORBIDDEN" 403 false "Permission denied" "A server's answer if the credential lacks the permission.",
            NotFound "NOT_FOUND" 404 false "Not found" "The object does not exist in this workspace.",
            HookNotFound "HOOK_NOT_FOUND" 404 true "No open hook has this token" "A run may open the hook later.",
            DefinitionNotFound "DEFINITION_NOT_FOUND" 404 false "There is no such definition" "No definition has this id, name or label.",
            MethodNotAllowed "METHOD_NOT_ALLOWED" 405 false "Method not allowed" "A server's answer to a wrong HTTP method.",
            Concurrency "CONCURRENCY_ERROR" 409 false "Modified concurrently" "Another call was first; nothing was changed.",
            AlreadyDecided "ALREADY_DECIDED" 409 false "Already decided or closed" "Another decision of an approval was first.",
            DuplicateRun "DUPLICATE_RUN" 409 false "A run exists under this key" "The policy of the start refuses duplicates.",
            InvalidTransition "INVALID_TRANSITION" 409 false "Not possible in this state" "The state does not allow the call.",
            RunFinished "RUN_FINISHED" 409 false "The run has ended" "An ended run takes no input and no commands.",
            VersionTaken "VERSION_TAKEN" 409 false "The label belongs to another version" "A label names one version of a definition permanently.",
            PayloadTooLarge "PAYLOAD_TOO_LARGE" 413 false "Payload too large" "A value or body exceeds its limit.",
            InputInvalid "INPUT_INVALID" 422 false "The value does not fit its schema" "A server's answer to a value that its JSON Schema refuses.",
            KeyReused "KEY_REUSED" 422 false "The key was used for a different request" "The same key needs the same request.",
            InboxFull "INBOX_FULL" 429 true "The inbox of the run is full" "The run has too many unconsumed messages.",
            RateLimit "RATE_LIMIT_ERROR" 429 true "Too many requests" "A server's answer to a caller above its limit.",
            Unavailable "UNAVAILABLE" 503 true "Temporarily unavailable" "The store or the server cannot answer now.",
        }
    };
}

macro_rules! define {
    ($($name:ident $text:literal $status:literal $retryable:literal $title:literal $doc:literal,)+) => {
        /// Code of an error: what programs decide by.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorCode {
            $(#[doc = concat!("`", $text, "`, HTTP status ", $status, ". ", $doc)] $name,)+
        }

        impl ErrorCode {
            /// All codes, in the order of their HTTP statuses.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// The code as it is written on the wire: upper-case words.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }

            /// HTTP status of the code.
            pub const fn status(self) -> u16 {
                match self { $(Self::$name => $status,)+ }
            }

            /// Short title of the code, for people.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)+ }
            }

            /// Whether the same call may succeed later. [`Error::is_retryable`](crate::Error::is_retryable) knows
            /// more about a single error.
            pub const fn is_retryable(self) -> bool {
                match self { $(Self::$name => $retryable,)+ }
            }
        }
    };
}
error_codes!(define);

impl ErrorCode {
    /// The code with this text. `None` if this release knows no such code.
    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str() == text)
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_found_by_its_text_and_has_an_error_status() {
        for code in ErrorCode::ALL {
            assert_eq!(ErrorCode::from_text(code.as_str()), Some(*code));
            assert!((400..600).contains(&code.status()), "{code}");
            assert!(code.as_str().chars().all(|c| c.is_ascii_uppercase() || c == '_'), "{code}");
        }
        assert_eq!(ErrorCode::from_text("TEAPOT"), None);
        assert!(ErrorCode::ALL.is_sorted_by_key(|code| code.status()), "OpenAPI groups codes by status");
    }
}
