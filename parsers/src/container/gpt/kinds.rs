//! The partition types of GPT. Sources: UEFI Specification table 5-7, Microsoft `PARTITION_INFORMATION_GPT`, the UAPI
//! group's Discoverable Partitions Specification, and the list of `sfdisk --label gpt --list-types`.

use crate::container::Part;
use crate::container::kind::{APPLE_RAID, BOOT_CODE, CORE_STORAGE, Fate, LDM, SLEEP, SLICES, STORAGE_SPACES, VMFS};

const MSR: Fate = Fate::Kept("Windows reserves it for its own later use");
const RESERVED: Fate = Fate::Kept("it is reserved, not a filesystem");
const HASHES: Fate = Fate::Kept("it holds the hashes or signatures of a dm-verity partition");
const CHROME: Fate = Fate::Refused(
    "ChromeOS checks this partition block by block with dm-verity, free blocks too: discarding them would break it",
);

/// The type in words, or as a GUID, and what follows from it.
pub(super) fn meaning(guid: &[u8; 16]) -> (String, Fate) {
    let text = text(guid);
    match KINDS.iter().find(|(known, _, _)| *known == text) {
        Some((_, words, fate)) => ((*words).to_owned(), *fate),
        None => (format!("type {text}"), Fate::Content),
    }
}

/// A GUID as people write it: the first three fields are stored with the least byte first.
fn text(guid: &[u8; 16]) -> String {
    let [a, b, c, d, e, f, g, h, rest @ ..] = guid;
    let mut text = String::with_capacity(36);
    for (index, byte) in [d, c, b, a, f, e, h, g].into_iter().chain(rest).enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02X}"));
    }
    text
}

/// Refuses root and /usr partitions on a disk that also has dm-verity hashes: those cover free blocks as well, so a
/// discarded free block would read as damage.
pub(super) fn with_verity(mut parts: Vec<Part>) -> Vec<Part> {
    let of = |part: &Part, words: &str| part.kind.starts_with(words);
    let has_hashes = parts.iter().any(|part| part.kind.contains(" verity ("));
    for part in parts.iter_mut().filter(|_| has_hashes) {
        if of(part, "Linux root (") || of(part, "Linux /usr (") {
            part.refused = Some(
                "the disk also has a dm-verity partition, whose hashes cover free blocks too: discarding them would \
                 break the verified system"
                    .to_owned(),
            );
        }
    }
    parts
}

/// GUID, words, what follows.
#[rustfmt::skip]
const KINDS: &[(&str, &str, Fate)] = &[
    ("C12A7328-F81F-11D2-BA4B-00A0C93EC93B", "EFI system", Fate::Content),
    ("21686148-6449-6E6F-744E-656564454649", "BIOS boot", BOOT_CODE),
    ("9E1A2D38-C612-4316-AA26-8B49521E5A8B", "PowerPC PReP boot", BOOT_CODE),
    ("E3C9E316-0B5C-4DB8-817D-F92DF00215AE", "Microsoft reserved", MSR),
    ("EBD0A0A2-B9E5-4433-87C0-68B6B72699C7", "Microsoft basic data", Fate::Content),
    ("DE94BBA4-06D1-4D40-A16A-BFD50179D6AC", "Windows recovery", Fate::Content),
    ("5808C8AA-7E8F-42E0-85D2-E1E90434CFB3", "Windows LDM metadata", LDM),
    ("AF9B60A0-1431-4F62-BC68-3311714A69AD", "Windows LDM data", LDM),
    ("E75CAF8F-F680-4CEE-AFA3-B001E56EFC2D", "Windows Storage Spaces", STORAGE_SPACES),
    ("D3BFE2DE-3DAF-11DF-BA40-E3A556D89593", "Intel Rapid Start", SLEEP),
    ("0FC63DAF-8483-4772-8E79-3D69D8477DE4", "Linux", Fate::Content),
    ("0657FD6D-A4AB-43C4-84E5-0933C84B4F4F", "Linux swap", Fate::Content),
    ("A19D880F-05FC-4D3B-A006-743F0F84911E", "Linux RAID", Fate::Content),
    ("E6D6D379-F507-44C2-A23C-238F2A3DF928", "Linux LVM", Fate::Content),
    ("CA7D7CCB-63ED-4C53-861C-1742536059CC", "Linux LUKS", Fate::Content),
    ("8DA63339-0007-60C0-C436-083AC8230908", "Linux reserved", RESERVED),
    ("933AC7E1-2EB4-4F13-B844-0E14E2AEF915", "Linux home", Fate::Content),
    ("3B8F8425-20E0-4F3B-907F-1A25A76F98E8", "Linux server data", Fate::Content),
    ("4D21B016-B534-45C2-A9FB-5C16E091FD2D", "Linux variable data", Fate::Content),
    ("7EC6F557-3BC5-4ACA-B293-16EF5DF639D1", "Linux temporary data", Fate::Content),
    ("BC13C2FF-59E6-4262-A352-B275FD6F7172", "Linux extended boot", Fate::Content),
    ("48465300-0000-11AA-AA11-00306543ECAC", "Apple HFS+", Fate::Content),
    ("7C3457EF-0000-11AA-AA11-00306543ECAC", "Apple APFS", Fate::Content),
    ("53746F72-6167-11AA-AA11-00306543ECAC", "Apple Core Storage", CORE_STORAGE),
    ("52414944-0000-11AA-AA11-00306543ECAC", "Apple RAID", APPLE_RAID),
    ("52414944-5F4F-11AA-AA11-00306543ECAC", "Apple RAID, offline", APPLE_RAID),
    ("426F6F74-0000-11AA-AA11-00306543ECAC", "Apple boot", Fate::Content),
    ("69646961-6700-11AA-AA11-00306543ECAC", "Apple Silicon boot", Fate::Content),
    ("52637672-7900-11AA-AA11-00306543ECAC", "Apple Silicon recovery", Fate::Content),
    ("4C616265-6C00-11AA-AA11-00306543ECAC", "Apple label", Fate::Content),
    ("55465300-0000-11AA-AA11-00306543ECAC", "Apple UFS", Fate::Content),
    ("6A898CC3-1DD2-11B2-99A6-080020736631", "ZFS", Fate::Content),
    ("516E7CB4-6ECF-11D6-8FF8-00022D09712B", "FreeBSD", SLICES),
    ("83BD6B9D-7F41-11DC-BE0B-001560B84F0F", "FreeBSD boot", BOOT_CODE),
    ("516E7CB5-6ECF-11D6-8FF8-00022D09712B", "FreeBSD swap", Fate::Content),
    ("516E7CB6-6ECF-11D6-8FF8-00022D09712B", "FreeBSD UFS", Fate::Content),
    ("516E7CBA-6ECF-11D6-8FF8-00022D09712B", "FreeBSD ZFS", Fate::Content),
    ("824CC7A0-36A8-11E3-890A-952519AD3F61", "OpenBSD", SLICES),
    ("FE3A2A5D-4F32-41A7-B725-ACCC3285A309", "ChromeOS kernel", BOOT_CODE),
    ("3CB8E202-3B7E-47DD-8A3C-7FF2A13CFCEC", "ChromeOS root", CHROME),
    ("2E0A753D-9E48-43B0-8337-B15192CB1B5E", "ChromeOS reserved", RESERVED),
    ("AA31E02A-400F-11DB-9590-000C2911D1B8", "VMware VMFS", VMFS),
    ("9D275380-40AD-11DB-BF97-000C2911D1B8", "VMware diagnostic", VMFS),
    ("381CFCCC-7288-11E0-92EE-000C2911D0B2", "VMware Virtual SAN", VMFS),
    ("9198EFFC-31C0-11DB-8F78-000C2911D1B8", "VMware reserved", VMFS),
    ("44479540-F297-41B2-9AF7-D131D5F0458A", "Linux root (x86)", Fate::Content),
    ("4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709", "Linux root (x86-64)", Fate::Content),
    ("6523F8AE-3EB1-4E2A-A05A-18B695AE656F", "Linux root (Alpha)", Fate::Content),
    ("D27F46ED-2919-4CB8-BD25-9531F3C16534", "Linux root (ARC)", Fate::Content),
    ("69DAD710-2CE4-4E3C-B16C-21A1D49ABED3", "Linux root (ARM)", Fate::Content),
    ("B921B045-1DF0-41C3-AF44-4C6F280D3FAE", "Linux root (arm64)", Fate::Content),
    ("993D8D3D-F80E-4225-855A-9DAF8ED7EA97", "Linux root (IA-64)", Fate::Content),
    ("77055800-792C-4F94-B39A-98C91B762BB6", "Linux root (LoongArch-64)", Fate::Content),
    ("37C58C8A-D913-4156-A25F-48B1B64E07F0", "Linux root (MIPS-32 LE)", Fate::Content),
    ("700BDA43-7A34-4507-B179-EEB93D7A7CA3", "Linux root (MIPS-64 LE)", Fate::Content),
    ("1DE3F1EF-FA98-47B5-8DCD-4A860A654D78", "Linux root (PPC)", Fate::Content),
    ("912ADE1D-A839-4913-8964-A10EEE08FBD2", "Linux root (PPC64)", Fate::Content),
    ("C31C45E6-3F39-412E-80FB-4809C4980599", "Linux root (PPC64LE)", Fate::Content),
    ("60D5A7FE-8E7D-435C-B714-3DD8162144E1", "Linux root (RISC-V-32)", Fate::Content),
    ("72EC70A6-CF74-40E6-BD49-4BDA08E8F224", "Linux root (RISC-V-64)", Fate::Content),
    ("08A7ACEA-624C-4A20-91E8-6E0FA67D23F9", "Linux root (S390)", Fate::Content),
    ("5EEAD9A9-FE09-4A1E-A1D7-520D00531306", "Linux root (S390X)", Fate::Content),
    ("C50CDD70-3862-4CC3-90E1-809A8C93EE2C", "Linux root (TILE-Gx)", Fate::Content),
    ("75250D76-8CC6-458E-BD66-BD47CC81A812", "Linux /usr (x86)", Fate::Content),
    ("8484680C-9521-48C6-9C11-B0720656F69E", "Linux /usr (x86-64)", Fate::Content),
    ("E18CF08C-33EC-4C0D-8246-C6C6FB3DA024", "Linux /usr (Alpha)", Fate::Content),
    ("7978A683-6316-4922-BBEE-38BFF5A2FECC", "Linux /usr (ARC)", Fate::Content),
    ("7D0359A3-02B3-4F0A-865C-654403E70625", "Linux /usr (ARM)", Fate::Content),
    ("B0E01050-EE5F-4390-949A-9101B17104E9", "Linux /usr (arm64)", Fate::Content),
    ("4301D2A6-4E3B-4B2A-BB94-9E0B2C4225EA", "Linux /usr (IA-64)", Fate::Content),
    ("E611C702-575C-4CBE-9A46-434FA0BF7E3F", "Linux /usr (LoongArch-64)", Fate::Content),
    ("0F4868E9-9952-4706-979F-3ED3A473E947", "Linux /usr (MIPS-32 LE)", Fate::Content),
    ("C97C1F32-BA06-40B4-9F22-236061B08AA8", "Linux /usr (MIPS-64 LE)", Fate::Content),
    ("7D14FEC5-CC71-415D-9D6C-06BF0B3C3EAF", "Linux /usr (PPC)", Fate::Content),
    ("2C9739E2-F068-46B3-9FD0-01C5A9AFBCCA", "Linux /usr (PPC64)", Fate::Content),
    ("15BB03AF-77E7-4D4A-B12B-C0D084F7491C", "Linux /usr (PPC64LE)", Fate::Content),
    ("B933FB22-5C3F-4F91-AF90-E2BB0FA50702", "Linux /usr (RISC-V-32)", Fate::Content),
    ("BEAEC34B-8442-439B-A40B-984381ED097D", "Linux /usr (RISC-V-64)", Fate::Content),
    ("CD0F869B-D0FB-4CA0-B141-9EA87CC78D66", "Linux /usr (S390)", Fate::Content),
    ("8A4F5770-50AA-4ED3-874A-99B710DB6FEA", "Linux /usr (S390X)", Fate::Content),
    ("55497029-C7C1-44CC-AA39-815ED1558630", "Linux /usr (TILE-Gx)", Fate::Content),
    ("D13C5D3B-B5D1-422A-B29F-9454FDC89D76", "Linux root verity (x86)", HASHES),
    ("2C7357ED-EBD2-46D9-AEC1-23D437EC2BF5", "Linux root verity (x86-64)", HASHES),
    ("FC56D9E9-E6E5-4C06-BE32-E74407CE09A5", "Linux root verity (Alpha)", HASHES),
    ("24B2D975-0F97-4521-AFA1-CD531E421B8D", "Linux root verity (ARC)", HASHES),
    ("7386CDF2-203C-47A9-A498-F2ECCE45A2D6", "Linux root verity (ARM)", HASHES),
    ("DF3300CE-D69F-4C92-978C-9BFB0F38D820", "Linux root verity (ARM-64)", HASHES),
    ("86ED10D5-B607-45BB-8957-D350F23D0571", "Linux root verity (IA-64)", HASHES),
    ("F3393B22-E9AF-4613-A948-9D3BFBD0C535", "Linux root verity (LoongArch-64)", HASHES),
    ("D7D150D2-2A04-4A33-8F12-16651205FF7B", "Linux root verity (MIPS-32 LE)", HASHES),
    ("16B417F8-3E06-4F57-8DD2-9B5232F41AA6", "Linux root verity (MIPS-64 LE)", HASHES),
    ("98CFE649-1588-46DC-B2F0-ADD147424925", "Linux root verity (PPC)", HASHES),
    ("9225A9A3-3C19-4D89-B4F6-EEFF88F17631", "Linux root verity (PPC64)", HASHES),
    ("906BD944-4589-4AAE-A4E4-DD983917446A", "Linux root verity (PPC64LE)", HASHES),
    ("AE0253BE-1167-4007-AC68-43926C14C5DE", "Linux root verity (RISC-V-32)", HASHES),
    ("B6ED5582-440B-4209-B8DA-5FF7C419EA3D", "Linux root verity (RISC-V-64)", HASHES),
    ("7AC63B47-B25C-463B-8DF8-B4A94E6C90E1", "Linux root verity (S390)", HASHES),
    ("B325BFBE-C7BE-4AB8-8357-139E652D2F6B", "Linux root verity (S390X)", HASHES),
    ("966061EC-28E4-4B2E-B4A5-1F0A825A1D84", "Linux root verity (TILE-Gx)", HASHES),
    ("8F461B0D-14EE-4E81-9AA9-049B6FB97ABD", "Linux /usr verity (x86)", HASHES),
    ("77FF5F63-E7B6-4633-ACF4-1565B864C0E6", "Linux /usr verity (x86-64)", HASHES),
    ("8CCE0D25-C0D0-4A44-BD87-46331BF1DF67", "Linux /usr verity (Alpha)", HASHES),
    ("FCA0598C-D880-4591-8C16-4EDA05C7347C", "Linux /usr verity (ARC)", HASHES),
    ("C215D751-7BCD-4649-BE90-6627490A4C05", "Linux /usr verity (ARM)", HASHES),
    ("6E11A4E7-FBCA-4DED-B9E9-E1A512BB664E", "Linux /usr verity (ARM-64)", HASHES),
    ("6A491E03-3BE7-4545-8E38-83320E0EA880", "Linux /usr verity (IA-64)", HASHES),
    ("F46B2C26-59AE-48F0-9106-C50ED47F673D", "Linux /usr verity (LoongArch-64)", HASHES),
    ("46B98D8D-B55C-4E8F-AAB3-37FCA7F80752", "Linux /usr verity (MIPS-32 LE)", HASHES),
    ("3C3D61FE-B5F3-414D-BB71-8739A694A4EF", "Linux /usr verity (MIPS-64 LE)", HASHES),
    ("DF765D00-270E-49E5-BC75-F47BB2118B09", "Linux /usr verity (PPC)", HASHES),
    ("BDB528A5-A259-475F-A87D-DA53FA736A07", "Linux /usr verity (PPC64)", HASHES),
    ("EE2B9983-21E8-4153-86D9-B6901A54D1CE", "Linux /usr verity (PPC64LE)", HASHES),
    ("CB1EE4E3-8CD0-4136-A0A4-AA61A32E8730", "Linux /usr verity (RISC-V-32)", HASHES),
    ("8F1056BE-9B05-47C4-81D6-BE53128E5B54", "Linux /usr verity (RISC-V-64)", HASHES),
    ("B663C618-E7BC-4D6D-90AA-11B756BB1797", "Linux /usr verity (S390)", HASHES),
    ("31741CC4-1A2A-4111-A581-E00B447D2D06", "Linux /usr verity (S390X)", HASHES),
    ("2FB4BF56-07FA-42DA-8132-6B139F2026AE", "Linux /usr verity (TILE-Gx)", HASHES),
    ("5996FC05-109C-48DE-808B-23FA0830B676", "Linux root verity signature (x86)", HASHES),
    ("41092B05-9FC8-4523-994F-2DEF0408B176", "Linux root verity signature (x86-64)", HASHES),
    ("D46495B7-A053-414F-80F7-700C99921EF8", "Linux root verity signature (Alpha)", HASHES),
    ("143A70BA-CBD3-4F06-919F-6C05683A78BC", "Linux root verity signature (ARC)", HASHES),
    ("42B0455F-EB11-491D-98D3-56145BA9D037", "Linux root verity signature (ARM)", HASHES),
    ("6DB69DE6-29F4-4758-A7A5-962190F00CE3", "Linux root verity signature (ARM-64)", HASHES),
    ("E98B36EE-32BA-4882-9B12-0CE14655F46A", "Linux root verity signature (IA-64)", HASHES),
    ("5AFB67EB-ECC8-4F85-AE8E-AC1E7C50E7D0", "Linux root verity signature (LoongArch-64)", HASHES),
    ("C919CC1F-4456-4EFF-918C-F75E94525CA5", "Linux root verity signature (MIPS-32 LE)", HASHES),
    ("904E58EF-5C65-4A31-9C57-6AF5FC7C5DE7", "Linux root verity signature (MIPS-64 LE)", HASHES),
    ("1B31B5AA-ADD9-463A-B2ED-BD467FC857E7", "Linux root verity signature (PPC)", HASHES),
    ("F5E2C20C-45B2-4FFA-BCE9-2A60737E1AAF", "Linux root verity signature (PPC64)", HASHES),
    ("D4A236E7-E873-4C07-BF1D-BF6CF7F1C3C6", "Linux root verity signature (PPC64LE)", HASHES),
    ("3A112A75-8729-4380-B4CF-764D79934448", "Linux root verity signature (RISC-V-32)", HASHES),
    ("EFE0F087-EA8D-4469-821A-4C2A96A8386A", "Linux root verity signature (RISC-V-64)", HASHES),
    ("3482388E-4254-435A-A241-766A065F9960", "Linux root verity signature (S390)", HASHES),
    ("C80187A5-73A3-491A-901A-017C3FA953E9", "Linux root verity signature (S390X)", HASHES),
    ("B3671439-97B0-4A53-90F7-2D5A8F3AD47B", "Linux root verity signature (TILE-Gx)", HASHES),
    ("974A71C0-DE41-43C3-BE5D-5C5CCD1AD2C0", "Linux /usr verity signature (x86)", HASHES),
    ("E7BB33FB-06CF-4E81-8273-E543B413E2E2", "Linux /usr verity signature (x86-64)", HASHES),
    ("5C6E1C76-076A-457A-A0FE-F3B4CD21CE6E", "Linux /usr verity signature (Alpha)", HASHES),
    ("94F9A9A1-9971-427A-A400-50CB297F0F35", "Linux /usr verity signature (ARC)", HASHES),
    ("D7FF812F-37D1-4902-A810-D76BA57B975A", "Linux /usr verity signature (ARM)", HASHES),
    ("C23CE4FF-44BD-4B00-B2D4-B41B3419E02A", "Linux /usr verity signature (ARM-64)", HASHES),
    ("8DE58BC2-2A43-460D-B14E-A76E4A17B47F", "Linux /usr verity signature (IA-64)", HASHES),
    ("B024F315-D330-444C-8461-44BBDE524E99", "Linux /usr verity signature (LoongArch-64)", HASHES),
    ("3E23CA0B-A4BC-4B4E-8087-5AB6A26AA8A9", "Linux /usr verity signature (MIPS-32 LE)", HASHES),
    ("F2C2C7EE-ADCC-4351-B5C6-EE9816B66E16", "Linux /usr verity signature (MIPS-64 LE)", HASHES),
    ("7007891D-D371-4A80-86A4-5CB875B9302E", "Linux /usr verity signature (PPC)", HASHES),
    ("0B888863-D7F8-4D9E-9766-239FCE4D58AF", "Linux /usr verity signature (PPC64)", HASHES),
    ("C8BFBD1E-268E-4521-8BBA-BF314C399557", "Linux /usr verity signature (PPC64LE)", HASHES),
    ("C3836A13-3137-45BA-B583-B16C50FE5EB4", "Linux /usr verity signature (RISC-V-32)", HASHES),
    ("D2F9000A-7A18-453F-B5CD-4D32F77A7B32", "Linux /usr verity signature (RISC-V-64)", HASHES),
    ("17440E4F-A8D0-467F-A46E-3912AE6EF2C5", "Linux /usr verity signature (S390)", HASHES),
    ("3F324816-667B-46AE-86EE-9B0C0C6C11B4", "Linux /usr verity signature (S390X)", HASHES),
    ("4EDE75E2-6CCC-4CC8-B9C7-70334B087510", "Linux /usr verity signature (TILE-Gx)", HASHES),
];
