//! The tables of the README against the tables of the code.

use std::collections::BTreeSet;

/// The first cells of the table whose header begins with `heading`.
fn first_cells(heading: &str) -> BTreeSet<String> {
    let readme = include_str!("../README.md");
    let rows = readme.lines().skip_while(|line| !line.starts_with(&format!("| {heading}"))).skip(2);
    rows.take_while(|line| line.starts_with('|'))
        .flat_map(|line| line.split('|').nth(1).expect("a first cell").split(','))
        .map(|name| name.trim().to_owned())
        .collect()
}

#[test]
fn filesystems_are_those_of_the_code() {
    let formats = coldtrim_parsers::fs::FORMATS.iter();
    let known: BTreeSet<String> = formats.flat_map(|format| format.variants()).map(|name| (*name).to_owned()).collect();
    assert_eq!(first_cells("filesystem"), known);
}

#[test]
fn routes_are_those_of_the_code() {
    let known: BTreeSet<String> = coldtrim::transport::TRANSPORTS.iter().map(|route| route.name.to_owned()).collect();
    assert_eq!(first_cells("route"), known);
}

#[test]
fn every_format_has_a_demo_and_every_demo_a_format() {
    let demos: Vec<String> =
        coldtrim::demo::DEMOS.iter().map(|demo| demo.manifest().expect("a manifest").format).collect();
    for format in coldtrim_parsers::fs::FORMATS {
        let has_one = demos.iter().any(|demo| format.variants().contains(&demo.as_str()));
        assert!(has_one, "{} has no demo", format.name());
    }
    for demo in coldtrim::demo::DEMOS {
        let manifest = demo.manifest().expect("a manifest");
        let known =
            coldtrim_parsers::fs::FORMATS.iter().any(|format| format.variants().contains(&manifest.format.as_str()));
        assert!(known, "{} is a demo of {}, which no format reads", demo.name, manifest.format);
    }
}
