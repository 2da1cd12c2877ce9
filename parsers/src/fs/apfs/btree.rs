//! B-trees, read whole: every tree that is read here is wanted whole.
//!
//! ```text
//! node:  header | flags, level, nkeys, spaces | table of contents | keys -> | free | <- values | info (root only)
//! ```
//! Key offsets count from the end of the table of contents, value offsets backwards from the end of the node (of a
//! root: from its info). Source: Apple File System Reference, "B-Trees".

use super::error::{at_most, equal, wrong};
use super::object::{Blocks, Object};
use super::ondisk::{RawNode, RawTreeInfo, kind};
use crate::error::ParseError;
use crate::units::{add, from_usize, sub, to_usize};
use std::collections::BTreeSet;
use zerocopy::{LE, U16, U64};

const ROOT: u16 = 1;
const LEAF: u16 = 2;
const FIXED: u16 = 4;

/// Value offset of a key without a value.
const GHOST: u16 = 0xFFFF;

/// What a tree must look like.
pub(super) struct Tree<'a> {
    pub blocks: Blocks<'a>,
    /// Where the node with this identifier lies.
    pub locate: &'a dyn Fn(u64) -> Result<u64, ParseError>,
    /// `kind::PHYSICAL` or `kind::EPHEMERAL`.
    pub storage: u32,
    /// Kind of the entries, where it is known.
    pub subtype: Option<u32>,
    /// No node is younger than this transaction.
    pub xid: u64,
    pub what: &'static str,
}

/// Called for each record of the leaves: key, value (none: a ghost), byte position of the node.
pub(super) type Visit<'v> = dyn FnMut(&[u8], Option<&[u8]>, u64) -> Result<(), ParseError> + 'v;

impl Tree<'_> {
    /// Visits every record and gives the blocks of all nodes.
    pub fn walk(&self, root: u64, visit: &mut Visit<'_>) -> Result<Vec<u64>, ParseError> {
        let node = self.node(root, kind::BTREE_ROOT)?;
        let (info, at) = (node.info()?, node.object.at);
        equal(at, "B-tree: bytes of a node", self.blocks.size.bytes(), u64::from(info.bt_node_size.get()))?;
        let (mut seen, mut keys) = (BTreeSet::from([node.object.block]), 0_u64);
        let mut open = vec![node];
        while let Some(node) = open.pop() {
            let records = node.records(&info)?;
            if node.level()? == 0 {
                keys = add(keys, from_usize(records.len()), "a count of keys")?;
                records.iter().try_for_each(|(key, value)| visit(key, *value, node.object.at))?;
                continue;
            }
            for (_, value) in records.iter().rev() {
                let child = self.child(&node, *value)?;
                // A tree that refers to a node twice could be walked for ever.
                if !seen.insert(child.object.block) {
                    return Err(wrong(child.object.at, "B-tree: a node", "one parent", "two"));
                }
                open.push(child);
            }
        }
        equal(at, "B-tree: nodes", info.bt_node_count.get(), from_usize(seen.len()))?;
        equal(at, "B-tree: keys", info.bt_key_count.get(), keys)?;
        Ok(seen.into_iter().collect())
    }

    fn child(&self, parent: &Node, value: Option<&[u8]>) -> Result<Node, ParseError> {
        let oid = value.and_then(|v| v.first_chunk()).map(|v| u64::from_le_bytes(*v));
        let oid = oid.ok_or_else(|| wrong(parent.object.at, "B-tree: a child", "a node", "nothing"))?;
        let child = self.node(oid, kind::BTREE_NODE)?;
        // Levels fall by one, so that a walk ends.
        let expected = sub(u64::from(parent.level()?), 1, "a level")?;
        equal(child.object.at, "B-tree: level", expected, u64::from(child.level()?))?;
        Ok(child)
    }

    fn node(&self, oid: u64, kind: u32) -> Result<Node, ParseError> {
        let object = self.blocks.object((self.locate)(oid)?, self.what)?;
        object.expect(self.storage | kind, oid, self.xid)?;
        if let Some(subtype) = self.subtype {
            equal(object.at, "B-tree: kind of entries", u64::from(subtype), u64::from(object.header.o_subtype.get()))?;
        }
        Node::new(object, kind == kind::BTREE_ROOT)
    }
}

/// A node with sane flags.
struct Node {
    raw: RawNode,
    object: Object,
}

/// Key and value of a record; a ghost has no value.
type Record<'n> = (&'n [u8], Option<&'n [u8]>);

impl Node {
    fn new(object: Object, root: bool) -> Result<Self, ParseError> {
        let raw: RawNode = object.head()?;
        let flags = raw.btn_flags.get();
        let expected = if root { ROOT } else { 0 } | if raw.btn_level.get() == 0 { LEAF } else { 0 };
        equal(object.at, "B-tree: flags of a node", u64::from(expected), u64::from(flags & !FIXED))?;
        Ok(Self { raw, object })
    }

    fn level(&self) -> Result<u16, ParseError> {
        let level = self.raw.btn_level.get();
        at_most(self.object.at, "B-tree: level", 16, u64::from(level))?;
        Ok(level)
    }

    fn info(&self) -> Result<RawTreeInfo, ParseError> {
        let offset = sub(from_usize(self.object.bytes.len()), from_usize(size_of::<RawTreeInfo>()), "a root node")?;
        super::object::head(self.part(offset, from_usize(size_of::<RawTreeInfo>()))?, self.object.at)
    }

    fn part(&self, offset: u64, len: u64) -> Result<&[u8], ParseError> {
        let end = add(offset, len, "the end of a part of a node")?;
        let range = to_usize(offset, "an offset")?..to_usize(end, "an offset")?;
        let len = self.object.bytes.len();
        self.object.bytes.get(range).ok_or_else(|| {
            wrong(self.object.at, "B-tree: a part of a node", format_args!("inside its {len} bytes"), end)
        })
    }

    fn records(&self, info: &RawTreeInfo) -> Result<Vec<Record<'_>>, ParseError> {
        let [table, table_len] = &self.raw.btn_table_space;
        let table = add(from_usize(size_of::<RawNode>()), u64::from(table.get()), "a table of contents")?;
        let keys = add(table, u64::from(table_len.get()), "a table of contents")?;
        let root = self.raw.btn_flags.get() & ROOT != 0;
        let tail = if root { from_usize(size_of::<RawTreeInfo>()) } else { 0 };
        let end = sub(from_usize(self.object.bytes.len()), tail, "the end of the values")?;
        self.places(info, table)?
            .into_iter()
            .map(|place| {
                let key = self.part(add(keys, place.key, "a key")?, place.key_len)?;
                let value = place.value.map(|(back, len)| self.part(sub(end, back, "a value")?, len)).transpose()?;
                Ok((key, value))
            })
            .collect()
    }

    fn places(&self, info: &RawTreeInfo, table: u64) -> Result<Vec<Place>, ParseError> {
        let count = u64::from(self.raw.btn_nkeys.get());
        if self.raw.btn_flags.get() & FIXED == 0 {
            let places: Vec<[U16<LE>; 4]> = self.object.entries(table, count)?;
            let place = |[key, key_len, value, value_len]: [U16<LE>; 4]| Place {
                key: key.get().into(),
                key_len: key_len.get().into(),
                value: (value.get() != GHOST).then(|| (value.get().into(), value_len.get().into())),
            };
            return Ok(places.into_iter().map(place).collect());
        }
        let value_len = match self.raw.btn_level.get() {
            0 => u64::from(info.bt_val_size.get()),
            _ => from_usize(size_of::<U64<LE>>()),
        };
        let places: Vec<[U16<LE>; 2]> = self.object.entries(table, count)?;
        let place = |[key, value]: [U16<LE>; 2]| Place {
            key: key.get().into(),
            key_len: info.bt_key_size.get().into(),
            value: (value.get() != GHOST).then(|| (value.get().into(), value_len)),
        };
        Ok(places.into_iter().map(place).collect())
    }
}

/// Where a record lies: the key from the start of the keys, the value backwards from the end of the values.
struct Place {
    key: u64,
    key_len: u64,
    value: Option<(u64, u64)>,
}
