//! The walk: devices are divided into areas, areas that belong together become arrays, arrays are devices again, until
//! nothing new comes of it; then every area is read.

use super::discover::{discover, is_asleep};
use super::leaf::{read_leaf, refused};
use super::members::vouch;
use super::{Depth, FoundArray, FoundMember, Layer, Leaf, Node, Options, Stack, Standing};
use crate::array::{ASSEMBLIES, ArraySource, Assembled, Candidate, Group};
use crate::source::{Source, Window};
use std::collections::BTreeSet;

/// How many arrays may stand upon each other; real systems have two or three.
const MOST_STOREYS: u32 = 8;

/// Reads everything on `layers`. Never fails: what cannot be read is a refused node.
pub fn read(layers: &[Layer<'_>], options: &Options) -> Stack {
    let mut walk = Walk { options, stack: Stack::default(), leaves: Vec::new(), asleep: BTreeSet::new() };
    walk.storey(layers, 0, if options.depth == Depth::Whole { MOST_STOREYS } else { 0 });
    let mut stack = walk.stack;
    stack.nodes.sort_by_key(|node| (node.device, node.range));
    let asleep = with_arrays(walk.asleep, &stack.arrays);
    asleep.iter().for_each(|device| stack.leave_alone(*device));
    stack.keep_what_reaches_out();
    stack
}

struct Walk<'o> {
    options: &'o Options,
    stack: Stack,
    leaves: Vec<Leaf>,
    /// Devices that hold the memory of a sleeping system.
    asleep: BTreeSet<usize>,
}

impl Walk<'_> {
    /// Divides the layers from number `fresh` on; the ones before are divided already.
    fn storey(&mut self, layers: &[Layer<'_>], fresh: usize, left: u32) {
        for (device, layer) in layers.iter().enumerate().skip(fresh) {
            self.divide(device, *layer);
        }
        let arrays = if left == 0 { Vec::new() } else { self.assemble(layers) };
        if arrays.is_empty() {
            self.read_leaves(layers);
            return;
        }
        let devices: Vec<&dyn Source> = layers.iter().map(|layer| layer.source).collect();
        let sources: Vec<ArraySource<'_>> =
            arrays.iter().map(|array| ArraySource::new(&array.mapping, devices.clone())).collect();
        let sector_size = |array: &Assembled| {
            let below = array.mapping.areas().filter_map(|area| layers.get(area.device)).map(|layer| layer.sector_size);
            below.max().unwrap_or(512)
        };
        let mut all = layers.to_vec();
        all.extend(
            arrays.iter().zip(&sources).map(|(array, source)| Layer { source, sector_size: sector_size(array) }),
        );
        self.storey(&all, layers.len(), left.saturating_sub(1));
        for (device, source) in (layers.len()..).zip(&sources) {
            self.stack.refuse_what_differs(device, &source.differences());
        }
    }

    fn divide(&mut self, device: usize, layer: Layer<'_>) {
        let mut leaves = Vec::new();
        discover(device, layer, &mut self.stack, &mut leaves);
        if leaves.iter().any(|leaf| is_asleep(layer.source, leaf.range)) {
            self.asleep.insert(device);
        }
        for leaf in &mut leaves {
            leaf.wanted = leaf.part.as_ref().is_none_or(|part| self.options.wants(part.number));
        }
        let findings =
            self.stack.arrays.iter().find(|array| array.device == device).map(|array| array.findings.clone());
        leaves.iter_mut().for_each(|leaf| leaf.findings.extend(findings.iter().flatten().cloned()));
        self.leaves.append(&mut leaves);
    }

    /// The arrays that the areas so far give; their members are taken, and the others know why they are not.
    fn assemble(&mut self, layers: &[Layer<'_>]) -> Vec<Assembled> {
        let mut found = Vec::new();
        for assembly in ASSEMBLIES {
            let windows: Vec<(usize, Window<'_>)> = self
                .leaves
                .iter()
                .enumerate()
                .filter(|(_, leaf)| leaf.may_be_a_member())
                .filter_map(|(index, leaf)| Some((index, Window::new(layers.get(leaf.device)?.source, leaf.range)?)))
                // What cannot be read is refused as an area of its own.
                .filter(|(_, window)| assembly.probe(window).unwrap_or(false))
                .collect();
            let candidates: Vec<Candidate<'_>> = windows
                .iter()
                .filter_map(|(index, window)| {
                    let leaf = self.leaves.get(*index)?;
                    Some(Candidate { leaf: *index, source: window, device: leaf.device, start: leaf.range.start() })
                })
                .collect();
            for mut group in assembly.assemble(&candidates) {
                let members: Vec<&Leaf> = group.members.iter().filter_map(|role| self.leaves.get(role.leaf)).collect();
                group.outcome = group.outcome.and_then(|mut arrays| {
                    let inherited = vouch(&arrays, &members, layers)?;
                    arrays.iter_mut().for_each(|array| array.findings.extend(inherited.iter().cloned()));
                    Ok(arrays)
                });
                self.settle(group, layers.len(), &mut found);
            }
        }
        found
    }

    fn settle(&mut self, group: Group, known: usize, found: &mut Vec<Assembled>) {
        let arrays = match group.outcome {
            Ok(arrays) => arrays,
            Err(finding) => {
                for role in &group.members {
                    if let Some(leaf) = self.leaves.get_mut(role.leaf) {
                        leaf.standing = Some(Standing::NotAssembled(finding.clone()));
                    }
                }
                return;
            }
        };
        let called: Vec<String> =
            arrays.iter().map(|array| array.name.clone().unwrap_or_else(|| array.uuid.clone())).collect();
        let mut members = Vec::new();
        for role in group.members {
            if let Some(leaf) = self.leaves.get_mut(role.leaf) {
                let words = format!("{} of {}, which is listed below", role.words, called.join(", "));
                leaf.standing = Some(Standing::Member(words));
                members.push(FoundMember {
                    device: leaf.device,
                    range: leaf.range,
                    partition: leaf.part.as_ref().map(|part| part.number),
                    role: role.words,
                });
            }
        }
        for array in arrays {
            self.stack.arrays.push(FoundArray {
                device: known.saturating_add(found.len()),
                format: array.format.clone(),
                name: array.name.clone(),
                uuid: array.uuid.clone(),
                members: members.clone(),
                mapping: array.mapping.clone(),
                findings: array.findings.clone(),
            });
            found.push(array);
        }
    }

    fn read_leaves(&mut self, layers: &[Layer<'_>]) {
        let window = |leaf: &Leaf| layers.get(leaf.device).and_then(|layer| Window::new(layer.source, leaf.range));
        let windows: Vec<Option<Window<'_>>> = self.leaves.iter().map(window).collect();
        for (index, leaf) in self.leaves.iter().enumerate().filter(|(_, leaf)| leaf.wanted) {
            let companions: Vec<&dyn Source> = windows
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != index)
                .filter_map(|(_, window)| window.as_ref().map(|w| -> &dyn Source { w }))
                .collect();
            let content = match windows.get(index).and_then(Option::as_ref) {
                Some(window) => read_leaf(leaf, window, &companions, self.options),
                None => refused(None, "the partition passes the end of its device", "check the table: fdisk -l DEVICE"),
            };
            let node = Node { device: leaf.device, range: leaf.range, part: leaf.part.clone(), content };
            self.stack.nodes.push(node);
        }
    }
}

/// Devices that share an array with a sleeping one sleep too: its system has the array running.
fn with_arrays(mut asleep: BTreeSet<usize>, arrays: &[FoundArray]) -> BTreeSet<usize> {
    loop {
        let before = asleep.len();
        for array in arrays {
            let all = || array.members.iter().map(|member| member.device).chain([array.device]);
            if all().any(|device| asleep.contains(&device)) {
                asleep.extend(all());
            }
        }
        if asleep.len() == before {
            return asleep;
        }
    }
}
