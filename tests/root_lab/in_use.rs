//! What the kernel itself stacks on a drive is a reason to refuse, by the name of the holder.

use crate::lab::{Drive, Lab, Status};
use crate::trim::COLDTRIM;

/// Both verbs refuse, name all of `words`, and leave every byte of the drive alone.
fn assert_refused(disk: &Drive<'_>, target: &str, words: &[&str]) {
    let before = disk.snapshot();
    for verb in ["map", "trim --yes --via unmap"] {
        let output = disk.lab.run(&format!("{COLDTRIM} {verb} {target}"));
        let said = format!("{}{}", output.stdout, output.stderr);
        assert!(output.status == Status::Exited(3), "{verb} {target}: {output}");
        for word in words {
            assert!(said.contains(word), "{verb} {target} does not name {word}: {output}");
        }
    }
    before.assert_untouched();
}

#[test]
#[ignore = "needs root and the lab; tests/run includes it"]
fn root_trim_refuses_what_is_held_by_device_mapper_or_loop() {
    let disk = Lab::get().drive("vscsi0");
    let volume = disk.make("ext4", "gpt", 5);
    let node = &volume.node;
    let lab = disk.lab;
    let sectors = volume.size / 512;
    let _ =
        lab.run_ok(&format!("dmsetup create --noudevrules --noudevsync held --table '0 {sectors} linear {node} 0'"));
    assert_refused(&disk, node, &["held", "dmsetup remove"]);
    // Other tests make mappings, too.
    let held = crate::mapping::node(lab, "held");
    let _ = lab.run_ok(&format!("mkdir -p /run/held; mount -o ro {held} /run/held"));
    assert_refused(&disk, node, &["held"]);
    assert_refused(&disk, &disk.node, &["held"]);
    let _ = lab.run_ok("umount /run/held; dmsetup remove --noudevrules --noudevsync held");

    let _ = lab.run_ok(&format!("losetup /dev/loop6 {node} && mount -o ro /dev/loop6 /run/held"));
    assert_refused(&disk, node, &["loop6", "losetup -d"]);
    let _ = lab.run_ok("umount /run/held; losetup -d /dev/loop6");

    let _ = lab.run_ok(&format!("mount -o ro {node} /run/held"));
    assert_refused(&disk, node, &["/run/held", "umount"]);
    let _ = lab.run_ok("umount /run/held");
    disk.check(&volume);
}
