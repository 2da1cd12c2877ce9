//! Formats that are recognised and left alone, made by the tools that make them; and the reverse: none of the
//! signatures may fire on a filesystem that coldtrim trims.

mod common;

use coldtrim_parsers::foreign::FOREIGN;
use coldtrim_parsers::source::Source;
use coldtrim_parsers::stack::{Content, Layer, Options, Stack, read};
use coldtrim_parsers::volume::{Consent, Weight};
use common::{tool, tool_ok};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

struct Image(File);

impl Source for Image {
    fn len(&self) -> u64 {
        self.0.metadata().expect("an open file").len()
    }
    fn read_at(&self, at: u64, buf: &mut [u8]) -> std::io::Result<()> {
        self.0.read_exact_at(buf, at)
    }
}

fn open(path: &str) -> Image {
    Image(File::open(path).expect("the image"))
}

fn stack(path: &str, partitions: &[u32]) -> Stack {
    let options = Options { partitions: partitions.to_vec(), ..Options::default() };
    read(&[Layer { source: &open(path), sector_size: 512 }], &options)
}

fn make(folder: &Path, name: &str, mib: u64) -> String {
    let path = folder.join(name);
    File::create(&path).and_then(|file| file.set_len(mib << 20)).expect("a new image");
    path.to_str().expect("UTF-8").to_owned()
}

fn write_at(path: &str, at: u64, bytes: &[u8]) {
    File::options().write(true).open(path).and_then(|file| file.write_all_at(bytes, at)).expect("a write");
}

/// Names of the rows that see something.
fn seen(path: &str) -> Vec<&'static str> {
    let image = open(path);
    FOREIGN.iter().filter(|row| row.probe(&image).expect("readable")).map(|row| row.name).collect()
}

#[test]
fn what_tools_make_is_recognised() {
    let folder = tempfile::tempdir().expect("a folder");
    let tree = folder.path().join("tree");
    std::fs::create_dir(&tree).expect("a folder");
    std::fs::write(tree.join("file"), vec![7; 10_000]).expect("a file");
    let tree = tree.to_str().expect("UTF-8").to_owned();
    let cases: &[(&str, &str, &str)] = &[
        ("Minix", "mkfs.minix", "-1 IMAGE"),
        ("Minix", "mkfs.minix", "-2 IMAGE"),
        ("Minix", "mkfs.minix", "-3 IMAGE"),
        ("cramfs", "mkfs.cramfs", "TREE IMAGE"),
        ("SCO BFS", "mkfs.bfs", "IMAGE 4000"),
        ("Linux swap", "mkswap", "IMAGE"),
        ("Linux swap", "mkswap", "-p 16384 IMAGE"),
        ("Linux swap", "mkswap", "-p 65536 IMAGE"),
        ("LUKS", "cryptsetup", "luksFormat --type luks1 --pbkdf-force-iterations 1000 -q --key-file KEY IMAGE"),
        (
            "LUKS",
            "cryptsetup",
            "luksFormat --type luks2 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 -q --key-file KEY IMAGE",
        ),
        ("ISO 9660", "xorriso", "-as mkisofs -quiet -o IMAGE TREE"),
        ("HFS (before HFS+)", "hformat", "-f IMAGE"),
    ];
    let key = folder.path().join("key");
    std::fs::write(&key, [7; 32]).expect("a key");
    for (name, program, arguments) in cases {
        let image = make(folder.path(), "image", 32);
        let word = |word: &str| match word {
            "IMAGE" => image.clone(),
            "TREE" => tree.clone(),
            "KEY" => key.to_str().expect("UTF-8").to_owned(),
            other => other.to_owned(),
        };
        let words: Vec<String> = arguments.split(' ').map(word).collect();
        tool_ok(program, &words.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(seen(&image), [*name], "{program} {arguments}");
        let kept = *name == "Linux swap";
        match &stack(&image, &[]).nodes[..] {
            [node] => match &node.content {
                Content::Kept { format, .. } => assert_eq!((format.as_deref(), kept), (Some(*name), true)),
                Content::Refused { format, .. } => assert_eq!((format.as_deref(), kept), (Some(*name), false)),
                Content::Volume { volume, .. } => panic!("{name} read as {}", volume.format),
            },
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_verity_device_and_its_hashes() {
    let folder = tempfile::tempdir().expect("a folder");
    let (data, hashes) = (make(folder.path(), "data", 8), make(folder.path(), "hashes", 1));
    tool_ok("mke2fs", &["-q", "-t", "ext4", &data]);
    tool_ok("veritysetup", &["format", &data, &hashes]);
    assert_eq!(seen(&hashes), ["dm-verity"]);
    assert!(usable(&stack(&data, &[])), "the data alone look like any volume");

    // One device with both: the tree lies behind the filesystem.
    let both = make(folder.path(), "both", 12);
    tool_ok("mke2fs", &["-q", "-t", "ext4", &both, "8M"]);
    assert!(usable(&stack(&both, &[])));
    tool_ok("veritysetup", &["format", &both, &both, "--data-blocks=2048", "--hash-offset=8388608"]);
    let found = stack(&both, &[]);
    assert!(!usable(&found) && messages(&found).contains("dm-verity"), "{}", messages(&found));
}

/// True when there is a volume that nothing forbids to trim.
fn usable(stack: &Stack) -> bool {
    stack.nodes.iter().any(|node| match &node.content {
        Content::Volume { volume, .. } => volume.is_usable(),
        Content::Refused { .. } | Content::Kept { .. } => false,
    })
}

/// Everything that was said.
fn messages(stack: &Stack) -> String {
    let of = |content: &Content| match content {
        Content::Volume { volume, .. } => {
            volume.findings.iter().map(|f| f.message.clone()).collect::<Vec<_>>().join("; ")
        }
        Content::Refused { finding, .. } => finding.message.clone(),
        Content::Kept { reason, .. } => reason.clone(),
    };
    stack.nodes.iter().map(|node| of(&node.content)).collect::<Vec<_>>().join("\n")
}

/// Makers of the filesystems that coldtrim trims.
const TRIMMED: &[(&str, &[&str], u64)] = &[
    ("mke2fs", &["-q", "-F", "-t", "ext2", "-b", "1024"], 16),
    ("mke2fs", &["-q", "-F", "-t", "ext3", "-b", "2048"], 16),
    ("mke2fs", &["-q", "-F", "-t", "ext4"], 64),
    ("mkfs.fat", &["-F", "12"], 4),
    ("mkfs.fat", &["-F", "16"], 32),
    ("mkfs.fat", &["-F", "32"], 64),
    ("mkfs.exfat", &[], 32),
    ("mkntfs", &["-q", "-F", "-f"], 32),
    ("mkfs.xfs", &["-q", "-f"], 320),
    ("mkfs.btrfs", &["-q", "-f"], 128),
    ("mkfs.f2fs", &["-q", "-f"], 64),
    ("mkapfs", &[], 600),
];

#[test]
fn no_signature_fires_on_what_is_trimmed() {
    let folder = tempfile::tempdir().expect("a folder");
    for (program, arguments, mib) in TRIMMED {
        let image = make(folder.path(), "image", *mib);
        let mut words = arguments.to_vec();
        words.push(&image);
        tool_ok(program, &words);
        assert_eq!(seen(&image), [""; 0], "{program} {arguments:?}");
        let blkid = tool("blkid", &["-p", "-o", "value", "-s", "TYPE", &image]);
        assert!(blkid.status.success(), "blkid sees one type: {blkid:?}");
    }
}

/// The record of a member outweighs what the area looks like, unless the user says that it is stale.
#[test]
fn a_volume_with_the_record_of_a_member_asks_for_consent() {
    let folder = tempfile::tempdir().expect("a folder");
    let image = make(folder.path(), "image", 64);
    tool_ok("mke2fs", &["-q", "-F", "-t", "ext4", &image]);
    let record = (64 << 20) - 8192;
    write_at(&image, record, b"\xFC\x4E\x2B\xA9\x01\0\0\0");
    write_at(&image, record + 0x90, &(record / 512).to_le_bytes());
    let found = stack(&image, &[]);
    let consents = |stack: &Stack| match &stack.nodes[0].content {
        Content::Volume { volume, .. } => {
            volume.findings.iter().any(|f| f.weight == Weight::Consent(Consent::StaleRaidMetadata))
        }
        Content::Refused { .. } | Content::Kept { .. } => false,
    };
    assert!(consents(&found), "{}", messages(&found));
    assert!(messages(&found).contains("Linux RAID (md 1.0)") && messages(&found).contains("is damaged"));
    // A record behind the first 4 KiB would have been overwritten by a later volume: that one is believed.
    write_at(&image, 4096, b"\xFC\x4E\x2B\xA9\x01\0\0\0");
    assert!(!usable(&stack(&image, &[])));
}

/// Two volumes on the same area: both names are said.
#[test]
fn two_owners_are_ambiguous() {
    let folder = tempfile::tempdir().expect("a folder");
    let image = make(folder.path(), "image", 64);
    tool_ok("mke2fs", &["-q", "-F", "-t", "ext4", &image]);
    write_at(&image, 0x1_0000 + 52, b"ReIsEr");
    let found = stack(&image, &[]);
    assert!(!usable(&found));
    assert!(messages(&found).contains("ext4 and ReiserFS"), "{}", messages(&found));
}

/// The records of a firmware RAID may be stale: they ask for a consent, on the whole disk and on each partition.
#[test]
fn records_of_a_firmware_raid_ask_for_consent() {
    let folder = tempfile::tempdir().expect("a folder");
    let image = make(folder.path(), "image", 64);
    let asked = |image: &str| {
        stack(image, &[]).nodes.iter().all(|node| match &node.content {
            Content::Volume { volume, .. } => {
                volume.findings.iter().any(|f| f.weight == Weight::Consent(Consent::StaleRaidMetadata))
            }
            Content::Refused { .. } | Content::Kept { .. } => false,
        })
    };
    tool_ok("mke2fs", &["-q", "-F", "-t", "ext4", &image]);
    assert!(!asked(&image));
    write_at(&image, (64 << 20) - 1024, b"Intel Raid ISM Cfg Sig. 1.1.00");
    assert!(asked(&image), "{}", messages(&stack(&image, &[])));

    let image = make(folder.path(), "disk", 64);
    tool_ok("sh", &["-c", &format!("printf 'label: dos\\nstart=2048,size=65536\\nsize=40000\\n' | sfdisk -q {image}")]);
    for offset in [2048 * 512, (2048 + 65_536) * 512] {
        tool_ok("mke2fs", &["-q", "-F", "-t", "ext4", "-E", &format!("offset={offset}"), &image, "16M"]);
    }
    assert_eq!(stack(&image, &[]).nodes.len(), 2);
    assert!(usable(&stack(&image, &[])) && !stack(&image, &[]).tables[0].gaps.is_empty() && !asked(&image));
    write_at(&image, (64 << 20) - 255 * 512, b"Promise Technology, Inc.");
    assert!(asked(&image), "{}", messages(&stack(&image, &[])));
    assert!(stack(&image, &[]).tables[0].gaps.is_empty());
}

/// A sleeping system still has its filesystems mounted, so a suspend image anywhere forbids the whole disk, also when
/// only another partition is asked for.
#[test]
fn a_suspend_image_forbids_the_whole_disk() {
    let folder = tempfile::tempdir().expect("a folder");
    let image = make(folder.path(), "disk", 128);
    tool_ok("sgdisk", &["--clear", "--new=1:2048:100000", "--new=2:102400:200000", "--typecode=2:8200", &image]);
    tool_ok("mke2fs", &["-q", "-F", "-t", "ext4", "-E", "offset=1048576", &image, "40M"]);
    let swap = make(folder.path(), "swap", 40);
    tool_ok("mkswap", &[&swap]);
    let mut bytes = std::fs::read(&swap).expect("the swap area");
    write_at(&image, 102_400 * 512, &bytes);
    for partitions in [&[][..], &[1]] {
        let awake = stack(&image, partitions);
        assert!(usable(&awake) && !awake.tables[0].gaps.is_empty(), "{}", messages(&awake));
    }
    bytes[4086..4096].copy_from_slice(b"S1SUSPEND\0");
    write_at(&image, 102_400 * 512, &bytes);
    for partitions in [&[][..], &[1]] {
        let asleep = stack(&image, partitions);
        assert!(!usable(&asleep) && asleep.tables[0].gaps.is_empty());
        assert!(messages(&asleep).contains("sleeping system"), "{}", messages(&asleep));
    }
}

/// The signatures of another filesystem that a fresh mkfs leaves behind, judged as libblkid judges them: where it calls
/// an image ambivalent coldtrim may refuse, where it sees one type coldtrim must not see two.
#[test]
fn leftovers_are_judged_as_libblkid_does() {
    let folder = tempfile::tempdir().expect("a folder");
    for (old, old_arguments) in
        [("mkswap", &[][..]), ("mkfs.minix", &["-3"]), ("mkfs.fat", &["-F", "32"]), ("hformat", &["-f"])]
    {
        for (new, new_arguments, mib) in TRIMMED {
            let image = make(folder.path(), "image", (*mib).max(64));
            for (program, arguments) in [(old, old_arguments), (*new, *new_arguments)] {
                let mut words = arguments.to_vec();
                words.push(&image);
                tool_ok(program, &words);
            }
            let blkid = tool("blkid", &["-p", "-o", "value", "-s", "TYPE", &image]);
            let ambivalent = blkid.status.code() == Some(8);
            assert!(ambivalent || seen(&image).is_empty(), "{old}, then {new}: {:?}, blkid {blkid:?}", seen(&image));
        }
    }
}
