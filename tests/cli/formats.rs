//! What `map` prints, in every format.

use crate::common::{parse_ranges, tool_ok};
use crate::images::{FIRST, Table, dirty_fat, disk, ext4, fat, said, text};

const SECTOR_FORMATS: [&str; 5] = ["lba", "hdparm", "sg_unmap", "blkdiscard", "nvme"];

fn ranges(args: &[&str]) -> Vec<(u64, u64)> {
    let run = said(&[&["map", "--format", "ranges"], args].concat());
    run.expect(0, &[]);
    parse_ranges(&run.out)
}

#[test]
fn ranges_are_lines_of_two_numbers_and_nothing_else() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for image in [ext4(folder.path(), "a.img"), fat(folder.path(), "b.img")] {
        let run = said(&["map", "--format", "ranges", text(&image)]);
        run.expect(0, &[]);
        assert_eq!(run.err, "");
        let found = parse_ranges(&run.out);
        let printed: String = found.iter().map(|(start, len)| format!("{start} {len}\n")).collect();
        assert_eq!(printed, run.out);
        assert!(found.len() > 10, "the image is fragmented");
        assert!(found.windows(2).all(|w| w[0].0 + w[0].1 < w[1].0), "sorted and merged");
        let report = said(&["map", "--json", text(&image)]).json();
        assert_eq!(report["free_bytes"], found.iter().map(|(_, len)| len).sum::<u64>());
        assert_eq!(report["free_extents"], found.len());
        let listed = report["volumes"][0]["ranges"].as_array().expect("a list").clone();
        let listed: Vec<_> =
            listed.iter().map(|r| (r["start"].as_u64().unwrap(), r["length"].as_u64().unwrap())).collect();
        assert_eq!(listed, found);
    }
}

#[test]
fn formats_that_speak_of_one_target_take_one() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (first, second) = (ext4(folder.path(), "a.img"), fat(folder.path(), "b.img"));
    let (first, second) = (text(&first), text(&second));
    for format in ["ranges", "ddrescue"].iter().chain(&SECTOR_FORMATS) {
        let run = said(&["map", "--format", format, first, second]);
        run.expect(2, &["one target"]);
        assert_eq!(run.out, "", "{format}");
    }
    said(&["map", first, second]).expect(0, &["free in all:", first, second]);
    let both = said(&["map", "--json", first, second]).json();
    assert_eq!(both["targets"].as_array().map(Vec::len), Some(2));
    assert_eq!(both["volumes"][1]["target"], 1);
}

#[test]
fn a_disk_is_the_union_of_its_volumes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (first, second) = (ext4(folder.path(), "a.img"), fat(folder.path(), "b.img"));
    for table in [Table::Gpt, Table::Mbr] {
        let image = disk(folder.path(), "disk.img", table, &first, &second);
        let shift = |map: Vec<(u64, u64)>, by: u64| map.into_iter().map(move |(start, len)| (start + by, len));
        let mut union: Vec<_> = shift(ranges(&[text(&first)]), FIRST).collect();
        union.extend(shift(ranges(&[text(&second)]), crate::images::SECOND));
        assert_eq!(ranges(&[text(&image)]), union);
        let one: Vec<_> = shift(ranges(&[text(&first)]), FIRST).collect();
        assert_eq!(ranges(&["--partition", "1", text(&image)]), one);
        assert_eq!(ranges(&["--partition", "2", "--partition", "1", text(&image)]), union);
    }
}

#[test]
fn sectors_are_refused_where_nobody_knows_their_size() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = ext4(folder.path(), "a.img");
    for format in ["lba", "hdparm", "sg_unmap"] {
        let run = said(&["map", "--format", format, text(&image)]);
        run.expect(2, &["sector size", "losetup"]);
        assert_eq!(run.out, "", "{format}");
    }
}

#[test]
fn formats_for_other_tools_say_that_nothing_is_checked_and_count_the_same_sectors() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (first, second) = (ext4(folder.path(), "a.img"), fat(folder.path(), "b.img"));
    let image = disk(folder.path(), "disk.img", Table::Gpt, &first, &second);
    let expected: Vec<_> = ranges(&[text(&image)]).iter().map(|(start, len)| (start / 512, len / 512)).collect();
    let lines = |format: &str| -> Vec<String> {
        let run = said(&["map", "--format", format, text(&image)]);
        run.expect(0, &["checks nothing"]);
        assert!(run.out.starts_with('#'), "a warning comes first");
        run.out.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    };
    let pairs = |format: &str, between: char| -> Vec<(u64, u64)> {
        let numbers = |line: &String| {
            let (start, count) = line.split_once(between).expect("two numbers");
            (start.parse().expect("a number"), count.parse().expect("a number"))
        };
        lines(format).iter().map(numbers).collect()
    };
    assert_eq!(pairs("lba", ' '), expected);
    assert_eq!(pairs("hdparm", ':'), expected, "no extent here is longer than 65,535 sectors");
    assert_eq!(pairs("sg_unmap", ','), expected);
    for tool in ["blkdiscard", "nvme"] {
        let run = said(&["map", "--format", tool, text(&image)]);
        run.expect(2, &[tool, "works on devices only", &format!("coldtrim trim {}", text(&image))]);
        assert_eq!(run.out, "");
    }
}

/// A name is whatever somebody made it: what comes out for another tool or for a shell stays what it is.
#[test]
fn a_name_cannot_add_lines_or_commands() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (first, second) = (ext4(folder.path(), "a.img"), dirty_fat(folder.path(), "b.img"));
    let image = disk(folder.path(), "disk.img", Table::Gpt, &first, &second);
    let odd = folder.path().join("a\n1 99999999\n;touch pwned; \u{202E}'.img");
    std::fs::rename(&image, &odd).expect("another name");
    for format in ["lba", "hdparm", "sg_unmap"] {
        let run = said(&["map", "--format", format, text(&odd)]);
        run.expect(5, &["checks nothing"]);
        assert!(!run.out.contains("\n1 99999999") && !run.out.contains('\u{202E}'), "{run:#?}");
    }
    // What is to be typed reaches the file: a shell that runs it prints the name.
    let report = said(&["map", "--json", text(&odd)]).json();
    let remedies = report["volumes"].as_array().expect("a list").iter().flat_map(|volume| volume["reasons"].as_array());
    let remedy =
        remedies.flatten().find_map(|reason| reason["remedy"].as_str().filter(|text| text.contains("losetup")));
    let remedy = remedy.expect("the dirty volume has a remedy");
    let script = format!(
        "cd /; losetup() {{ for name; do :; done; printf %s \"$name\"; }}; fsck.fat() {{ printf %s \"$2\"; }}; {remedy}"
    );
    assert_eq!(tool_ok("bash", &["-c", &script]), format!("{}p2", text(&odd)), "{remedy}");
}

#[test]
fn a_ddrescue_file_covers_every_byte() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = fat(folder.path(), "a.img");
    let run = said(&["map", "--format", "ddrescue", text(&image)]);
    run.expect(0, &[]);
    let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).expect("a hexadecimal number");
    let (mut end, mut free) = (0, Vec::new());
    // The first line that is no comment is the state of the tool itself.
    for line in run.out.lines().filter(|line| !line.starts_with('#')).skip(1) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [start, len, status] = fields[..] else { panic!("three fields: {line}") };
        assert_eq!(number(start), end, "no gap and no overlap");
        end += number(len);
        if status == "?" {
            free.push((number(start), number(len)));
        } else {
            assert_eq!(status, "+");
        }
    }
    assert_eq!(end, std::fs::metadata(&image).expect("the image").len());
    assert_eq!(free, ranges(&[text(&image)]));
}

#[test]
fn the_text_says_what_is_there_and_what_to_do() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (first, second) = (ext4(folder.path(), "a.img"), dirty_fat(folder.path(), "b.img"));
    let image = disk(folder.path(), "disk.img", Table::Gpt, &first, &second);
    let run = said(&["map", text(&image)]);
    run.expect(
        5,
        &["GPT", "ext4 \"hello\"", "clean", "\"FATVOL\"", "refused", "dirty bit", "fsck.fat", "kept", "free in all:"],
    );
}

/// The root of an empty volume is no file.
#[test]
fn an_empty_volume_has_a_root_and_no_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = folder.path().join("empty.img");
    tool_ok("mkfs.fat", &["-C", "-F", "32", "-s", "1", text(&image), "40000"]);
    let run = said(&["map", text(&image)]);
    run.expect(0, &["1 extent of 1 owner (files, folders, the root), none of it free"]);
    assert!(!run.out.contains("1 file"), "{run:#?}");
}

#[test]
fn a_picture_shows_every_volume_and_overwrites_nothing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (first, second) = (ext4(folder.path(), "a.img"), fat(folder.path(), "b.img"));
    let image = disk(folder.path(), "disk.img", Table::Gpt, &first, &second);
    let picture = folder.path().join("map.svg");
    let args = ["map", "-q", "--svg", text(&picture), text(&image)];
    said(&args).expect(0, &[]);
    let drawn = std::fs::read_to_string(&picture).expect("a picture");
    assert!(drawn.starts_with("<svg") && drawn.trim_end().ends_with("</svg>"), "{drawn}");
    for words in ["1: ext4", "2: fat16", "free</title>"] {
        assert!(drawn.contains(words), "{words} is not in {drawn}");
    }
    said(&args).expect(1, &["cannot draw into", "never overwritten"]);
    assert_eq!(std::fs::read_to_string(&picture).expect("a picture"), drawn);
}
