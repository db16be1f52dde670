//! VLAN tags (IEEE 802.1Q, clause 9): the fields after the tag's ethertype.
//!
//! ```text
//! priority 3 bits | drop eligible 1 | id 12 | ethertype 2 bytes
//! ```

use crate::ethernet::EtherType;
use crate::fields::{ParseError, array, be16};

/// Length of the tag, without the ethertype before it.
pub const HEADER_BYTES: usize = 4;

/// The highest VLAN id; 0 means priority only, and 4095 is reserved.
pub const MAX_ID: u16 = 0x0fff;

/// A VLAN tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Priority code point, 0 to 7.
    pub priority: u8,
    /// Drop eligible.
    pub drop_eligible: bool,
    /// VLAN id, 0 to [`MAX_ID`].
    pub id: u16,
    /// The type of the payload.
    pub ethertype: EtherType,
}

impl Header {
    /// Appends the 4 bytes; bits that do not fit their field are cut.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let control =
            u16::from(self.priority) << 13 | u16::from(self.drop_eligible) << 12 | self.id & MAX_ID;
        out.extend(control.to_be_bytes());
        out.extend(self.ethertype.0.to_be_bytes());
    }

    /// The tag, and what follows it.
    pub fn parse(bytes: &[u8]) -> Result<(Header, &[u8]), ParseError> {
        let (fields, rest) = array::<HEADER_BYTES>("vlan", bytes)?;
        let control = be16(fields, 0);
        let header = Header {
            priority: (control >> 13) as u8,
            drop_eligible: control & 0x1000 != 0,
            id: control & MAX_ID,
            ethertype: EtherType(be16(fields, 2)),
        };
        Ok((header, rest))
    }
}
