//! Words of ebtables files: ethertypes.

use crate::spec::{Kind, SPECS};
use crate::tree::Family;
use crate::value::{any_number, show};

/// Names of ethertypes, without regard to case (`/etc/ethertypes`).
const ETHERTYPES: &[(&str, u16)] = &[
    ("IPv4", 0x0800),
    ("X25", 0x0805),
    ("ARP", 0x0806),
    ("FR_ARP", 0x0808),
    ("BPQ", 0x08ff),
    ("TRAIL", 0x1000),
    ("DEC", 0x6000),
    ("DNA_DL", 0x6001),
    ("DNA_RC", 0x6002),
    ("DNA_RT", 0x6003),
    ("LAT", 0x6004),
    ("DIAG", 0x6005),
    ("CUST", 0x6006),
    ("SCA", 0x6007),
    ("TEB", 0x6558),
    ("RAW_FR", 0x6559),
    ("RARP", 0x8035),
    ("AARP", 0x80f3),
    ("ATALK", 0x809b),
    ("802_1Q", 0x8100),
    ("IPX", 0x8137),
    ("NetBEUI", 0x8191),
    ("IPv6", 0x86dd),
    ("PPP", 0x880b),
    ("ATMMPOA", 0x884c),
    ("PPP_DISC", 0x8863),
    ("PPP_SES", 0x8864),
    ("ATMFATE", 0x8884),
    ("EAPOL", 0x888e),
    ("S-TAG", 0x88a8),
    ("EAP_PREAUTH", 0x88c7),
    ("LLDP", 0x88cc),
    ("MACSEC", 0x88e5),
    ("PBB", 0x88e7),
    ("MVRP", 0x88f5),
    ("PTP", 0x88f7),
    ("FCOE", 0x8906),
    ("FIP", 0x8914),
    ("ROCE", 0x8915),
];

/// 802.3 frames with a length instead of a type.
pub const LENGTH: u16 = 0;

pub fn ethertype(text: &str) -> Result<u16, String> {
    if text.eq_ignore_ascii_case("length") {
        return Ok(LENGTH);
    }
    if let Some((_, number)) = ETHERTYPES
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(text))
    {
        return Ok(*number);
    }
    let number = any_number(text).or_else(|| {
        // ebtables reads protocol numbers as hexadecimal, with or without 0x.
        u64::from_str_radix(text, 16).ok()
    });
    match number {
        Some(number @ 0x600..=0xffff) => Ok(number as u16),
        _ => Err(format!(
            "\"{}\" is not an ethertype: write a name such as IPv4, or 0x0600 to 0xffff",
            show(text.as_bytes())
        )),
    }
}

pub fn ethertype_text(number: u16) -> String {
    if number == LENGTH {
        return "Length".into();
    }
    ETHERTYPES
        .iter()
        .find(|(_, known)| *known == number)
        .map_or_else(|| format!("0x{number:x}"), |(name, _)| (*name).to_owned())
}

/// The match that has this option. ebtables loads matches by the names of their options.
pub fn match_of_option(name: &[u8]) -> Option<Kind> {
    SPECS
        .iter()
        .filter(|spec| spec.is_in(Family::Bridge) && !spec.kind.is_header())
        .find(|spec| {
            spec.options
                .iter()
                .any(|option| option.names.iter().any(|known| known.as_bytes() == name))
        })
        .map(|spec| spec.kind)
}
