use super::*;
use std::os::unix::fs::PermissionsExt;
use tempfile::TempDir;

fn unit(serial: &str) -> Unit {
    Unit {
        bridge: Some(Bridge { vendor: 0x152d, product: 0x0583, release: 0x0214 }),
        bridge_serial: Some("0000".to_owned()),
        driver: Some("uas".to_owned()),
        vendor: Some("Zoo".to_owned()),
        model: Some("Drive".to_owned()),
        revision: Some("1".to_owned()),
        serial: Some(serial.to_owned()),
        size: 1 << 30,
    }
}

fn result(name: &str, verdict: &str) -> PastRoute {
    PastRoute {
        name: name.to_owned(),
        when: 1_796_256_000,
        verdict: verdict.to_owned(),
        reason: None,
        largest: None,
        rejected: None,
        late: None,
    }
}

fn store() -> (TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::at(folder.path().join("deep/state"));
    (folder, store)
}

#[test]
fn what_was_found_is_there_again_and_of_this_unit_alone() {
    let (folder, store) = store();
    assert_eq!(store.past(&unit("a")).unwrap().0, Past::default(), "no folder yet");
    let mut record = Record::new(unit("a"));
    record.learn(result("unmap", "works (zeroes)"));
    record.learn(result("sat16", "rejected"));
    record.learn(result("unmap", "harmful"));
    store.keep(&record).unwrap();
    assert_eq!(store.record(&unit("a")).unwrap(), Some(record));
    assert_eq!(store.record(&unit("b")).unwrap(), None);
    let (past, strange) = store.past(&unit("a")).unwrap();
    assert!(strange.is_empty() && past.others.is_empty());
    assert_eq!(past.this.iter().map(|known| known.verdict.as_str()).collect::<Vec<_>>(), ["rejected", "harmful"]);
    let (past, _) = store.past(&unit("b")).unwrap();
    assert_eq!((past.this.len(), past.others.len()), (0, 2));
    assert_eq!(past.objection("unmap"), None, "another unit decides nothing");
    let other_firmware = Unit { bridge: Some(Bridge { release: 0x0215, ..unit("a").bridge.unwrap() }), ..unit("a") };
    assert_eq!(store.past(&other_firmware).unwrap().0, Past::default());
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let entries: Vec<PathBuf> =
        std::fs::read_dir(folder.path().join("deep/state")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(entries.len(), 1, "no draft is left: {entries:?}");
    assert_eq!((mode(&entries[0]), mode(&folder.path().join("deep/state"))), (0o600, 0o700));
    let name = entries[0].file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("usb-152d-0583-0214-") && !name.contains("0000"), "{name}");
}

#[test]
fn only_harm_and_restlessness_speak_against_a_route() {
    let past = |result: PastRoute| Past { this: vec![result], others: Vec::new() };
    for verdict in ["works (zeroes)", "works (content undefined)", "no evidence", "rejected", "inconclusive"] {
        assert_eq!(past(result("unmap", verdict)).objection("unmap"), None, "{verdict}");
    }
    let bad = PastRoute { reason: Some("byte 7 changed".to_owned()), ..result("unmap", "harmful") };
    let objection = past(bad).objection("unmap").unwrap();
    assert!(objection.contains("2026-12-03") && objection.contains("byte 7 changed"), "{objection}");
    assert_eq!(past(result("unmap", "harmful")).objection("sat16"), None, "another route");
    let late = PastRoute { late: Some("it was reset".to_owned()), ..result("unmap", "works (zeroes)") };
    assert!(past(late).objection("unmap").unwrap().contains("it was reset"));
}

#[test]
fn what_others_may_write_is_not_believed_and_what_is_broken_is_named() {
    let (folder, store) = store();
    store.keep(&Record::new(unit("a"))).unwrap();
    let state = folder.path().join("deep/state");
    std::fs::write(state.join("usb-152d-0583-0214-77.json"), "{").unwrap();
    let (_, strange) = store.past(&unit("a")).unwrap();
    assert!(matches!(strange.as_slice(), [MemoryError::Strange(..)]), "{strange:?}");
    let name = unit("a").file_name().unwrap();
    std::fs::write(state.join(&name), r#"{"schema":"coldtrim-memory/2"}"#).unwrap();
    assert!(store.record(&unit("a")).is_err());
    std::fs::set_permissions(&state, PermissionsExt::from_mode(0o777)).unwrap();
    assert!(matches!(store.record(&unit("a")), Err(MemoryError::NotOurs(_))));
    assert!(matches!(store.keep(&Record::new(unit("a"))), Err(MemoryError::NotOurs(_))));
    std::fs::set_permissions(&state, PermissionsExt::from_mode(0o700)).unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&state, &link).unwrap();
    assert!(matches!(Store::at(link).record(&unit("a")), Err(MemoryError::NotOurs(_))));
}
