//! The shape of the source text: which module may use which, what only some files may name, and how long a file gets.
//!
//! `EDGES` is the table of module edges that ARCHITECTURE.md explains. Rules that the compiler or clippy can keep are
//! theirs (Cargo.toml, clippy.toml); here are those that nobody else keeps. Every failure says what to do.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::string_slice, reason = "every position was found in the text that it cuts")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Modules that everybody may use and that use nobody.
const LEAVES: [&str; 6] = ["collections", "ids", "limits", "output", "random", "time"];

/// What else a module may use. `a::b` allows that part of `a` only. The order is from the inside out, and no row names a
/// module below it, so there is no cycle. Protocols never use each other.
const EDGES: [(&str, &[&str]); 18] = [
    ("message", &[]),
    ("store", &[]),
    ("series", &["message", "store"]),
    ("backup", &["message", "series", "store"]),
    ("ingest", &["series"]),
    ("auth", &[]),
    ("config", &["ingest::route"]),
    ("websocket", &[]),
    ("tls", &["config"]),
    ("settings", &["auth", "config", "store", "tls"]),
    ("broker", &["message", "store::batch", "store::chunk", "store::Salvaged", "store::stored_bytes"]),
    ("mqtt", &["auth", "broker", "message"]),
    ("amqp091", &["auth", "broker", "message"]),
    (
        "gateway",
        &[
            "amqp091",
            "auth",
            "broker",
            "config",
            "ingest",
            "message",
            "mqtt",
            "series",
            "store::batch",
            "store::chunk",
            "store::Salvaged",
        ],
    ),
    ("http", &["auth", "broker", "gateway", "ingest", "series"]),
    (
        "cli",
        &[
            "auth",
            "backup",
            "config",
            "http::collections",
            "http::routes",
            "ingest",
            "series",
            "settings",
            "store",
            "tls",
        ],
    ),
    (
        "net",
        &[
            "amqp091",
            "auth",
            "backup",
            "broker",
            "config",
            "gateway",
            "http",
            "ingest",
            "message",
            "mqtt",
            "series",
            "settings",
            "store",
            "tls",
            "websocket",
        ],
    ),
    ("main", &["cli", "config", "net", "settings"]),
];

/// What only some places may name, and why not the others.
struct Reserved {
    words: &'static [&'static str],
    /// Files and folders, by the beginning of their path.
    places: &'static [&'static str],
    instead: &'static str,
}

const RESERVED: [Reserved; 6] = [
    Reserved {
        words: &["rustls", "x509_cert"],
        places: &["src/net/", "src/tls/"],
        instead: "the core sees clear text: src/tls reads certificates, src/net speaks TLS",
    },
    Reserved {
        words: &["tokio", "hyper"],
        places: &["src/net/", "src/cli/", "src/main.rs"],
        instead: "the core is without a runtime: return an Output and let src/net do it",
    },
    Reserved {
        words: &["Instant", "SystemTime", "std::thread", "thread::spawn", "thread::sleep"],
        places: &["src/net/"],
        instead: "take the time as an argument (crate::time::Now); threads and sleeping belong to src/net",
    },
    Reserved {
        words: &["env::var", "env::var_os", "env::vars", "env::args", "env::args_os"],
        places: &["src/net/", "src/main.rs"],
        instead: "read the environment in src/main.rs and pass the value on",
    },
    Reserved {
        words: &["TcpStream", "TcpListener", "UdpSocket", "UnixStream", "UnixListener"],
        places: &["src/net/"],
        instead: "the core takes bytes and gives bytes; sockets belong to src/net",
    },
    Reserved {
        words: &["std::fs", "rustix", "getrandom"],
        places: &[
            "src/net/",
            "src/cli/",
            "src/main.rs",
            "src/store/backend.rs",
            "src/config/source.rs",
            "src/auth/password_file.rs",
        ],
        instead: "take a Disk, a ConfigSource or a seed as an argument",
    },
];

/// Lines of a file under src, its tests not counted.
const LINES_MAX: usize = 700;

/// Lines of ARCHITECTURE.md: more and nobody reads it whole.
const ARCHITECTURE_LINES_MAX: usize = 380;

#[test]
fn modules_use_only_what_the_table_allows() {
    let mut complaints = String::new();
    let mut seen = BTreeSet::new();
    for file in rust_files("src") {
        let module = module_of(&file.path);
        if module == "lib" {
            continue;
        }
        seen.insert(module.clone());
        let Some(allowed) = allowed(&module) else {
            writeln!(
                complaints,
                "{}: module {module} has no row in EDGES of tests/tidy.rs: add one",
                file.path
            )
            .unwrap();
            continue;
        };
        for (line, used) in file.uses() {
            let is_allowed = used == module
                || used.starts_with(&format!("{module}::"))
                || allowed.iter().any(|a| used == *a || used.starts_with(&format!("{a}::")));
            if !is_allowed {
                writeln!(
                    complaints,
                    "{}:{line}: {module} may not use {used}. Move the code to the side that may, pass the value as an \
                     argument, or change EDGES in tests/tidy.rs with a note in docs/decisions",
                    file.path
                )
                .unwrap();
            }
        }
    }
    for (module, _) in EDGES {
        if !seen.contains(module) {
            writeln!(
                complaints,
                "EDGES of tests/tidy.rs has a row for {module}, which is not there: remove it"
            )
            .unwrap();
        }
    }
    assert!(complaints.is_empty(), "\n{complaints}");
}

#[test]
fn the_table_has_no_cycle_and_no_edge_between_protocols() {
    let row = |module: &str| EDGES.iter().position(|(name, _)| *name == module);
    for (at, (module, uses)) in EDGES.iter().enumerate() {
        for used in *uses {
            let used = used.split("::").next().unwrap();
            let below = row(used).unwrap_or_else(|| panic!("{module} uses {used}, which has no row"));
            assert!(below < at, "{module} stands above {used}, which it uses: that way lies a cycle");
            let protocols = ["mqtt", "amqp091"];
            assert!(
                !(protocols.contains(module) && protocols.contains(&used)),
                "{module} uses {used}: what two protocols share belongs to broker, message or gateway"
            );
        }
    }
}

#[test]
fn reserved_names_stand_only_where_they_belong() {
    let mut complaints = String::new();
    for file in rust_files("src") {
        for Reserved { words, places, instead } in RESERVED {
            if places.iter().any(|place| file.path.starts_with(place)) {
                continue;
            }
            for (number, line) in file.code() {
                if let Some(word) = words.iter().find(|word| has_word(line, word)) {
                    writeln!(complaints, "{}:{number}: `{word}` does not belong here: {instead}", file.path)
                        .unwrap();
                }
            }
        }
    }
    assert!(complaints.is_empty(), "\n{complaints}");
}

#[test]
fn there_is_no_unsafe_code() {
    let manifest = fs::read_to_string("Cargo.toml").unwrap();
    assert!(manifest.contains("unsafe_code = \"forbid\""), "put the line back into Cargo.toml");
    for manifest in ["Cargo.toml", "bench/Cargo.toml"] {
        let text = fs::read_to_string(manifest).unwrap();
        assert!(text.contains("[lints]\nworkspace = true"), "{manifest}: add [lints] workspace = true");
    }
    for file in all_rust_files() {
        for (number, line) in file.code() {
            // In two pieces, so that this line does not name it.
            let named = has_word(line, concat!("un", "safe"));
            assert!(!named, "{}:{number}: find a safe way, or a crate that has one", file.path);
        }
    }
}

#[test]
fn every_file_begins_by_saying_what_it_is() {
    for file in all_rust_files() {
        let first = file.text.lines().next().unwrap_or_default();
        assert!(
            first.starts_with("//! ") && first.len() > 20,
            "{}: begin with `//! ` and a sentence: what it owns, and what it leaves to whom",
            file.path
        );
    }
}

#[test]
fn no_file_gets_too_long() {
    for file in rust_files("src").into_iter().chain(rust_files("bench/src")) {
        if file.path.ends_with("tests.rs") {
            continue;
        }
        let lines = file.lines_before_tests();
        assert!(
            lines <= LINES_MAX,
            "{} has {lines} lines before its tests, at most {LINES_MAX} are read with pleasure: split it by concern",
            file.path
        );
    }
}

#[test]
fn documents_name_only_what_exists() {
    let mut complaints = String::new();
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for (number, line) in (1..).zip(text.lines()) {
            for path in paths_in(line) {
                if !Path::new(path).exists() && !document.parent().unwrap().join(path).exists() {
                    let document = document.display();
                    writeln!(complaints, "{document}:{number}: {path} does not exist: correct the document")
                        .unwrap();
                }
            }
        }
    }
    assert!(complaints.is_empty(), "\n{complaints}");
}

#[test]
fn the_architecture_names_every_module_and_stays_short() {
    let text = fs::read_to_string("ARCHITECTURE.md").unwrap();
    let lines = text.lines().count();
    assert!(
        lines <= ARCHITECTURE_LINES_MAX,
        "ARCHITECTURE.md has {lines} lines, at most {ARCHITECTURE_LINES_MAX}: move detail beside the code"
    );
    for (module, _) in EDGES {
        let (folder, file) = (format!("src/{module}/"), format!("src/{module}.rs"));
        assert!(
            text.contains(&folder) || text.contains(&file),
            "ARCHITECTURE.md says nothing about {module}: add a paragraph to its code map"
        );
    }
}

#[test]
fn the_checks_see_what_they_look_for() {
    let file = Source {
        path: "src/broker/x.rs".to_owned(),
        text: "use crate::{ids::A, store::batch::{B, C}};\n// crate::mqtt\nlet a = crate::net::run(); // crate::http\n\
               use super::super::gateway;\nuse super::queue;\n"
            .to_owned(),
    };
    let uses: Vec<_> = file.uses().map(|(line, used)| format!("{line} {used}")).collect();
    assert_eq!(uses, ["1 ids::A", "1 store::batch", "3 net::run", "4 gateway"]);
    assert!(
        has_word("x(tokio::spawn)", "tokio")
            && !has_word("my_tokio", "tokio")
            && !has_word("tokios", "tokio")
    );
    let line = "`src/broker/mod.rs`, [x](docs/durability.md#a) and `tests/no-such` but not `/src/` or https://a/src/b";
    assert_eq!(
        paths_in(line).collect::<Vec<_>>(),
        ["src/broker/mod.rs", "tests/no-such", "docs/durability.md"]
    );
}

struct Source {
    /// From the root of the repository, with `/`.
    path: String,
    text: String,
}

impl Source {
    /// Lines without their comments, numbered from 1.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.text.lines()).map(|(number, line)| {
            let is_comment = line.trim_start().starts_with("//");
            (number, if is_comment { "" } else { line.split(" // ").next().unwrap_or_default() })
        })
    }

    /// Paths from the crate's root, as far as two names, with their lines. In `main.rs` the crate is called by its name.
    fn uses(&self) -> impl Iterator<Item = (usize, String)> {
        let root = if self.path == "src/main.rs" { "gatewayd::" } else { "crate::" };
        // `src/a/b.rs` is two below the root; inside a `mod` of its own it is one more.
        let depth = self.path.matches('/').count() - usize::from(self.path.ends_with("/mod.rs"));
        let mut inner = 0;
        self.code().flat_map(move |(number, line)| {
            if line.starts_with("mod ") && line.ends_with('{') {
                inner = 1;
            }
            let up = "super::".repeat(depth + inner);
            let by_name = after(line, root).flat_map(group);
            let by_steps = after(line, &up).filter(|rest| !rest.starts_with("super::")).flat_map(group);
            by_name.chain(by_steps).map(|used| (number, used)).collect::<Vec<_>>()
        })
    }

    fn lines_before_tests(&self) -> usize {
        let lines: Vec<_> = self.text.lines().collect();
        let tests = lines.windows(2).position(|two| two[0] == "#[cfg(test)]" && two[1].ends_with('{'));
        tests.unwrap_or(lines.len())
    }
}

/// What follows each `root` in `line` that is not part of a longer name.
fn after<'a>(line: &'a str, root: &'a str) -> impl Iterator<Item = &'a str> {
    line.match_indices(root).filter_map(move |(at, _)| {
        let before = line[..at].chars().next_back();
        let is_whole = before.is_none_or(|c| !is_name(c) && c != ':' && c != '$');
        is_whole.then(|| &line[at + root.len()..])
    })
}

/// The paths of `a::b::C` or `{a::b, c}`, each of at most two names.
fn group(text: &str) -> Vec<String> {
    let Some(inside) = text.strip_prefix('{') else { return path(text).into_iter().collect() };
    let (mut depth, mut start, mut all) = (0, 0, Vec::new());
    for (at, c) in inside.char_indices() {
        match c {
            '{' => depth += 1,
            ',' | '}' if depth == 0 => {
                all.extend(path(inside[start..at].trim()));
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
    all
}

fn path(text: &str) -> Option<String> {
    let end = text.find(|c: char| !is_name(c) && c != ':').unwrap_or(text.len());
    let names: Vec<_> = text[..end].split("::").filter(|name| !name.is_empty()).take(2).collect();
    (!names.is_empty()).then(|| names.join("::"))
}

/// Paths into the repository that a document names, in backticks or as the target of a link.
fn paths_in(line: &str) -> impl Iterator<Item = &str> {
    let in_ticks = line.split('`').skip(1).step_by(2);
    let in_links = line.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
    let roots = [".ci/", "bench/", "config/", "docs/", "scripts/", "src/", "tests/"];
    let is_path = |path: &str| !path.contains([' ', '*', '<', '{', '$', ':']);
    in_ticks.chain(in_links).map(|path| path.trim_start_matches("./")).filter(move |path| {
        (roots.iter().any(|root| path.starts_with(root)) || path.ends_with(".md")) && is_path(path)
    })
}

fn documents() -> Vec<PathBuf> {
    let mut all = vec!["ARCHITECTURE.md".into(), "CHANGELOG.md".into(), "README.md".into()];
    // Decisions say what was true on their day; the code may move on.
    for entry in fs::read_dir("docs").unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "md") {
            all.push(path);
        }
    }
    all
}

/// `src/a/b.rs` and `src/a.rs` are in module `a`.
fn module_of(path: &str) -> String {
    let inside = path.strip_prefix("src/").unwrap();
    inside.split('/').next().unwrap().trim_end_matches(".rs").to_owned()
}

fn allowed(module: &str) -> Option<Vec<&'static str>> {
    if LEAVES.contains(&module) {
        return Some(Vec::new());
    }
    let (_, uses) = EDGES.iter().find(|(name, _)| *name == module)?;
    Some(uses.iter().chain(&LEAVES).copied().collect())
}

fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let behind = line[at + word.len()..].chars().next();
        !before.is_some_and(is_name) && !behind.is_some_and(is_name)
    })
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn all_rust_files() -> Vec<Source> {
    ["src", "tests", "bench", "examples"].into_iter().flat_map(rust_files).collect()
}

fn rust_files(folder: &str) -> Vec<Source> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push(Source { path: path.to_str().unwrap().replace('\\', "/"), text });
            }
        }
    }
    assert!(!found.is_empty(), "{folder} has no Rust files: run the tests from the root of the repository");
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}
