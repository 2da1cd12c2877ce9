//! The manual page: prose by hand in `man/coldtrim.8.in`, options and tables from the program. After a change of
//! either, `COLDTRIM_WRITE_MAN=1 cargo test --test man` writes `man/coldtrim.8` anew.

mod common;

use clap_mangen::Man;
use coldtrim::transport::TRANSPORTS;
use coldtrim_parsers::container::CONTAINERS;
use coldtrim_parsers::fs::FORMATS;
use coldtrim_parsers::volume::Consent;
use common::tool;
use std::path::PathBuf;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("man").join(name)
}

fn read(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap_or_else(|e| panic!("man/{name}: {e}"))
}

/// The options of one command in roff, without the headings that clap_mangen gives them, without its macro for
/// apostrophes, and without empty lines and the breaks around them.
fn options_of(command: &clap::Command) -> String {
    let mut roff = Vec::new();
    Man::new(command.clone()).render_options_section(&mut roff).expect("memory");
    let roff = String::from_utf8(roff).expect("UTF-8").replace(r"\*(Aq", r"\(aq");
    let noise = |line: &&str| [".SH ", ".ie ", ".el "].iter().all(|start| !line.starts_with(start));
    let body = roff.replace(".br\n\n.br\n", ".sp\n");
    body.lines().filter(noise).map(|line| format!("{line}\n")).collect()
}

fn options() -> String {
    let command = coldtrim::cli::command();
    let verbs = command.get_subcommands().filter(|verb| verb.get_name() != "completions");
    let sections = verbs.map(|verb| format!(".SS coldtrim {}\n{}", verb.get_name(), options_of(verb)));
    // Built alone, a subcommand does not know the options that every command takes: they stand once, at the top.
    let common = format!(".SS Every command\n{}", options_of(&command));
    std::iter::once(common).chain(sections).collect::<String>().trim_end().to_owned()
}

fn routes() -> String {
    let rows = TRANSPORTS.iter().map(|route| format!(".TP\n.B {}\n{}.\n", route.name, capitalised(route.about)));
    rows.collect::<String>().trim_end().to_owned()
}

fn capitalised(text: &str) -> String {
    let (first, rest) = text.split_at(1);
    format!("{}{rest}", first.to_uppercase())
}

fn page() -> String {
    let filesystems: Vec<&str> = FORMATS.iter().flat_map(|format| format.variants().iter().copied()).collect();
    let tables: Vec<String> = CONTAINERS.iter().map(|container| container.name().to_uppercase()).collect();
    read("coldtrim.8.in")
        .replace("@VERSION@", env!("CARGO_PKG_VERSION"))
        .replace("@FILESYSTEMS@", &filesystems.join(", "))
        .replace("@TABLES@", &tables.join(", "))
        .replace("@ROUTES@", &routes())
        .replace("@OPTIONS@", &options())
}

#[test]
fn the_page_is_what_the_program_says() {
    let page = page();
    if std::env::var_os("COLDTRIM_WRITE_MAN").is_some() {
        std::fs::write(path("coldtrim.8"), &page).expect("man/coldtrim.8 can be written");
    }
    assert!(!page.contains('@'), "a placeholder is left");
    assert!(
        read("coldtrim.8") == page,
        "man/coldtrim.8 is not true any more; write it anew: COLDTRIM_WRITE_MAN=1 cargo test --test man"
    );
}

#[test]
fn every_option_and_route_is_in_it() {
    let page = read("coldtrim.8").replace('\\', "");
    let command = coldtrim::cli::command();
    for verb in std::iter::once(&command).chain(command.get_subcommands()) {
        for name in verb.get_arguments().filter_map(clap::Arg::get_long) {
            assert!(page.contains(&format!("--{name}")), "--{name} of {}", verb.get_name());
        }
        assert!(page.contains(verb.get_name()), "{}", verb.get_name());
    }
    for route in coldtrim::transport::TRANSPORTS {
        assert!(page.contains(route.name), "{}", route.name);
    }
    for consent in Consent::ALL {
        assert!(page.contains(consent.name()), "{}", consent.name());
    }
}

#[test]
fn mandoc_has_nothing_to_say_against_it() {
    let page = path("coldtrim.8");
    let output = tool("mandoc", &["-T", "lint", "-W", "warning", page.to_str().expect("a UTF-8 path")]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    // An empty date is on purpose: a page that is made anew must not differ by the day.
    let said: Vec<&str> = said.lines().filter(|line| !line.contains("missing date")).collect();
    assert!(said.is_empty(), "{said:#?}");
}
