use super::*;
use proptest::prelude::*;

/// A map of four entries on a disk of 1 MiB: itself, a driver, HFS, free space.
fn disk(unit: usize) -> Vec<u8> {
    let mut bytes = vec![0; 1 << 20];
    bytes[..4].copy_from_slice(&[b'E', b'R', (unit >> 8) as u8, unit as u8]);
    let entries: [(u32, u32, &str); 4] =
        [(1, 63, "Apple_partition_map"), (64, 32, "Apple_Driver43"), (96, 100, "Apple_HFS"), (196, 10, "Apple_Free")];
    for (index, (start, count, kind)) in entries.into_iter().enumerate() {
        let entry = &mut bytes[unit * (index + 1)..][..80];
        entry[..8].copy_from_slice(&[b'P', b'M', 0, 0, 0, 0, 0, 4]);
        entry[8..12].copy_from_slice(&start.to_be_bytes());
        entry[12..16].copy_from_slice(&count.to_be_bytes());
        entry[16..20].copy_from_slice(b"name");
        entry[48..48 + kind.len()].copy_from_slice(kind.as_bytes());
    }
    bytes
}

#[test]
fn a_good_map() {
    for unit in [512, 2048, 4096] {
        let bytes = disk(unit);
        assert!(Apm.probe(&bytes, 512).unwrap());
        let table = Apm.read(&bytes, 512).unwrap();
        let unit = unit as u64;
        let found: Vec<_> = table.parts.iter().map(|p| (p.number, p.range.start() / unit, p.kept.is_some())).collect();
        assert_eq!(found, [(1, 1, true), (2, 64, true), (3, 96, false)]);
        assert_eq!(table.parts[2].kind, "Apple_HFS");
        assert_eq!(table.reserved[1], ByteRange::new(196 * unit, 206 * unit).unwrap());
        assert_eq!(table.warnings.len(), usize::from(unit != 512));
    }
}

#[test]
fn damage_is_refused() {
    let cases: [(usize, u8, &str); 5] = [
        (512 + 7, 0, "number of entries"),
        (1024 + 7, 5, "entry 2 of the map"),
        (1536, 0, "entry 3 of the map"),
        (1536 + 8, 1, "partition 3"),
        (1536 + 11, 95, "overlap"),
    ];
    for (at, value, words) in cases {
        let mut bytes = disk(512);
        bytes[at] = value;
        let error = Apm.read(&bytes, 512).unwrap_err().to_string();
        assert!(error.contains(words), "{at}: {error}");
    }
}

#[test]
fn a_descriptor_without_map_is_none() {
    let mut bytes = disk(512);
    bytes[512] = 0;
    assert!(!Apm.probe(&bytes, 512).unwrap());
    assert!(Apm.read(&bytes, 512).is_err());
}

proptest! {
    #[test]
    fn never_panics(changes in proptest::collection::vec((0usize..2600, any::<u8>()), 0..10)) {
        let mut bytes = disk(512);
        for (at, value) in changes {
            bytes[at] = value;
        }
        let _ = Apm.probe(&bytes, 512).unwrap();
        if let Ok(table) = Apm.read(&bytes, 512) {
            prop_assert!(table.parts.iter().all(|part| part.range.end() <= bytes.len() as u64));
        }
    }
}
