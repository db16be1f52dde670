//! A BPF object made by hand: one function, instruction by instruction.

/// One instruction (RFC 9669, figure 1).
pub fn op(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> u64 {
    u64::from(code)
        | u64::from(dst) << 8
        | u64::from(src) << 12
        | u64::from(off.cast_unsigned()) << 16
        | u64::from(imm.cast_unsigned()) << 32
}

/// `dst = value`, in two instructions.
pub fn wide(dst: u8, value: u64) -> [u64; 2] {
    let low = (value & 0xffff_ffff) as u32;
    let high = (value >> 32) as u32;
    [
        op(0x18, dst, 0, 0, low.cast_signed()),
        op(0, 0, 0, 0, high.cast_signed()),
    ]
}

/// `return r0`.
pub const EXIT: u64 = 0x95;

/// A POLICY block that nothing is wrong with.
pub fn block() -> Vec<u8> {
    let mut block = vec![0; 1736];
    // version, over, usual, wants, zero, bytes of flow, class and global
    for (i, word) in [1u32, 2, 1, 0, 0, 64, 128, 64].into_iter().enumerate() {
        block[4 * i..4 * i + 4].copy_from_slice(&word.to_le_bytes());
    }
    for (at, text) in [(32, "by_hand"), (56, "a test"), (216, "a test")] {
        block[at..at + text.len()].copy_from_slice(text.as_bytes());
    }
    block
}

/// An object whose RANK_ENQUEUE is `text`.
pub fn object(text: &[u64]) -> Vec<u8> {
    object_with(text, &block(), &[("custom_rank_enqueue", 0, text.len())])
}

/// An object of these instructions, this block, and functions by name, start and length.
pub fn object_with(text: &[u64], block: &[u8], functions: &[(&str, usize, usize)]) -> Vec<u8> {
    let names = "\0.text\0.fairpath.policy\0.symtab\0.strtab\0";
    let (mut strings, mut symbols) = (names.as_bytes().to_vec(), vec![0; 24]);
    for (name, start, length) in functions {
        let at = u32::try_from(strings.len()).expect("small");
        strings.extend([name.as_bytes(), &[0]].concat());
        symbols.extend(at.to_le_bytes());
        // A global function in section 1.
        symbols.extend([0x12, 0, 1, 0]);
        symbols.extend((8 * *start as u64).to_le_bytes());
        symbols.extend((8 * *length as u64).to_le_bytes());
    }
    let text: Vec<u8> = text.iter().flat_map(|op| op.to_le_bytes()).collect();
    // name, type, flags, link, data
    let sections: [(u32, u32, u64, u32, &[u8]); 5] = [
        (0, 0, 0, 0, &[]),
        (1, 1, 6, 0, &text),
        (7, 1, 2, 0, block),
        (24, 2, 0, 4, &symbols),
        (32, 3, 0, 0, &strings),
    ];
    let mut file = vec![0; 64];
    let mut headers = Vec::new();
    for (name, kind, flags, link, data) in sections {
        headers.extend([name.to_le_bytes(), kind.to_le_bytes()].concat());
        for value in [flags, 0, file.len() as u64, data.len() as u64] {
            headers.extend(value.to_le_bytes());
        }
        headers.extend([link.to_le_bytes(), [0; 4]].concat());
        headers.extend([0; 16]);
        file.extend(data);
    }
    file[..6].copy_from_slice(b"\x7fELF\x02\x01");
    file[16..20].copy_from_slice(&[1, 0, 247, 0]);
    let offset = file.len() as u64;
    file[0x28..0x30].copy_from_slice(&offset.to_le_bytes());
    file[0x3a..0x40].copy_from_slice(&[64, 0, 5, 0, 4, 0]);
    file.extend(headers);
    file
}
