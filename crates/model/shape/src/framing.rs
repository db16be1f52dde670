//! The bytes that packets take on the link: overhead, minimum and cells, as CAKE counts them.
//!
//! `overhead` is relative to the IP packet, as with CAKE. Back ends count Ethernet frames, so their
//! header is subtracted.

use fairpath_core::sched::Framing;

/// The header that back ends count with each packet.
const ETHERNET: i16 = 14;
/// Limits of the overhead, bytes: those of CAKE.
pub const OVERHEADS: std::ops::RangeInclusive<i64> = -64..=256;
/// Limits of the minimum, bytes: those of CAKE.
pub const MPUS: std::ops::RangeInclusive<i64> = 0..=256;

/// The cells of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cells {
    /// Packets leave as they are.
    #[default]
    None,
    /// 48 bytes in each cell of 53, the last one padded (ADSL).
    Atm,
    /// 64 bytes in 65 (VDSL2).
    Ptm,
}

impl Cells {
    /// All, by their names in the configuration.
    pub const NAMES: [(&str, Cells); 3] = [
        ("none", Cells::None),
        ("atm", Cells::Atm),
        ("ptm", Cells::Ptm),
    ];
}

/// A kind of link by the keywords of tc-cake(8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkKind {
    /// The keyword.
    pub name: &'static str,
    /// Bytes in addition to an IP packet.
    pub overhead: i16,
    /// Minimum bytes with the overhead.
    pub mpu: u16,
    /// Its cells.
    pub cells: Cells,
}

/// The kinds of links, from tc-cake(8), "Overhead compensation parameters".
pub const LINK_KINDS: [LinkKind; 13] = {
    const fn kind(name: &'static str, overhead: i16, mpu: u16, cells: Cells) -> LinkKind {
        LinkKind {
            name,
            overhead,
            mpu,
            cells,
        }
    }
    [
        kind("conservative", 48, 0, Cells::Atm),
        kind("ipoa-vcmux", 8, 0, Cells::Atm),
        kind("ipoa-llcsnap", 16, 0, Cells::Atm),
        kind("bridged-vcmux", 24, 0, Cells::Atm),
        kind("bridged-llcsnap", 32, 0, Cells::Atm),
        kind("pppoa-vcmux", 10, 0, Cells::Atm),
        kind("pppoa-llc", 14, 0, Cells::Atm),
        kind("pppoe-vcmux", 32, 0, Cells::Atm),
        kind("pppoe-llcsnap", 40, 0, Cells::Atm),
        kind("pppoe-ptm", 30, 0, Cells::Ptm),
        kind("bridged-ptm", 22, 0, Cells::Ptm),
        kind("docsis", 18, 64, Cells::None),
        kind("ethernet", 38, 84, Cells::None),
    ]
};

/// The framing of a link; without `overhead`, packets count as Ethernet frames.
pub fn framing(overhead: Option<i16>, mpu: u16, cells: Cells) -> Framing {
    let cells = match cells {
        Cells::None => Framing::default(),
        Cells::Atm => Framing::ATM,
        Cells::Ptm => Framing::PTM,
    };
    Framing {
        overhead: overhead.map_or(0, |overhead| overhead - ETHERNET),
        mpu,
        ..cells
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ip_packets_cost_as_with_cake() {
        let charged = |name: &str, ip_bytes: u32| {
            let kind = LINK_KINDS.iter().find(|kind| kind.name == name).unwrap();
            let framing = framing(Some(kind.overhead), kind.mpu, kind.cells);
            framing.link_bytes(ip_bytes + 14, 1)
        };
        assert_eq!(charged("ethernet", 40), 84);
        assert_eq!(charged("ethernet", 1500), 1538);
        assert_eq!(charged("docsis", 1500), 1518);
        assert_eq!(charged("pppoe-ptm", 1492), 1546);
        // 1,492 bytes and 40 of PPPoE with LLC are 32 cells.
        assert_eq!(charged("pppoe-llcsnap", 1492), 32 * 53);
        assert_eq!(charged("conservative", 40), 2 * 53);
        // Without an overhead, the frame is what is put into cells.
        assert_eq!(framing(None, 0, Cells::Atm).link_bytes(54, 1), 2 * 53);
        assert_eq!(framing(None, 0, Cells::None), Framing::default());
    }
}
