use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use semel::clock::SystemClock;

use super::*;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/definitions").join(name)
}

/// The files of a folder with their texts, in the order of their names.
fn files(name: &str) -> Vec<(String, String)> {
    let mut found: Vec<_> = fs::read_dir(folder(name)).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.sort();
    let read = |path: PathBuf| {
        (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read_to_string(path).unwrap())
    };
    found.into_iter().map(read).collect()
}

/// What a file says about a problem: `# 3:5 /steps/0 part of the message => part of the hint`.
#[derive(Debug)]
struct Expectation {
    place: String,
    pointer: String,
    message: String,
    /// Absent if the problem has no hint.
    hint: Option<String>,
}

impl Expectation {
    fn fits(&self, problem: &Problem) -> bool {
        let place = format!("{}:{}", problem.place.line, problem.place.column);
        let hint_fits = match (&self.hint, &problem.hint) {
            (Some(expected), Some(found)) => found.contains(expected.as_str()),
            (None, None) => true,
            _ => false,
        };
        self.place == place
            && self.pointer == problem.pointer
            && problem.message.contains(self.message.as_str())
            && hint_fits
    }
}

/// What a file says about itself.
fn expectations(text: &str) -> Vec<Expectation> {
    let lines = text.lines().take_while(|line| line.starts_with("# "));
    let parse = |line: &str| {
        let (place, rest) = line[2..].split_once(' ').expect("place, pointer and message");
        let (pointer, said) = rest.split_once(' ').expect("pointer and message");
        let (message, hint) = match said.split_once(" => ") {
            Some((message, hint)) => (message, Some(hint.to_owned())),
            None => (said, None),
        };
        let pointer = pointer.trim_end_matches('~').replace('%', " ");
        Expectation { place: place.to_owned(), pointer, message: message.to_owned(), hint }
    };
    lines.map(parse).collect()
}

/// Line and column are counted in the whole file, the expectations at its head included. A pointer to the whole document is
/// written as `~`, a blank in one as `%`.
#[test]
fn every_wrong_document_is_refused_at_the_place_that_a_person_would_name() {
    let files = files("wrong");
    assert!(files.len() >= 150, "{}", files.len());
    let mut wrong = Vec::new();
    for (name, text) in files {
        let expected = expectations(&text);
        let (refused, problems) = match check(&text) {
            Ok(accepted) => (false, accepted.warnings),
            Err(problems) => (true, problems),
        };
        let is_warning = name.starts_with("warning-");
        let shown: Vec<String> = problems
            .iter()
            .map(|p| {
                let hint = p.hint.as_deref().map(|hint| format!(" => {hint}")).unwrap_or_default();
                format!("{}:{} {} {}{hint}", p.place.line, p.place.column, p.pointer, p.message)
            })
            .collect();
        let fits = expected.len() == problems.len()
            && expected.iter().zip(&problems).all(|(expected, problem)| expected.fits(problem));
        if !fits || refused == is_warning {
            wrong.push(format!("{name}:\n  expected {expected:?}\n  found    {shown:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{} files:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_definition_with_more_than_a_thousand_steps_is_refused_at_the_first_one_too_many() {
    let step = |n: usize| format!("  - {{name: s{n}, wait: 1s}}\n");
    let text =
        |steps: usize| format!("semel: 1\nname: a\nsteps:\n{}", (0..steps).map(step).collect::<String>());
    assert!(check(&text(1_000)).is_ok());
    // Those inside of blocks count too.
    let inside = "  - name: block\n    switch:\n      - steps:\n          - {name: one, wait: 1s}\n";
    for (text, place, pointer) in [
        (text(1_001), (1_004, 5), "/steps/1000"),
        (text(999) + inside, (1_006, 13), "/steps/999/switch/0/steps/0"),
    ] {
        let problems = check(&text).unwrap_err();
        let [problem] = problems.as_slice() else { panic!("{problems:?}") };
        assert_eq!((problem.place.line, problem.place.column), place);
        assert_eq!(problem.pointer, pointer);
        assert_eq!(problem.message, "the definition has more than 1000 steps");
        let hint = "move a part of it into a definition of its own, and call that with `child`";
        assert_eq!(problem.hint.as_deref(), Some(hint));
    }
}

#[test]
fn every_right_document_is_accepted() {
    let files = files("right");
    assert!(files.len() >= 11, "{}", files.len());
    for (name, text) in &files {
        match check(text) {
            Ok(accepted) => assert_eq!(accepted.warnings, [], "{name}"),
            Err(problems) => panic!("{name}: {problems:#?}"),
        }
    }
}

#[test]
fn at_most_a_hundred_problems_are_told() {
    let steps: Vec<String> = (0..200).map(|n| format!("  - {{name: s{n}, htp: {{}}}}\n")).collect();
    let problems = check(&format!("semel: 1\nname: a\nsteps:\n{}", steps.concat())).unwrap_err();
    assert_eq!(problems.len(), crate::definitions::limits::PROBLEMS);
}

#[test]
fn the_largest_definition_is_checked_quickly() {
    let step = |n: usize| {
        format!(
            "  - {{name: s{n}, set: {{a{n}: \"{{{{ input.x ~ input.y|default('') }}}}\", b: [1, 2, {{c: d}}]}}}}\n"
        )
    };
    let text = format!("semel: 1\nname: a\nsteps:\n{}", (0..1_000).map(step).collect::<String>());
    let clock = SystemClock::new();
    check(&text).unwrap();
    let most = if cfg!(debug_assertions) { 3_000 } else { 300 };
    assert!(clock.elapsed().as_millis() < most, "{:?}", clock.elapsed());
}

proptest! {
    /// Words of the language in place of others: the check sees documents that are nearly right.
    #[test]
    fn no_mutation_of_a_document_makes_the_check_panic(
        file in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), cut in 0..12usize,
        piece in prop::sample::select(vec![
            "", "{{", "}}", "{% for a in b %}", "null", "[]", "{}", "- ", ": ", "\n", "steps", "name", "1e9", "'", "{{ steps }}",
            "http", "loop: {while: 1}", "0", "\"", "{{ x|map('y') }}", "  ", "switch:", "input:", "{type: 1}", "$ref", "#/a",
        ])
    ) {
        let files = files("right");
        let text: Vec<char> = file.get(&files).1.chars().collect();
        let from = at.index(text.len());
        let to = (from + cut).min(text.len());
        let mutated: String = text[..from].iter().copied().chain(piece.chars()).chain(text[to..].iter().copied()).collect();
        let clock = SystemClock::new();
        drop(check(&mutated));
        let most = if cfg!(debug_assertions) { 2_000 } else { 100 };
        prop_assert!(clock.elapsed().as_millis() < most, "{:?}: {}", clock.elapsed(), mutated);
    }
}

const PAGE: &str = include_str!("../../../../../docs/definitions.md");

const TASKS: &str = include_str!("../../../../../docs/tasks.md");

/// The YAML of a page: whole definitions, and lists of steps.
fn examples(page: &str) -> Vec<String> {
    let blocks = page.split("```yaml\n").skip(1);
    blocks.map(|rest| rest.split("```").next().expect("a fence ends").to_owned()).collect()
}

#[test]
fn every_example_of_the_documentation_is_accepted() {
    let (language, tasks) = (examples(PAGE), examples(TASKS));
    assert!(language.len() >= 3 && tasks.len() >= 9);
    for example in language.into_iter().chain(tasks) {
        let text = match example.starts_with("semel:") {
            true => example,
            false => format!("semel: 1\nname: example\nsteps:\n{example}"),
        };
        match check(&text) {
            Ok(accepted) => assert_eq!(accepted.warnings, [], "{text}"),
            Err(problems) => panic!("{text}\n{problems:#?}"),
        }
    }
}

#[test]
fn the_page_of_tasks_has_an_example_and_all_arguments_of_each_kind() {
    use crate::definitions::shape::Shape;
    let sections: Vec<_> = TASKS.split("\n## ").skip(1).collect();
    for kind in crate::tasks::KINDS {
        let section = sections.iter().find(|section| {
            let heading = section.lines().next().unwrap_or_default();
            heading.split(", ").any(|name| name == kind.name)
        });
        let section = section.unwrap_or_else(|| panic!("there is no section for `{}`", kind.name));
        assert!(section.contains("```yaml") && section.contains(kind.name), "`{}` has no example", kind.name);
        let Shape::Object(fields) = kind.args else { continue };
        for field in fields {
            // `human` has what `approval` has, and says so.
            let named = section.contains(&format!("`{}`", field.name)) || kind.name == "human";
            assert!(named, "`{}` of `{}` is not in its section", field.name, kind.name);
        }
    }
}

#[test]
fn the_page_of_tasks_says_which_kinds_make_attempts() {
    let said = TASKS
        .split("- **`retry`, `timeout` and `class`** belong to steps that make attempts: ")
        .nth(1)
        .unwrap();
    let said = said.split('.').next().unwrap();
    for kind in crate::tasks::KINDS {
        assert_eq!(said.contains(&format!("`{}`", kind.name)), kind.tries, "{}: {said}", kind.name);
    }
}

#[test]
fn the_documentation_names_everything_that_there_is() {
    use crate::definitions::expression::{FILTERS, TESTS};
    use crate::definitions::language::{BLOCKS, DEFINITION};
    use crate::tasks::{ABSENT, KINDS};
    let members = DEFINITION.iter().chain(&BLOCKS).map(|field| field.name);
    let tasks = KINDS.iter().map(|kind| kind.name).chain(ABSENT.iter().copied());
    for name in members.chain(tasks).chain(FILTERS).chain(TESTS) {
        assert!(PAGE.contains(&format!("`{name}`")) || PAGE.contains(&format!("\n  {name}:")), "{name}");
    }
}
