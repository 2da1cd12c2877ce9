//! Mappings against themselves, in both directions, and against what they must refuse.

use super::mapping::Place;
use super::*;
use crate::units::ByteRange;
use proptest::prelude::*;

fn range(start: u64, len: u64) -> ByteRange {
    ByteRange::with_len(start, len).unwrap()
}

fn area(device: usize, start: u64, len: u64) -> Option<Area> {
    Some(Area { device, range: range(start, len) })
}

/// Members of one length, each a little further into its device.
fn areas(count: usize, len: u64) -> Vec<Option<Area>> {
    (0..count).map(|device| area(device, 100 * device as u64, len)).collect()
}

fn mapping(len: u64, areas: Vec<Option<Area>>, geometry: Geometry) -> Mapping {
    Mapping::new(vec![Segment { len, areas, geometry }]).unwrap()
}

fn parity(chunk: u64, members: u64, level: u8, layout: u32) -> Geometry {
    Geometry::Parity(ParityRule { chunk, members, level, layout })
}

/// One of every rule, over members of 120 bytes and chunks of 8.
fn every_rule() -> Vec<Mapping> {
    let mut all = vec![
        mapping(360, areas(3, 120), Geometry::Linear { ends: vec![120, 240, 360] }),
        mapping(120, areas(3, 120), Geometry::Mirrored),
    ];
    for turn in [Turn::OfArray, Turn::OfZone] {
        let zones = striped::zones(8, &[40, 120, 125]).unwrap();
        let areas = vec![area(0, 0, 40), area(1, 8, 120), area(2, 16, 125)];
        all.push(mapping(40 * 3 + 80 * 2, areas, Geometry::Striped { chunk: 8, turn, zones }));
    }
    for (near, far, stride, len) in [(2, 1, None, 296), (3, 1, None, 200), (1, 2, Some(56), 280), (1, 3, None, 200)] {
        let geometry = Geometry::Copied { chunk: 8, near, far, stride, members: 5 };
        all.push(mapping(len, areas(5, 120), geometry));
    }
    all.extend((0..=5).map(|layout| mapping(15 * 24, areas(4, 120), parity(8, 4, 5, layout))));
    all.push(mapping(15 * 24, areas(4, 120), parity(8, 4, 4, 0)));
    let six = (0..=5).chain(8..=10).chain(16..=20);
    all.extend(six.map(|layout| mapping(15 * 24, areas(5, 120), parity(8, 5, 6, layout))));
    all
}

#[test]
fn every_byte_has_one_place_of_its_own() {
    for mapping in every_rule() {
        let mut taken = std::collections::BTreeSet::new();
        for at in 0..mapping.len() {
            let (place, run) = mapping.locate(at).unwrap();
            assert!(run > 0 && taken.insert((place.device, place.at)), "{mapping:?}: byte {at} lies at {place:?}");
        }
        assert_eq!(mapping.locate(mapping.len()), None);
    }
}

/// What is carried for everything covers every byte that can be read, all copies and all parity.
#[test]
fn everything_free_is_everything_on_the_members() {
    for mapping in every_rule() {
        let spread = mapping.carry(&[range(0, mapping.len())]).unwrap();
        for at in 0..mapping.len() {
            let (Place { device, at: on_device }, _) = mapping.locate(at).unwrap();
            assert!(spread[&device].iter().any(|range| range.contains(self::range(on_device, 1))));
        }
        let total: u64 = spread.values().flatten().map(|range| range.len()).sum();
        let of_parity = mapping.areas().map(|area| area.range.len()).sum::<u64>();
        match mapping.redundancy() {
            Redundancy::None => assert_eq!(total, mapping.len()),
            Redundancy::Copies => assert!(total.is_multiple_of(mapping.len())),
            Redundancy::Parity => assert_eq!(total, of_parity),
        }
    }
}

#[test]
fn a_stripe_with_one_used_byte_is_left_alone() {
    let array = mapping(15 * 24, areas(4, 120), parity(8, 4, 5, 2));
    let spread = array.carry(&[range(1, 47), range(48, 24)]).unwrap();
    // Stripe 0 lacks its first byte; 1 and 2 are whole.
    assert_eq!(spread[&0], [range(8, 16)]);
    assert_eq!(spread[&3], [range(308, 16)]);
}

#[test]
fn copies_and_parity_agree_on_what_all_may_discard() {
    let mirror = mapping(120, areas(2, 120), Geometry::Mirrored);
    let allowed = Spread::from([(0, vec![range(10, 50)]), (1, vec![range(100, 30), range(140, 80)])]);
    let agreed = mirror.agree(&[range(0, 120)], &allowed).unwrap();
    assert_eq!(
        agreed,
        Spread::from([(0, vec![range(10, 20), range(40, 20)]), (1, vec![range(110, 20), range(140, 20)])])
    );
    let five = mapping(15 * 24, areas(4, 120), parity(8, 4, 5, 2));
    let mut allowed = five.carry(&[range(0, 360)]).unwrap();
    allowed.insert(2, vec![range(203, 10)]);
    let agreed = five.agree(&[range(0, 360)], &allowed).unwrap();
    assert_eq!(agreed[&2], [range(203, 10)]);
    assert_eq!(agreed[&0], [range(3, 10)]);
    assert_eq!(mirror.agree(&[range(0, 120)], &Spread::new()).unwrap(), Spread::new());
}

#[test]
fn mappings_that_make_no_sense_are_none() {
    let none = |len, areas, geometry| assert_eq!(Mapping::new(vec![Segment { len, areas, geometry }]), None);
    none(121, areas(2, 120), Geometry::Mirrored);
    none(0, areas(2, 120), Geometry::Mirrored);
    none(120, vec![area(0, 0, 120), area(0, 60, 120)], Geometry::Mirrored);
    none(120, vec![None, None], Geometry::Mirrored);
    none(240, areas(2, 120), Geometry::Linear { ends: vec![130, 240] });
    none(240, vec![area(0, 0, 120), None], Geometry::Linear { ends: vec![120, 240] });
    none(360, areas(4, 120), parity(0, 4, 5, 2));
    none(360, areas(4, 120), parity(8, 5, 5, 2));
    none(360, areas(4, 120), parity(8, 4, 5, 6));
    none(384, areas(4, 120), parity(8, 4, 5, 2));
    let copied = |near, far, stride, members| Geometry::Copied { chunk: 8, near, far, stride, members };
    none(320, areas(5, 120), copied(2, 1, None, 5));
    none(280, areas(5, 120), copied(1, 2, Some(48), 5));
    none(80, areas(5, 120), copied(2, 2, None, 5));
    none(80, areas(5, 120), copied(1, 6, None, 5));
    let zones = striped::zones(8, &[40, 120]).unwrap();
    none(160, areas(2, 120), Geometry::Striped { chunk: 8, turn: Turn::OfZone, zones });
}

proptest! {
    /// The way back leads to the free bytes and to nothing else: what is carried is proved, and a byte more is not.
    #[test]
    fn the_way_back_proves_the_way_there(rule in 0..64_usize, cuts in prop::collection::btree_set(0..360_u64, 2..12)) {
        let all = every_rule();
        let mapping = &all[rule % all.len()];
        let cuts: Vec<u64> = cuts.into_iter().map(|cut| cut.min(mapping.len())).collect();
        let free: Vec<ByteRange> = cuts.chunks(2).filter_map(|pair| ByteRange::new(pair[0], *pair.get(1)?)).collect();
        let spread = mapping.carry(&free).unwrap();
        prop_assert!(mapping.proves(&spread, &free));
        let allowed = mapping.agree(&free, &spread).unwrap();
        prop_assert_eq!(&allowed, &spread);
        // Of a stripe that is free in part the proof goes byte by byte, and allows more than whole stripes.
        let exact = mapping.redundancy() != Redundancy::Parity;
        for (device, ranges) in spread.iter().filter(|_| exact) {
            for range in ranges {
                for wider in [ByteRange::new(range.start().wrapping_sub(1), range.end()), ByteRange::new(range.start(), range.end() + 1)] {
                    let wider = Spread::from([(*device, wider.into_iter().collect())]);
                    prop_assert!(wider[device].is_empty() || !mapping.proves(&wider, &free), "{:?}", wider);
                }
            }
        }
    }

    /// Reading an array gives each byte from its own place, whatever the request.
    #[test]
    fn reads_cross_chunks_and_members(rule in 0..64_usize, at in 0..300_u64, len in 0..60_usize) {
        let all = every_rule();
        let mapping = &all[rule % all.len()];
        let mut devices = vec![vec![0_u8; 1000]; 5];
        for byte in 0..mapping.len() {
            let (place, _) = mapping.locate(byte).unwrap();
            devices[place.device][place.at as usize] = (byte % 251) as u8;
        }
        let source = ArraySource::new(mapping, devices.iter().map(|device| -> &dyn crate::source::Source { device }).collect());
        let mut found = vec![0; len];
        let read = crate::source::Source::read_at(&source, at, &mut found);
        if at + len as u64 <= mapping.len() {
            let expected: Vec<u8> = (at..at + len as u64).map(|byte| (byte % 251) as u8).collect();
            prop_assert!(read.is_ok());
            prop_assert_eq!(found, expected);
        } else {
            prop_assert!(read.is_err());
        }
    }
}
