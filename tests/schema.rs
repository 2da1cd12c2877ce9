//! What every command prints with `--json` against the schema that the repository publishes.

mod common;
#[path = "common/images.rs"]
mod images;

use images::{Said, Table, dirty_fat, disk, ext4, fat, said, text};
use jsonschema::Validator;
use serde_json::{Value, json};

fn schema() -> Value {
    serde_json::from_str(include_str!("../schema/coldtrim-1.schema.json")).expect("the schema is JSON")
}

fn validator() -> Validator {
    jsonschema::draft202012::meta::validate(&schema()).expect("the schema is a schema");
    jsonschema::validator_for(&schema()).expect("the schema can be used")
}

fn problems(instance: &Value) -> Vec<String> {
    let validator = validator();
    validator.iter_errors(instance).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

/// The one object that was printed, valid, with the code that the program ended with.
fn valid(run: &Said) -> Value {
    let object = run.json();
    assert!(object.is_object(), "{run:#?}");
    assert_eq!(problems(&object), Vec::<String>::new(), "{run:#?}");
    if let Some(code) = object.get("exit_code") {
        assert_eq!(code.as_i64(), run.code.map(i64::from), "the code in the object is the program's");
    }
    object
}

#[test]
fn a_clean_volume() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for image in [ext4(folder.path(), "a.img"), fat(folder.path(), "b.img")] {
        let map = valid(&said(&["map", "--json", text(&image)]));
        assert!(map["volumes"][0]["ranges"].as_array().is_some_and(|ranges| ranges.len() > 10));
        assert!(map.get("plan").is_none() && map.get("outcome").is_none(), "map plans nothing");
        assert_eq!(said(&["map", "--format", "json", text(&image)]).json(), map, "two words for one thing");
        let witnessed = valid(&said(&["map", "--json", "--witness", text(&image)]));
        assert_eq!(witnessed["volumes"][0]["witness"], "agrees");
        let plan = valid(&said(&["trim", "--json", "--dry-run", text(&image)]));
        assert!(plan["volumes"][0].get("ranges").is_none(), "lists of ranges only in map");
        assert_eq!(plan["plan"], plan["volumes"][0]["plan"]);
        let done = valid(&said(&["trim", "--json", "--yes", text(&image)]));
        assert_eq!(done["outcome"]["bytes"], plan["plan"]["bytes"]);
        assert!(done["volumes"][0]["evidence"].is_string());
    }
}

#[test]
fn refused_kept_and_partly_done() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (first, second) = (ext4(folder.path(), "a.img"), dirty_fat(folder.path(), "b.img"));
    let image = disk(folder.path(), "disk.img", Table::Gpt, &first, &second);
    for args in [&["map"][..], &["trim", "-n"], &["trim", "-n", "--unallocated"], &["trim", "--yes", "--unallocated"]] {
        let object = valid(&said(&[args, &["--json", text(&image)]].concat()));
        assert_eq!(object["exit_code"], 5);
        assert!(object["volumes"][1]["reasons"][0]["message"].as_str().is_some_and(|text| text.contains("dirty")));
        assert_eq!(object.get("gaps").is_some(), args.contains(&"--unallocated"));
    }
    valid(&said(&["map", "--json", text(&first), text(&second)]));
    valid(&said(&["trim", "--json", "--yes", text(&second)]));
    valid(&said(&["trim", "--json", "--yes", "--via", "unmap", text(&first)]));
}

#[test]
fn a_measurement() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = images::ext4_of(folder.path(), "a.img", 48);
    let run = ["verify", "--json", "--yes", "--length", "smoke", "--settle", "1", "--budget", "24M"];
    let object = valid(&said(&[&run[..], &[text(&image)]].concat()));
    assert!(object["verify"]["passes"].as_array().is_some_and(|passes| passes.len() >= 3));
    assert!(object["verify"]["comparison"].is_object());
    let refused = valid(&said(&[&run[..], &["--via", "unmap", text(&image)]].concat()));
    assert_eq!((&refused["exit_code"], refused.get("verify")), (&json!(4), None));
}

/// A mirror of two members, and one of them alone.
#[test]
fn an_array() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = format!("{}/tests/oracle/md_array.py", env!("CARGO_MANIFEST_DIR"));
    let spec = json!({ "version": "1.2", "level": 1, "sizes": [9 << 20, 9 << 20], "offset": 1 << 20 }).to_string();
    let image = folder.path().join("image");
    let members = [folder.path().join("one"), folder.path().join("other")];
    let size = common::tool_ok("python3", &[&script, "size", &spec]);
    common::tool_ok("truncate", &["--size", size.trim(), text(&image)]);
    common::tool_ok("mke2fs", &["-q", "-F", "-t", "ext4", text(&image)]);
    common::tool_ok("python3", &[&script, "lay", &spec, text(&image), text(&members[0]), text(&members[1])]);
    let both = [text(&members[0]), text(&members[1])];
    let map = valid(&said(&["map", "--json", both[0], both[1]]));
    assert_eq!(map["arrays"][0]["members"][1]["role"], "member 1");
    let done = valid(&said(&["trim", "--json", "--yes", both[0], both[1]]));
    let shares = done["volumes"].as_array().and_then(|volumes| volumes.iter().find(|v| v.get("array").is_some()));
    assert_eq!(shares.map(|volume| volume["members"].as_array().map(Vec::len)), Some(Some(2)));
    let alone = valid(&said(&["trim", "--json", "--dry-run", both[0]]));
    assert_eq!(alone["exit_code"], 3);
}

/// Without hardware there is nobody to ask; with it, the lab's zoo keeps what was printed valid.
#[test]
fn probe_of_what_is_no_disk() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = ext4(folder.path(), "a.img");
    let run = said(&["probe", "--json", text(&image)]);
    let object = valid(&run);
    assert_eq!(object["exit_code"], 2);
    run.expect(2, &["an image file", "coldtrim trim -n"]);
    let gone = folder.path().join("gone");
    valid(said(&["probe", "--json", text(&gone)]).expect(1, &["does not exist", "coldtrim list"]));
}

#[test]
fn what_nobody_knows() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = folder.path().join("unknown.img");
    std::fs::write(&image, vec![0x5A; 1 << 20]).expect("room");
    let object = valid(&said(&["map", "--json", text(&image)]));
    assert_eq!((object["exit_code"].as_u64(), object["free_bytes"].as_u64()), (Some(3), Some(0)));
    assert!(object["volumes"][0]["reasons"].as_array().is_some_and(|reasons| !reasons.is_empty()));
}

#[test]
fn drives_and_demo() {
    let list = valid(&said(&["list", "--json"]));
    assert!(list["disks"].is_array());
    let demo = valid(&said(&["demo", "--json"]));
    assert!(demo["demos"].as_array().is_some_and(|demos| !demos.is_empty()));
    assert!(demo["demos"].as_array().is_some_and(|demos| demos.iter().all(|demo| demo["exit_code"] == 0)));
}

/// Whatever was wrong, who asked for an object gets one that says so.
#[test]
fn words_that_are_no_command_line() {
    let cases: &[(&[&str], &str)] = &[
        (&["map", "--json"], "map"),
        (&["--json", "trim", "--offset", "1X", "a.img"], "trim"),
        (&["trim", "--jsn", "--json", "a.img"], "trim"),
        (&["list", "--json", "--nonsense"], "list"),
        (&["probe", "--json"], "probe"),
        (&["demo", "--json", "--nonsense"], "demo"),
        (&["completions", "--json", "tcsh"], "completions"),
        (&["shred", "--json", "a.img"], "coldtrim"),
    ];
    for (args, verb) in cases {
        let object = valid(said(args).expect(2, &[]));
        assert_eq!((object["command"].as_str(), object["exit_code"].as_u64()), (Some(*verb), Some(2)), "{args:?}");
        assert!(object["errors"][0].as_str().is_some_and(|words| !words.is_empty()), "{object}");
    }
    assert_eq!(said(&["map", "--", "--json"]).expect(1, &[]).out, "", "a target of that name");
    assert!(said(&["map", "--json", "--help"]).expect(0, &["Usage"]).out.contains("--offset"));
    valid(said(&["demo", "--json", "--fs", "nothing"]).expect(1, &["no image of that name"]));
}

/// A schema that accepts anything would pass every test above.
#[test]
fn the_schema_sees_what_is_missing_or_wrong() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = fat(folder.path(), "a.img");
    let good = valid(&said(&["trim", "--json", "--yes", text(&image)]));
    let places = [
        ("", &["schema", "command", "targets", "volumes", "free_bytes", "free_extents", "errors", "exit_code"][..]),
        ("/targets/0", &["name", "path", "kind", "size", "sector_size", "disk_offset", "reasons"]),
        (
            "/volumes/0",
            &[
                "target",
                "partition",
                "format",
                "label",
                "uuid",
                "offset",
                "size",
                "block_size",
                "state",
                "reasons",
                "free_bytes",
                "free_extents",
                "witness",
                "route",
                "evidence",
                "plan",
            ],
        ),
        ("/volumes/0/plan", &["extents", "bytes", "commands", "skipped_bytes"]),
        ("/volumes/0/outcome", &["bytes", "commands", "errors"]),
    ];
    for (place, keys) in places {
        for key in keys {
            let mut bad = good.clone();
            let object = bad.pointer_mut(place).and_then(Value::as_object_mut).expect("an object");
            assert!(object.remove(*key).is_some(), "{place}/{key}");
            assert_ne!(problems(&bad), Vec::<String>::new(), "{place}/{key} is missing");
        }
    }
    let wrong = [
        ("/schema", json!("coldtrim/2")),
        ("/command", json!("wipe")),
        ("/exit_code", json!(7)),
        ("/free_bytes", json!(-1)),
        ("/volumes/0/state", json!("fine")),
        ("/volumes/0/state", json!("refused")),
        ("/volumes/0/witness", json!("yes")),
        ("/volumes/0/route", json!("pigeon")),
        ("/volumes/0/plan/bytes", json!("12")),
        ("/targets/0/kind", json!("tape")),
    ];
    for (place, value) in wrong {
        let mut bad = good.clone();
        *bad.pointer_mut(place).expect("a place in the report") = value.clone();
        assert_ne!(problems(&bad), Vec::<String>::new(), "{place} is {value}");
    }
}
