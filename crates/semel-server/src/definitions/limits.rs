//! The limits of the language, each with its reason. They are part of `def1_`: a definition that was accepted once is accepted
//! by every later server.

use std::time::Duration;

/// Maximum size of a document in bytes: far above any definition written by hand, and small enough to check in milliseconds.
pub const DOCUMENT_BYTES: usize = 512 * 1024;
/// Maximum nesting of lists and objects in a document: bounds the stack of everything that walks a document. It also bounds
/// blocks to 14 levels, whose paths fit the engine's limit of 4,000 characters.
pub const DOCUMENT_DEPTH: usize = 32;
/// Maximum number of steps in a document: a graph with more cannot be read, and a part of it is a child.
pub const STEPS: usize = 1_000;
/// Maximum length of a name in characters: a path is copied into every entry of its step.
pub const NAME: usize = 100;
/// Maximum length of one `{{ }}` or `{% %}` in bytes: what is longer belongs into a step of its own.
pub const EXPRESSION_BYTES: usize = 4 * 1024;
/// How much of an expression an error shows, in characters.
pub const EXPRESSION_SHOWN: usize = 200;
/// Maximum number of tokens in one `{{ }}` or `{% %}`: bounds the stack of the expression parser.
pub const EXPRESSION_TOKENS: usize = 1_000;
/// Maximum number of `*` in one expression; products are short.
pub const MULTIPLICATIONS: usize = 4;
/// Maximum number of each of `~`, `+`, `-` and `not` in one expression: the expression parser recurses for each sign, and each
/// `~` copies its operands.
pub const OPERATORS: usize = 64;
/// Maximum number of instructions of one evaluation: loops over thousands of elements fit, endless work does not.
pub const FUEL: u64 = 50_000;
/// Maximum work of the filters and comparisons of one evaluation, in bytes and elements that they read or make. Fuel counts
/// instructions, but one instruction may read megabytes.
pub const WORK: usize = 32 * 1024 * 1024;
/// Maximum size of a rendered value in bytes; equal to the limit of a value in the ledger.
pub const RENDERED_BYTES: usize = semel::rules::json::MAX_BYTES;
/// Maximum number of steps that one run may begin, skipped ones included: a definition cannot run away.
pub const RUN_STEPS: u32 = 100_000;
/// Maximum number of passes of one `for_each` or `loop`: each is a path, and all of them are in the ledger.
pub const PASSES: u32 = 10_000;
/// Maximum number of passes that are under way at the same time; equal to the tasks at once per connection.
pub const PARALLEL: u32 = 64;
/// Maximum number of branches of a `parallel`, cases of a `switch`, and hooks of a definition: more cannot be read as a graph.
pub const BRANCHES: usize = 64;
/// Maximum number of attempts that a `retry` may count; beyond it, `for-ever` says what is meant.
pub const ATTEMPTS: i64 = 1_000;
/// Maximum timeout of an `approval` or `human` step: links and roles should not outlive a quarter.
pub const APPROVAL: Duration = Duration::from_hours(90 * 24);
/// Maximum length of any duration: ten years.
pub const DURATION: Duration = Duration::from_hours(3_652 * 24);
/// Maximum number of places of an input that an error names: the first ones say what is misunderstood.
pub const MISFITS: usize = 20;
/// Maximum size of a compiled pattern of a schema in bytes.
pub const PATTERN_BYTES: usize = 256 * 1024;
/// Maximum number of patterns in a schema: each is compiled when the definition is pushed, and again when it is first started.
pub const PATTERNS: usize = 100;
/// Maximum work of the check of an input, in values times the parts of the schema that look at them: a list of 2 MiB fits.
pub const SCHEMA_WORK: usize = 5_000_000;
/// Maximum number of parts of a schema inside each other while it looks at an input: bounds the stack.
pub const SCHEMA_DEPTH: usize = 500;
/// Maximum number of versions of a definition: all of them are in one record, which each push reads and writes.
pub const VERSIONS: usize = 10_000;
/// Maximum number of problems in an answer, the worst first: more are not read, and the answer stays small.
pub const PROBLEMS: usize = 100;
