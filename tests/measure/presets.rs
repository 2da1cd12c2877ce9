//! The protocols from the field on modelled drives: the shapes that were published, at the scale of the model.

use crate::fleet::{Model, Truth};
use crate::simulated::{Bench, MIB, Simulated, plan};
use crate::{Quiet, assert_only_free_space_is_touched, design, experiment_ground};
use coldtrim::measure::preset::{PRESETS, Record, play, preset};
use coldtrim::plan::units::ByteRange;
use coldtrim_ssd_model::config::{p1, vertex};
use coldtrim_ssd_model::{Config, PAGE, Ssd};

/// A drive whose first `free` of 16 parts are free and were never written.
fn clean(name: &str, config: &Config, free: u32) -> Model {
    let free = 0..config.pages / 16 * free;
    let mut ssd = Ssd::new(config);
    ssd.fill(free.end..config.pages);
    ssd.clear_log();
    Model { name: name.to_owned(), ssd, free, budget: 8192 * MIB, ceiling: None, truth: Truth::Works }
}

fn played(name: &str, model: &Model) -> Vec<Record> {
    let bench = Bench::new(model.ssd.clone());
    let size = u64::from(model.ssd.config().pages) * PAGE;
    let free = ByteRange::new(0, u64::from(model.free.end) * PAGE).expect("free space");
    let plan = plan(size, &[free]);
    let ground = experiment_ground(&plan, model);
    let mut drive = Simulated::new(&bench, &plan, None);
    let preset = preset(name).expect("a preset");
    let records = play(&mut drive, &ground, &design(model.budget), preset, &mut Quiet).expect("a run");
    assert_only_free_space_is_touched(name, &bench.0.borrow().ssd, free);
    for record in &records {
        let pass = &record.pass;
        println!(
            "{name:<12} {:<24} {:<20} {:>6.1} MiB {:>7.2} MB/s {:?}",
            record.name,
            record.what,
            pass.bytes as f64 / MIB as f64,
            speed(record) / 1e6,
            pass.cache().map(|knee| (knee.bytes / MIB as f64, knee.before / 1e6, knee.after / 1e6))
        );
    }
    records
}

/// Bytes a second over the whole pass, as the articles have it.
fn speed(record: &Record) -> f64 {
    record.pass.bytes as f64 / record.pass.seconds_flushed
}

fn named<'a>(records: &'a [Record], name: &str) -> &'a Record {
    records.iter().find(|record| record.name == name).unwrap_or_else(|| panic!("no pass '{name}'"))
}

/// 159 MB/s new; 25.6, 40.8 and 50 after random writes; new again after TRIM.
#[test]
fn vertex_falls_heals_slowly_and_is_new_after_trim() {
    let records = played("vertex", &clean("vertex", &vertex(128), 15));
    let share = |name| speed(named(&records, name)) / speed(named(&records, "as found"));
    let [first, second, third] = ["write 1", "write 2", "write 3"].map(share);
    for (share, published) in [(first, 25.6), (second, 40.8), (third, 50.0)] {
        assert!((share * 159.0 / published - 1.0).abs() < 0.25, "{share:.3}, published {:.3}", published / 159.0);
    }
    assert!(share("write after TRIM") > 0.95, "{}", share("write after TRIM"));
    let random: Vec<f64> = (1..=6).map(|k| speed(named(&records, &format!("random {k}")))).collect();
    assert!(random[0] > 1.5 * random[5], "random writes decay from new on: {random:?}");
}

/// Twelve times as fast inside the cache as behind it; the cache shrinks as the drive fills, stays at its smallest after
/// files are deleted, and is whole again after TRIM.
#[test]
fn the_cache_of_p1_shrinks_and_comes_back_with_trim_alone() {
    let records = played("slc-cache", &clean("p1", &p1(512), 15));
    let knee = |name| named(&records, name).pass.cache().unwrap_or_else(|| panic!("'{name}' has no knee"));
    let (first, last) = (knee("file 1"), knee("file 5"));
    assert!(first.before > 8.0 * first.after, "{first:?}");
    assert!(first.bytes > 3.0 * last.bytes, "{} {}", first.bytes, last.bytes);
    let (deleted, trimmed) = (knee("deleted, not trimmed"), knee("after TRIM"));
    assert!(deleted.bytes < 1.5 * last.bytes, "{} {}", deleted.bytes, last.bytes);
    assert!((trimmed.bytes / first.bytes - 1.0).abs() < 0.1, "{} {}", trimmed.bytes, first.bytes);
}

/// TRIM of another part of the drive gives the speed back: flash is one pool.
#[test]
fn trim_of_another_zone_helps_this_one() {
    let records = played("hardwarefr", &clean("vertex", &vertex(128), 14));
    let of = |name| speed(named(&records, name));
    assert!(of("after TRIM") > 1.3 * of("after a pause"), "{} {}", of("after TRIM"), of("after a pause"));
    assert!(of("random after TRIM") > 1.3 * of("random after a pause"));
}

/// Every protocol ends, keeps its budget, and leaves no page of test data mapped.
#[test]
fn every_protocol_keeps_its_budget() {
    for preset in PRESETS {
        let model = Model { budget: 96 * MIB, ..clean(preset.name, &vertex(64), 8) };
        let records = played(preset.name, &model);
        let is_write = |record: &&Record| !record.what.contains("reads");
        let mixed: u64 = records.iter().filter(|record| record.what.contains("mixed")).map(|r| r.pass.bytes).sum();
        let written: u64 = records.iter().filter(is_write).map(|record| record.pass.bytes).sum();
        assert!(written + mixed <= model.budget + 32 * MIB, "{}: {written}", preset.name);
        assert!(!records.is_empty(), "{}", preset.name);
    }
}
