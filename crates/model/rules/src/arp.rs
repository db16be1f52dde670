//! Words of arptables files.

use crate::spec::{Kind, Type, arp_opcodes};
use crate::tree::Value;
use crate::value::{self, Context};

/// Reads a value of an ARP header's option: names of operations, and masks after a slash.
pub fn value(ty: Type, option: u8, words: &[&[u8]], context: Context) -> Result<Value, String> {
    let name = Kind::ArpHeader.spec().options[usize::from(option)].names[0];
    if name == "--opcode"
        && let Ok(Value::Number(number)) = value::parse(Type::Choice(arp_opcodes()), words, context)
    {
        return Ok(Value::Pair(number as u32, 0xffff));
    }
    let parsed = value::parse(ty, words, context)?;
    let limit = if name == "--h-length" { 0xff } else { 0xffff };
    match parsed {
        Value::Pair(value, mask) if matches!(ty, Type::Mark) => {
            if value > limit {
                return Err(format!("{value} is more than {limit}"));
            }
            Ok(Value::Pair(value, mask & limit))
        }
        other => Ok(other),
    }
}
