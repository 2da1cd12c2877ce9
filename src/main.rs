//! The command line of coldtrim.

use anyhow::Context;
use coldtrim_parsers::source::Source;
use coldtrim_parsers::stack::{Content, Layer, Options, read};
use std::os::unix::fs::FileExt;

struct Image(std::fs::File, u64);

impl Source for Image {
    fn len(&self) -> u64 {
        self.1
    }
    fn read_at(&self, at: u64, buf: &mut [u8]) -> std::io::Result<()> {
        self.0.read_exact_at(buf, at)
    }
}

// Only `map --format ranges IMAGE...` for now.
fn main() -> anyhow::Result<()> {
    coldtrim::sandbox::child_main_if_asked();
    let paths: Vec<String> = std::env::args().skip(4).collect();
    let images = paths
        .iter()
        .map(|path| {
            let file = std::fs::File::open(path).with_context(|| path.clone())?;
            let len = file.metadata()?.len();
            Ok(Image(file, len))
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    let layers: Vec<Layer<'_>> = images.iter().map(|i| Layer { source: i, sector_size: 512 }).collect();
    let mut refused = false;
    for node in read(&layers, &Options::default()).nodes {
        match node.content {
            Content::Volume { volume, testimony } => {
                refused |= !volume.is_usable();
                eprintln!("{} {:?} {:?}", volume.format, volume.findings, testimony);
                for range in volume.free.ranges().iter().filter(|_| volume.is_usable()) {
                    println!("{} {}", node.range.start() + range.start(), range.len());
                }
            }
            other => {
                refused = true;
                eprintln!("{other:?}");
            }
        }
    }
    std::process::exit(if refused { 3 } else { 0 })
}
