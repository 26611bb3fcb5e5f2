//! A statement with placeholders: `:name` in the author's text becomes a parameter of the database, and only where it is code.
//!
//! What is a literal, a comment or a quoted name differs between databases, so a text is read as one of them reads it. Values never
//! become a part of the text.

use serde_json::Value as Json;

/// Whose rules of quoting a statement is read by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spelling {
    Postgres,
    Sqlite,
    Mysql,
}

impl Spelling {
    /// All of them, for checks that do not know the database yet.
    pub(crate) const ALL: [Self; 3] = [Self::Postgres, Self::Sqlite, Self::Mysql];

    fn has_backslashes(self) -> bool {
        self == Self::Mysql
    }
}

/// Maximum number of placeholders, the limit of SQLite's older versions.
const MOST_NAMES: usize = 999;
/// Maximum length of a statement in bytes.
const MOST_BYTES: usize = 64 * 1024;

/// Words with which a statement of `run` begins. What manages transactions, sessions or tables is not among them: it would end the
/// transaction in which the outcome is recorded, or reach the next task that uses the connection.
const WRITES: [&str; 9] =
    ["INSERT", "UPDATE", "DELETE", "MERGE", "REPLACE", "WITH", "SELECT", "VALUES", "CALL"];
/// Words with which a statement of `read` begins.
const READS: [&str; 6] = ["SELECT", "WITH", "VALUES", "TABLE", "SHOW", "EXPLAIN"];

/// A statement, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Statement {
    spelling: Spelling,
    parts: Vec<StatementPart>,
    names: Vec<String>,
    /// First word of the statement, in upper case.
    verb: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum StatementPart {
    /// Text that is sent as it is.
    Code(String),
    /// The placeholder with this index in the names.
    Name(usize),
}

impl Statement {
    /// Takes a statement apart as this database reads it; the error says what to write instead.
    pub(crate) fn parse(text: &str, spelling: Spelling) -> Result<Self, String> {
        if text.len() > MOST_BYTES {
            return Err(format!(
                "the statement has {} bytes, and at most {MOST_BYTES} are accepted",
                text.len()
            ));
        }
        if text.contains('\0') {
            return Err("the statement has a character 0, which no database takes".to_owned());
        }
        let scanner =
            Scanner { spelling, text, at: 0, parts: Vec::new(), code: String::new(), names: vec![] };
        scanner.scan()
    }

    /// Names of the placeholders, in the order in which they first occur.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// Refuses a statement that `run` does not take.
    pub(crate) fn check_write(&self) -> Result<(), String> {
        if self.verb == "CALL" && self.spelling != Spelling::Postgres {
            return Err(
                "a procedure may commit by itself, and the outcome would not be in that commit; write \
                        its statements as steps of a `transaction`"
                    .to_owned(),
            );
        }
        self.check_verb(&WRITES, "`run` takes one statement that changes rows")
    }

    /// Refuses a statement that `read` does not take.
    pub(crate) fn check_read(&self) -> Result<(), String> {
        self.check_verb(&READS, "`read` takes one query")
    }

    fn check_verb(&self, known: &[&str], what: &str) -> Result<(), String> {
        if known.contains(&self.verb.as_str()) {
            return Ok(());
        }
        let begins = if self.verb.is_empty() {
            "this one is empty".to_owned()
        } else {
            format!("this one begins with `{}`", self.verb)
        };
        Err(format!("{what}, beginning with one of {}; {begins}", known.join(", ")))
    }

    /// The statement as the database takes it: `$1`, `?1` or `?` in the places of names.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                StatementPart::Code(code) => text.push_str(code),
                StatementPart::Name(index) => match self.spelling {
                    Spelling::Postgres => text.push_str(&format!("${}", index + 1)),
                    Spelling::Sqlite => text.push_str(&format!("?{}", index + 1)),
                    Spelling::Mysql => text.push('?'),
                },
            }
        }
        text
    }

    /// The values in the order in which the database wants them; one that is not given is null.
    pub(crate) fn values(&self, args: &Json) -> Vec<Json> {
        let value = |index: usize| args.get(&self.names[index]).cloned().unwrap_or(Json::Null);
        match self.spelling {
            // Each place is a parameter of its own.
            Spelling::Mysql => self
                .parts
                .iter()
                .filter_map(|part| match part {
                    StatementPart::Name(index) => Some(value(*index)),
                    StatementPart::Code(_) => None,
                })
                .collect(),
            _ => (0..self.names.len()).map(value).collect(),
        }
    }
}

/// What stood at a place of a statement, and is behind it now.
enum Taken {
    /// Nothing was taken: code begins here.
    Nothing,
    Literal,
    Comment,
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || !c.is_ascii()
}

struct Scanner<'t> {
    spelling: Spelling,
    text: &'t str,
    /// Position in the text, in bytes.
    at: usize,
    parts: Vec<StatementPart>,
    /// The part of the text since the last placeholder.
    code: String,
    names: Vec<String>,
}

impl Scanner<'_> {
    fn scan(mut self) -> Result<Statement, String> {
        let mut verb = String::new();
        let mut ended = false;
        while let Some(c) = self.peek() {
            match self.skip_quoted(c)? {
                Taken::Nothing => {}
                Taken::Comment => continue,
                Taken::Literal if ended => return Err(several()),
                Taken::Literal => {
                    if verb.is_empty() {
                        verb.push(c);
                    }
                    continue;
                }
            }
            if c == ';' {
                // One at the end is common, and says nothing.
                self.at += 1;
                ended = true;
                continue;
            }
            if ended && !c.is_whitespace() {
                return Err(several());
            }
            if verb.is_empty() && is_word(c) {
                verb = self.rest().chars().take_while(|c| is_word(*c)).collect::<String>().to_uppercase();
            }
            if !self.placeholder(c)? {
                self.keep(c);
            }
        }
        self.flush();
        if self.names.len() > MOST_NAMES {
            return Err(format!("the statement has more than {MOST_NAMES} placeholders"));
        }
        Ok(Statement { spelling: self.spelling, parts: self.parts, names: self.names, verb })
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn previous(&self) -> Option<char> {
        self.text[..self.at].chars().next_back()
    }

    fn keep(&mut self, c: char) {
        self.code.push(c);
        self.at += c.len_utf8();
    }

    fn flush(&mut self) {
        if !self.code.is_empty() {
            self.parts.push(StatementPart::Code(std::mem::take(&mut self.code)));
        }
    }

    /// Takes this number of bytes unchanged.
    fn take(&mut self, length: usize) {
        self.code.push_str(&self.text[self.at..self.at + length]);
        self.at += length;
    }

    /// Takes a literal, a quoted name or a comment, if one begins here.
    fn skip_quoted(&mut self, c: char) -> Result<Taken, String> {
        use Spelling::{Mysql, Postgres, Sqlite};
        let rest = self.rest();
        match (c, self.spelling) {
            ('\'', _) => {
                let backslashes = self.spelling.has_backslashes() || self.is_escaped_string();
                self.quoted('\'', backslashes)
            }
            ('"', _) => self.quoted('"', self.spelling.has_backslashes()),
            ('`', Mysql | Sqlite) => self.quoted('`', false),
            ('[', Sqlite) => self.quoted(']', false),
            ('-', Mysql) if rest.starts_with("--") && !is_comment_of_mysql(rest) => Ok(Taken::Nothing),
            ('-', _) if rest.starts_with("--") => Ok(self.comment_to_line_end()),
            ('#', Mysql) => Ok(self.comment_to_line_end()),
            ('/', _) if rest.starts_with("/*") => self.block_comment(),
            ('$', Postgres) => self.dollar_quoted(),
            _ => Ok(Taken::Nothing),
        }
    }

    /// Whether the literal of PostgreSQL that begins here is one with escapes: `E'…'`.
    fn is_escaped_string(&self) -> bool {
        let before = self.text[..self.at].strip_suffix(['e', 'E']);
        self.spelling == Spelling::Postgres && before.is_some_and(|before| !before.ends_with(is_word))
    }

    /// A doubled quote inside ends one literal and begins another, which has the same effect.
    fn quoted(&mut self, end: char, backslashes: bool) -> Result<Taken, String> {
        let mut characters = self.rest().char_indices().skip(1);
        while let Some((index, c)) = characters.next() {
            if c == '\\' && backslashes {
                characters.next();
            } else if c == end {
                self.take(index + 1);
                return Ok(Taken::Literal);
            }
        }
        Err(format!("a quote in the statement is opened and not closed with `{end}`"))
    }

    /// Comments become a blank.
    fn comment_to_line_end(&mut self) -> Taken {
        self.at += self.rest().find('\n').map_or(self.rest().len(), |end| end + 1);
        self.code.push(' ');
        Taken::Comment
    }

    fn block_comment(&mut self) -> Result<Taken, String> {
        let rest = self.rest();
        if self.spelling == Spelling::Mysql && (rest.starts_with("/*!") || rest.starts_with("/*M!")) {
            return Err(
                "`/*!` is a comment to some servers and code to others: write the code itself".to_owned()
            );
        }
        let (mut depth, mut at) = (0_usize, 0);
        while at < rest.len() {
            let left = &rest[at..];
            if left.starts_with("/*") && (depth == 0 || self.spelling == Spelling::Postgres) {
                (depth, at) = (depth + 1, at + 2);
            } else if left.starts_with("*/") {
                (depth, at) = (depth - 1, at + 2);
                if depth == 0 {
                    // A hint of the planner is kept.
                    if rest.starts_with("/*+") {
                        self.take(at);
                    } else {
                        self.at += at;
                    }
                    self.code.push(' ');
                    return Ok(Taken::Comment);
                }
            } else {
                at += left.chars().next().map_or(1, char::len_utf8);
            }
        }
        Err("a comment in the statement is opened and not closed with `*/`".to_owned())
    }

    /// `$tag$ … $tag$` of PostgreSQL.
    fn dollar_quoted(&mut self) -> Result<Taken, String> {
        if self.previous().is_some_and(is_word) {
            return Ok(Taken::Nothing);
        }
        let rest = self.rest();
        let tag = rest[1..].find(|c| !is_word(c)).map(|end| &rest[..end + 2]);
        let Some(tag) =
            tag.filter(|tag| tag.ends_with('$') && !tag[1..].starts_with(|c: char| c.is_ascii_digit()))
        else {
            return Err("`$1` is not possible here: write `:name`, and its value in `args`".to_owned());
        };
        match rest[tag.len()..].find(tag) {
            Some(end) => {
                self.take(end + 2 * tag.len());
                Ok(Taken::Literal)
            }
            None => Err(format!("`{tag}` in the statement is opened and not closed")),
        }
    }

    /// Takes a placeholder, if one begins here. Parameters in the database's own form are refused: nothing would give their values.
    fn placeholder(&mut self, c: char) -> Result<bool, String> {
        let own = match (c, self.spelling) {
            ('?', Spelling::Mysql | Spelling::Sqlite) | ('$', Spelling::Sqlite) => true,
            ('@', Spelling::Sqlite) => true,
            ('@', Spelling::Mysql) => !self.rest().starts_with("@@") && self.previous() != Some('@'),
            _ => false,
        };
        if own && !(c == '$' && self.previous().is_some_and(is_word)) {
            return Err(format!("`{c}` is not possible here: write `:name`, and its value in `args`"));
        }
        if c != ':' {
            return Ok(false);
        }
        let name = self.rest()[1..].split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).next();
        let name = name.filter(|name| name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'));
        // `a::int` is a cast, `a[1:n]` a slice.
        let is_other = |c: char| is_word(c) || matches!(c, ':' | ')' | ']');
        let Some(name) = name.filter(|_| !self.previous().is_some_and(is_other)) else { return Ok(false) };
        let name = name.to_owned();
        self.at += 1 + name.len();
        let index = self.names.iter().position(|known| *known == name).unwrap_or_else(|| {
            self.names.push(name);
            self.names.len() - 1
        });
        self.flush();
        self.parts.push(StatementPart::Name(index));
        Ok(true)
    }
}

/// MySQL takes `--` for a comment only before a blank or the end.
fn is_comment_of_mysql(rest: &str) -> bool {
    rest[2..].chars().next().is_none_or(|c| c.is_whitespace() || c.is_control())
}

fn several() -> String {
    "a step has one statement; write several as steps of a `transaction`".to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parsed(text: &str, spelling: Spelling) -> (String, Vec<String>) {
        let statement = Statement::parse(text, spelling).unwrap_or_else(|why| panic!("{text}: {why}"));
        (statement.text(), statement.names)
    }

    #[test]
    fn names_become_parameters_and_the_same_name_the_same() {
        let text = "UPDATE a SET c = c - :cents WHERE o = :who AND c >= :cents";
        for (spelling, expected) in [
            (Spelling::Postgres, "UPDATE a SET c = c - $1 WHERE o = $2 AND c >= $1"),
            (Spelling::Sqlite, "UPDATE a SET c = c - ?1 WHERE o = ?2 AND c >= ?1"),
            (Spelling::Mysql, "UPDATE a SET c = c - ? WHERE o = ? AND c >= ?"),
        ] {
            let (sent, names) = parsed(text, spelling);
            assert_eq!((sent.as_str(), names), (expected, vec!["cents".to_owned(), "who".to_owned()]));
        }
        let statement = Statement::parse(text, Spelling::Mysql).unwrap();
        assert_eq!(statement.values(&json!({"who": "ann", "cents": 7})), [json!(7), json!("ann"), json!(7)]);
    }

    #[test]
    fn nothing_is_replaced_where_it_is_no_code() {
        use Spelling::{Mysql, Postgres, Sqlite};
        for (spelling, text) in [
            (Postgres, "SELECT ':a', 'it''s :a', \":a\", a::int, b ::text"),
            (Postgres, "SELECT E'\\':a', e'\\\\', name'x'"),
            (Postgres, "SELECT $$:a 'x$$, $tag$ :a $$ $tag$, a$b"),
            (Postgres, "SELECT x[1:n], x[f(1):n], '{a}' ? 'b'"),
            (Sqlite, "SELECT ':a', [:a], `:a`, \":a\", x'00'"),
            (Mysql, "SELECT 'it\\':a', \"\\\":a\", `:a`, 2--1, @@version"),
        ] {
            let (sent, names) = parsed(text, spelling);
            assert_eq!((sent.as_str(), names.len()), (text, 0), "{spelling:?}");
        }
    }

    #[test]
    fn comments_are_left_out() {
        use Spelling::{Mysql, Postgres, Sqlite};
        for (spelling, text, sent) in [
            (Postgres, "-- :a\nSELECT 1", " SELECT 1"),
            (Postgres, "/* :a /* ; */ :b */ SELECT 1 -- :c", "  SELECT 1  "),
            (Sqlite, "SELECT 1 /* /* */ ; -- end", "SELECT 1     "),
            (Mysql, "SELECT 1 # :a\n, 2 -- ;", "SELECT 1  , 2  "),
            (Mysql, "SELECT /*+ NO_ICP(t) */ 1;", "SELECT /*+ NO_ICP(t) */  1"),
        ] {
            assert_eq!(parsed(text, spelling), (sent.to_owned(), Vec::new()), "{text}");
        }
    }

    #[test]
    fn what_is_hostile_or_half_is_refused() {
        use Spelling::{Mysql, Postgres, Sqlite};
        for (spelling, text, why) in [
            (Postgres, "SELECT 1; DROP TABLE a", "one statement"),
            (Postgres, "SELECT 1; 'x'", "one statement"),
            (Sqlite, "SELECT 1;;\nSELECT 2", "one statement"),
            (Postgres, "SELECT 'a", "not closed"),
            (Postgres, "SELECT E'a\\'", "not closed"),
            (Postgres, "SELECT $x$ a $y$", "not closed"),
            (Postgres, "SELECT /* /* */", "not closed"),
            (Postgres, "SELECT $1", "`:name`"),
            (Sqlite, "SELECT ?1", "`:name`"),
            (Sqlite, "SELECT @a", "`:name`"),
            (Sqlite, "SELECT $a", "`:name`"),
            (Mysql, "SELECT ?", "`:name`"),
            (Mysql, "SELECT @a := 1", "`:name`"),
            (Mysql, "SELECT 1 /*! + 1 */", "code to others"),
            (Mysql, "SELECT 'a\\'", "not closed"),
            (Postgres, "SELECT '\0'", "character 0"),
        ] {
            let refused = Statement::parse(text, spelling).unwrap_err();
            assert!(refused.contains(why), "{text}: {refused}");
        }
        assert!(Statement::parse(&format!("SELECT '{}'", "x".repeat(MOST_BYTES)), Postgres).is_err());
    }

    #[test]
    fn only_statements_about_rows_are_taken() {
        for text in [
            "COMMIT",
            "/* x */ rollback",
            "BEGIN",
            "SET search_path = x",
            "DO $$ $$",
            "XA COMMIT 'x'",
            "PREPARE TRANSACTION 'x'",
            "ATTACH 'x' AS y",
            "PRAGMA user_version",
            "CREATE TABLE a (b int)",
            "LOCK TABLES a WRITE",
            "",
            "-- nothing",
            "'COMMIT'",
        ] {
            for spelling in Spelling::ALL {
                let statement = Statement::parse(text, spelling);
                assert!(statement.is_err() || statement.unwrap().check_write().is_err(), "{text}");
                let statement = Statement::parse(text, spelling);
                assert!(statement.is_err() || statement.unwrap().check_read().is_err(), "{text}");
            }
        }
        let call = |spelling| Statement::parse("CALL pay(:a)", spelling).unwrap().check_write();
        assert!(call(Spelling::Postgres).is_ok() && call(Spelling::Mysql).unwrap_err().contains("procedure"));
        for text in ["insert into a values (:b)", "  (SELECT 1)", "with x as (select 1) delete from a"] {
            assert!(Statement::parse(text, Spelling::Postgres).unwrap().check_write().is_ok(), "{text}");
        }
    }

    proptest::proptest! {
        /// Whatever the text, taking it apart ends, and what is sent has as many parameters as values.
        #[test]
        fn any_text_is_taken_apart_or_refused(text in "[ -~\\n'\"`$:;/*#@?a-c\\\\é-]{0,40}") {
            for spelling in Spelling::ALL {
                if let Ok(statement) = Statement::parse(&text, spelling) {
                    assert!(statement.values(&json!({})).len() >= statement.names().len());
                    if statement.names().is_empty() && !text.contains(['-', '/', '#', ';']) {
                        assert_eq!(statement.text(), text);
                    }
                }
            }
        }
    }
}
