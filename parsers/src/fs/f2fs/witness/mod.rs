//! A second reading: who owns what, node by node.
//!
//! Every inode and every block of block addresses is a node; the node address table (NAT) and its journal say where each
//! lies. The walk reads all of them and names the block of each node and all blocks that it points at. It shares no code
//! with the reader of the segment table.

mod nodes;
mod table;

use crate::error::ParseError;
use crate::source::Source;
use crate::units::ByteRange;
use crate::witness::{Ledger, Witness};
use nodes::{Node, Owner};
use table::Table;

/// Every node, by own code.
pub struct NodeWalk;

impl Witness for NodeWalk {
    fn name(&self) -> &'static str {
        "f2fs-walk"
    }

    fn walk(&self, source: &dyn Source, ledger: &mut Ledger<'_>) -> Result<(), ParseError> {
        let table = Table::read(source)?;
        for (what, range) in table.own_areas()? {
            ledger.visit();
            ledger.claim(range, &what);
        }
        for (number, block) in table.nodes() {
            let node = Node::read(source, &table, number, block)?;
            ledger.visit();
            claim(source, &table, &node, ledger)?;
            if ledger.has_clash() {
                break;
            }
        }
        Ok(())
    }
}

/// The node's own block and all that it points at, neighbours as one.
fn claim(source: &dyn Source, table: &Table, node: &Node, ledger: &mut Ledger<'_>) -> Result<(), ParseError> {
    let owner = Owner { source, table, inode: node.inode };
    ledger.claim(table.bytes(node.block, 1)?, &owner);
    let mut run: Option<ByteRange> = None;
    for address in node.addresses()? {
        let next = table.bytes(address, 1)?;
        run = match run {
            Some(open) if open.end() == next.start() => ByteRange::new(open.start(), next.end()),
            Some(done) => {
                ledger.claim(done, &owner);
                Some(next)
            }
            None => Some(next),
        };
    }
    if let Some(done) = run {
        ledger.claim(done, &owner);
    }
    Ok(())
}
