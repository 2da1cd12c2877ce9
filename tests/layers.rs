//! Who may use whom: the `use crate::` lines under src/ against the table of ARCHITECTURE.md.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Module, and the modules of ours that it may use.
const ALLOWED: &[(&str, &[&str])] = &[
    ("cli", &["cli", "demo", "measure", "memory", "plan", "report", "run", "sandbox", "target", "transport", "verify"]),
    ("demo", &[]),
    ("measure", &["plan", "run", "transport", "verify"]),
    ("memory", &[]),
    ("plan", &[]),
    ("report", &["measure", "plan", "verify"]),
    ("run", &["plan", "transport"]),
    ("sandbox", &[]),
    ("target", &["sandbox", "transport"]),
    ("transport", &["plan"]),
    ("verify", &["plan", "target", "transport"]),
];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("src/ can be read") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            found.push(path);
        }
    }
    found
}

/// `crate::NAME` for every name that is used in `text`, doc comments left out.
fn used_modules(text: &str) -> Vec<String> {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.starts_with("//"))
        .flat_map(|line| line.match_indices("crate::").map(|(at, word)| &line[at + word.len()..]).collect::<Vec<_>>())
        .map(|rest| rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect())
        .collect()
}

#[test]
fn modules_use_only_what_the_table_allows() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let allowed: BTreeMap<&str, &[&str]> = ALLOWED.iter().copied().collect();
    let mut checked = 0;
    for path in sources(&root) {
        let inside = path.strip_prefix(&root).expect("inside src/");
        let module = inside.iter().next().and_then(|first| first.to_str()).expect("a module");
        let Some(may_use) = allowed.get(module) else {
            assert!(["lib.rs", "main.rs"].contains(&module), "{module} is missing in the table");
            continue;
        };
        for used in used_modules(&std::fs::read_to_string(&path).expect("a source file")) {
            checked += 1;
            assert!(used == module || may_use.contains(&used.as_str()), "{} uses crate::{used}", inside.display());
        }
    }
    assert!(checked > 20, "only {checked} uses were seen: the check itself is broken");
}

#[test]
fn unsafe_has_one_address() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for folder in ["src", "parsers/src", "tests"] {
        for path in sources(&root.join(folder)) {
            let text = std::fs::read_to_string(&path).expect("a source file");
            let has_unsafe = text.lines().any(|line| {
                let code = line.split("//").next().unwrap_or_default();
                // Put together here, so that this file does not find itself.
                let word = ["un", "safe"].concat();
                ["{", "fn", "impl", "extern", "trait"].iter().any(|what| code.contains(&format!("{word} {what}")))
                    || code.contains(&format!("allow({word}_code)"))
            });
            let is_sys = path.file_name().is_some_and(|name| name == "sys.rs");
            assert!(is_sys || !has_unsafe, "unsafe outside of sys.rs: {}", path.display());
        }
    }
}
