//! Chunks of SCTP by name, with their flags.

use super::{choice, cut, show, utf8};
use crate::spec::Names as Choices;
use crate::tree::Value;

/// SCTP chunks by name: type numbers of RFC 9260.
const CHUNKS: &[(&str, u8, &str)] = &[
    ("DATA", 0, "----IUBE"),
    ("INIT", 1, ""),
    ("INIT_ACK", 2, ""),
    ("SACK", 3, ""),
    ("HEARTBEAT", 4, ""),
    ("HEARTBEAT_ACK", 5, ""),
    ("ABORT", 6, "-------T"),
    ("SHUTDOWN", 7, ""),
    ("SHUTDOWN_ACK", 8, ""),
    ("ERROR", 9, ""),
    ("COOKIE_ECHO", 10, ""),
    ("COOKIE_ACK", 11, ""),
    ("ECN_ECNE", 12, ""),
    ("ECN_CWR", 13, ""),
    ("SHUTDOWN_COMPLETE", 14, "-------T"),
    ("I_DATA", 64, "----IUBE"),
    ("RE_CONFIG", 130, ""),
    ("PAD", 132, ""),
    ("ASCONF", 193, ""),
    ("ASCONF_ACK", 128, ""),
    ("FORWARD_TSN", 192, ""),
    ("I_FORWARD_TSN", 194, ""),
];
const CHUNK_MODES: Choices = &[("any", 0), ("all", 1), ("only", 2)];

/// Mode, then for each chunk: type | mask of flags << 8 | flags << 16, ordered by type.
pub(super) fn chunks(mode: &[u8], list: &[u8]) -> Result<Value, String> {
    let mut out = vec![u128::from(choice(
        mode,
        CHUNK_MODES,
        "mode of chunk types",
    )?)];
    let mut found: Vec<u128> = Vec::new();
    for part in list.split(|byte| *byte == b',') {
        let (name, flags) = cut(part, b':');
        let name = utf8(name)?;
        if name.eq_ignore_ascii_case("ALL") || name.eq_ignore_ascii_case("NONE") {
            if name.eq_ignore_ascii_case("ALL") {
                found = (0..=255).collect();
            }
            continue;
        }
        let (_, ty, letters) = CHUNKS
            .iter()
            .find(|(known, _, _)| known.eq_ignore_ascii_case(name))
            .ok_or_else(|| format!("\"{}\" is not an SCTP chunk type", show(name.as_bytes())))?;
        let (mut mask, mut set) = (0u8, 0u8);
        for letter in flags.unwrap_or_default() {
            let bit = letters
                .bytes()
                .position(|known| known.eq_ignore_ascii_case(letter) && known != b'-')
                .ok_or_else(|| format!("chunk {name} has no flag \"{}\"", *letter as char))?;
            mask |= 0x80 >> bit;
            if letter.is_ascii_uppercase() {
                set |= 0x80 >> bit;
            }
        }
        let entry = u128::from(*ty) | u128::from(mask) << 8 | u128::from(set) << 16;
        found.retain(|other| *other as u8 != *ty);
        found.push(entry);
    }
    found.sort_unstable_by_key(|entry| *entry as u8);
    out.extend(found);
    Ok(Value::Numbers(Box::new(out.into())))
}

pub(super) fn chunks_text(numbers: &[u128]) -> String {
    let mode = CHUNK_MODES[numbers[0] as usize].0;
    if numbers.len() == 1 {
        return format!("{mode} NONE");
    }
    if numbers.len() == 257 {
        return format!("{mode} ALL");
    }
    let list: Vec<String> = numbers[1..]
        .iter()
        .map(|entry| {
            let ty = *entry as u8;
            let (mask, set) = ((entry >> 8) as u8, (entry >> 16) as u8);
            let Some((name, _, letters)) = CHUNKS.iter().find(|(_, known, _)| *known == ty) else {
                return ty.to_string();
            };
            let mut out = (*name).to_owned();
            if mask != 0 {
                out.push(':');
                for (at, letter) in letters.bytes().enumerate() {
                    let bit = 0x80u8 >> at;
                    if mask & bit != 0 {
                        let letter = letter as char;
                        out.push(if set & bit != 0 {
                            letter.to_ascii_uppercase()
                        } else {
                            letter.to_ascii_lowercase()
                        });
                    }
                }
            }
            out
        })
        .collect();
    format!("{mode} {}", list.join(","))
}
