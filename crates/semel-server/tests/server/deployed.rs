//! What is in deploy/ and what the book says of operating are true to the server.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::{Failed, Trial};
use semel_server::config::Config;
use semel_server::metrics::NAMES;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("deployed::the_book_lists_every_metric", listed),
        Trial::test("deployed::alerts_and_dashboard_know_no_other_metrics", known),
        Trial::test("deployed::the_example_configuration_is_one", configured),
        Trial::test("deployed::links_of_the_book_lead_somewhere", linked),
        Trial::test(
            "deployed::the_image_copies_what_is_there_and_all_that_the_build_reads",
            image_has_its_files,
        ),
        Trial::test("deployed::the_image_runs_a_server_without_root", image_runs),
        Trial::test("deployed::released_binaries_are_built_with_all_tasks", built_with_tasks),
        Trial::test("deployed::the_archive_of_a_release_has_the_same_bytes_twice", packed_twice),
    ]
}

/// Words of the lines of the Dockerfile that begin with an instruction.
fn dockerfile(instruction: &str) -> Result<Vec<Vec<String>>, Failed> {
    let text = fs::read_to_string(root().join("Dockerfile"))?;
    let words = |line: &str| line.split_whitespace().map(ToOwned::to_owned).collect();
    Ok(text.lines().filter_map(|line| line.strip_prefix(instruction)?.strip_prefix(' ')).map(words).collect())
}

/// What the image copies from the repository; the last word of a COPY is its destination.
fn copied() -> Result<BTreeSet<String>, Failed> {
    let copies = dockerfile("COPY")?.into_iter().filter(|words| !words[0].starts_with("--from"));
    Ok(copies.flat_map(|words| words[..words.len() - 1].to_vec()).collect())
}

/// Files in this folder and below it.
fn files_below(folder: &Path) -> Result<Vec<PathBuf>, Failed> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            true => found.extend(files_below(&path)?),
            false => found.push(path),
        }
    }
    Ok(found)
}

fn image_has_its_files() -> Result<(), Failed> {
    let copied = copied()?;
    let ignored = fs::read_to_string(root().join(".dockerignore"))?;
    for source in &copied {
        assert!(root().join(source).exists(), "{source} is not there");
        assert!(!ignored.lines().any(|line| line == source), "{source} is ignored");
    }
    for needed in [".cargo", "Cargo.toml", "Cargo.lock", "crates"] {
        assert!(copied.contains(needed), "the build needs {needed}");
    }
    let mut outside = 0;
    for file in
        files_below(&root().join("crates"))?.iter().filter(|file| file.extension() == Some("rs".as_ref()))
    {
        let is_built = file.components().any(|part| part.as_os_str() == "src");
        let text = if is_built { fs::read_to_string(file)? } else { continue };
        for included in text.split("include_str!(").skip(1) {
            let path = included.split('"').nth(1).unwrap_or_default();
            // Folders from the root to the file, less the steps upwards.
            let depth = file.strip_prefix(root())?.components().count() - 1;
            if path.matches("../").count() == depth {
                let folder = path.trim_start_matches("../").split('/').next().unwrap_or_default();
                assert!(copied.contains(folder), "{} includes {path}, which the image lacks", file.display());
                outside += 1;
            }
        }
    }
    assert!(outside > 2, "pages of the book are included");
    Ok(())
}

fn image_runs() -> Result<(), Failed> {
    let images = dockerfile("FROM")?;
    let manifest = fs::read_to_string(root().join("Cargo.toml"))?;
    let rust = manifest.lines().find_map(|line| line.strip_prefix("rust-version = \"")?.strip_suffix('"'));
    let rust = rust.ok_or("a rust-version")?;
    assert!(images[0][0].starts_with(&format!("rust:{rust}-")), "{images:?}");
    let debian = |image: &str| image.contains("bookworm");
    assert!(images.iter().all(|words| debian(&words[0])), "one C library for both: {images:?}");
    assert_eq!(dockerfile("USER")?, [["10001:10001"]]);
    let settings = dockerfile("ENV")?.into_iter().map(|words| {
        let (name, value) = words[0].split_once('=').expect("ENV NAME=value");
        (name.to_owned(), value.to_owned())
    });
    let secret = ("SEMEL_ROOT_TOKEN".to_owned(), "x".repeat(32));
    let config = Config::load(None, settings.chain([secret]), std::iter::empty())?;
    assert_eq!(dockerfile("EXPOSE")?, [[config.listen.port().to_string()]]);
    let folder = &dockerfile("VOLUME")?[0][0];
    assert!(config.store.expose().starts_with(&format!("sqlite:{folder}/")), "the store is on the volume");
    assert_eq!(
        (dockerfile("ENTRYPOINT")?, dockerfile("CMD")?),
        (vec![vec!["[\"semel\"]".into()]], vec![vec!["[\"serve\"]".into()]])
    );
    let text = fs::read_to_string(root().join("Dockerfile"))?;
    assert!(text.contains("HEALTHCHECK") && text.contains("semel doctor"));
    Ok(())
}

/// The feature `tasks` has every feature of a task, and released binaries are built with it.
fn built_with_tasks() -> Result<(), Failed> {
    for file in ["Dockerfile", "scripts/dist"] {
        let text = fs::read_to_string(root().join(file))?.replace("\\\n", " ");
        let builds: Vec<_> = text.lines().filter(|line| line.contains("cargo build --release")).collect();
        assert_eq!(builds.len(), 1, "{file}");
        let words: Vec<_> = builds[0].split_whitespace().collect();
        assert!(words.windows(2).any(|pair| pair == ["--features", "tasks"]), "{file}: {}", builds[0]);
    }
    let manifest: toml::Table =
        toml::from_str(&fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))?)?;
    let features = manifest["features"].as_table().ok_or("a table")?;
    let tasks = features["tasks"].as_array().ok_or("a list")?;
    let other = ["tasks", "otel", "sabotage"];
    for name in features.keys().filter(|name| !other.contains(&name.as_str())) {
        assert!(tasks.iter().any(|task| task.as_str() == Some(name)), "`tasks` lacks `{name}`");
    }
    Ok(())
}

fn packed_twice() -> Result<(), Failed> {
    let work = tempfile::tempdir()?;
    // The binary of a test is large; what is packed in its place calls it.
    let binary = work.path().join("semel");
    fs::write(&binary, format!("#!/bin/sh\nexec {} \"$@\"\n", env!("CARGO_BIN_EXE_semel")))?;
    fs::set_permissions(&binary, fs::Permissions::from_mode(0o700))?;
    let pack = |folder: &str, umask: &str| -> Result<(PathBuf, Vec<u8>), Failed> {
        let out = work.path().join(folder);
        let command =
            format!("umask {umask} && exec {} {}", root().join("scripts/dist").display(), out.display());
        let packed = Command::new("sh")
            .args(["-c", &command])
            .env("SEMEL_DIST_BINARY", &binary)
            .env("SOURCE_DATE_EPOCH", "1700000000")
            .output()?;
        assert!(packed.status.success(), "{}", String::from_utf8_lossy(&packed.stderr));
        let archives = files_below(&out)?;
        let archive =
            archives.iter().find(|file| file.extension() == Some("gz".as_ref())).ok_or("an archive")?;
        assert!(archives.iter().any(|file| file.extension() == Some("sha256".as_ref())));
        Ok((archive.clone(), fs::read(archive)?))
    };
    let ((archive, one), (_, other)) = (pack("one", "077")?, pack("other", "022")?);
    assert!(one == other, "the archives differ");
    let list = Command::new("tar").arg("-tvzf").arg(archive).output()?;
    let list = String::from_utf8(list.stdout)?;
    for file in [
        "semel",
        "completions/_semel",
        "completions/semel.bash",
        "completions/semel.fish",
        "LICENSE-MIT",
        "LICENSE-APACHE",
        "README.md",
        "man/semel.1",
        "man/semel-run-ls.1",
    ] {
        assert!(list.lines().any(|line| line.ends_with(&format!("/{file}"))), "{file} is not in\n{list}");
    }
    assert!(list.lines().all(|line| line.contains(" 0/0 ") && line.contains(" 2023-11-14 ")), "{list}");
    Ok(())
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The metrics that a file names; the parts of a histogram are the histogram's.
fn metrics_in(file: &str) -> Result<BTreeSet<String>, Failed> {
    let text = fs::read_to_string(root().join(file))?;
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let metric = |word: &str| word.strip_suffix("_bucket").unwrap_or(word).to_owned();
    Ok(words.filter(|word| word.starts_with("semel_")).map(metric).collect())
}

/// Every metric there is: the library's and the server's.
fn all() -> BTreeSet<String> {
    semel::metrics::NAMES.iter().chain(&NAMES).map(ToString::to_string).collect()
}

fn listed() -> Result<(), Failed> {
    assert_eq!(metrics_in("docs/operating.md")?, all());
    Ok(())
}

fn known() -> Result<(), Failed> {
    for file in ["deploy/alerts.yaml", "deploy/grafana-dashboard.json"] {
        let named = metrics_in(file)?;
        assert!(named.len() > 5, "{file} watches something");
        for metric in named {
            assert!(all().contains(&metric), "{file} names {metric}");
        }
    }
    let dashboard = fs::read_to_string(root().join("deploy/grafana-dashboard.json"))?;
    serde_json::from_str::<serde_json::Value>(&dashboard)?;
    Ok(())
}

fn configured() -> Result<(), Failed> {
    let file = root().join("deploy/semel.toml");
    let config = Config::load(Some(&file), std::iter::empty(), std::iter::empty())?;
    assert_eq!(config.store.expose(), "sqlite:semel.db");
    let unit = fs::read_to_string(root().join("deploy/semel.service"))?;
    // The service's user cannot read the file itself.
    assert!(unit.contains("LoadCredential=semel.toml:/etc/semel/semel.toml"));
    assert!(unit.contains("semel serve --config ${CREDENTIALS_DIRECTORY}/semel.toml"));
    Ok(())
}

fn linked() -> Result<(), Failed> {
    let mut links = 0;
    for entry in fs::read_dir(root().join("docs"))? {
        let page = entry?.path();
        if page.extension().is_none_or(|kind| kind != "md") {
            continue;
        }
        let text = fs::read_to_string(&page)?;
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = target.split('#').next().unwrap_or_default();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            links += 1;
            assert!(page.with_file_name(target).exists(), "{} leads to {target}", page.display());
        }
    }
    assert!(links > 10, "the book has links");
    Ok(())
}
